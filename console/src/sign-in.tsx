// The form that says who we are.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Logo, ThemeSwitch } from "./app";
import { hostOf, thisPlace } from "./place";
import { session, type Credentials } from "./session";
import { asNebulaError } from "./widgets/poll";

type Kind = Credentials["kind"];

const KINDS: readonly { kind: Kind; title: string }[] = [
  { kind: "passcode", title: "Passcode" },
  { kind: "token", title: "Token" },
  { kind: "none", title: "No passcode" },
];

// Of this page: after signing out, the user expects the form.
let isFirst = true;

/**
 * Signs in without a form first. After a success nothing changes here: the shell comes as soon as the broker has said what
 * one may do, and what is typed into a form that is shown until then would be lost.
 */
export function SignIn() {
  const kind = useSignal<Kind>("passcode");
  const failure = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const isTrying = useSignal(isFirst);

  const signIn = async (credentials: Credentials) => {
    isBusy.value = true;
    failure.value = null;
    try {
      await session.signIn(credentials);
    } catch (error) {
      failure.value = saying(asNebulaError(error));
      isBusy.value = false;
    }
  };

  useEffect(() => {
    if (!isFirst) return;
    isFirst = false;
    // Many brokers want nothing on their own machine, or know a client by its certificate: then no form is shown.
    isTrying.value = true;
    void session.signIn({ kind: "none" }).catch(() => (isTrying.value = false));
  }, []);

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "");
    if (kind.value === "passcode") {
      void signIn({ kind: "passcode", login: text("login"), passcode: text("passcode") });
    } else if (kind.value === "token") void signIn({ kind: "token", token: text("token").trim() });
    else void signIn({ kind: "none" });
  };

  if (isTrying.value) {
    return (
      <main class="sign-in">
        <p class="loading" role="status">
          Connecting to {hostOf(thisPlace())} …
        </p>
      </main>
    );
  }
  return (
    <main class="sign-in">
      <form class="card" onSubmit={submit}>
        <div class="sign-in-head">
          <Logo />
          <h1>Nebula console</h1>
          <span class="spacer" />
          <ThemeSwitch />
        </div>
        <p class="muted">
          Broker at <strong>{hostOf(thisPlace())}</strong>
        </p>
        <fieldset class="segments">
          <legend class="hidden">How to sign in</legend>
          {KINDS.map((each) => (
            <label key={each.kind}>
              <input
                type="radio"
                name="kind"
                value={each.kind}
                checked={kind.value === each.kind}
                onChange={() => (kind.value = each.kind)}
              />
              <span>{each.title}</span>
            </label>
          ))}
        </fieldset>
        {kind.value === "passcode" && (
          <>
            <label class="field">
              Login
              <input name="login" autocomplete="username" required autofocus />
            </label>
            <label class="field">
              Passcode
              <input name="passcode" type="password" autocomplete="current-password" required />
            </label>
          </>
        )}
        {kind.value === "token" && (
          <label class="field">
            Token
            <textarea name="token" rows={4} spellcheck={false} autocomplete="off" required />
          </label>
        )}
        {kind.value === "none" && (
          <p class="muted">For brokers that ask for none, and for those that know you by your client certificate.</p>
        )}
        {failure.value !== null && (
          <div class="note failed" role="alert">
            {failure.value}
          </div>
        )}
        <button type="submit" class="primary" disabled={isBusy.value}>
          {isBusy.value ? "Signing in …" : "Sign in"}
        </button>
      </form>
    </main>
  );
}

function saying({ code, message }: { code: string; message: string }): string {
  if (code === "lost") return "The broker cannot be reached, or refuses this page. Is it running?";
  return code === "refused" ? `The broker refuses: ${message}` : `${message} (${code})`;
}
