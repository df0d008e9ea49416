// One verb: what it does, what it takes and gives, and a form to try it.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { check, type Fault } from "../forms/check";
import { draftOf, emptyDraft, outcomeOf, placeDetails, type Draft } from "../forms/draft";
import { readDocstring } from "../forms/docstring";
import { SchemaForm } from "../forms/form";
import { fieldOf, type Field } from "../forms/schema";
import { thisPlace } from "../place";
import { href, route } from "../router";
import { session } from "../session";
import { CopyButton } from "../widgets/copy";
import { Empty, Loaded, PageHead } from "../widgets/states";
import { asCommand, asCurl, asPython, notesOn, type Login, type Written } from "./calls";
import { useContract } from "./contract";
import { Badges } from "./detail";
import { addressOf, type Contract, type Instance, type Verb } from "./model";
import { usePresence } from "./presence";
import { tryCall, type Attempt, type Kind } from "./try-call";
import { Reply } from "./reply";
import { Json } from "./value";
import { Views } from "./views";

export function VerbPage({ service, verb: name }: { service: string; verb: string }) {
  const { instances, isComplete } = usePresence().value;
  const own = useMemo(() => [...instances.values()].filter((one) => one.service === service).sort((one, other) => one.name.localeCompare(other.name)), [instances, service]);
  const contract = useContract(service, own);
  const crumbs = (
    <span class="crumbs">
      <a href={href("services")}>Services</a> / <a href={href("services", [service])}>{service}</a>
    </span>
  );
  const head = (verb?: Verb) => <PageHead title={<><span class="mono">{name}</span> {verb && <Badges verb={verb} />}</>} about={crumbs} />;
  // A form stays while instances come and go; it disappears only without a contract.
  if (own.length === 0 && contract.data === null) {
    return (
      <>
        {head()}
        {isComplete ? <Empty title={`No instance of ${service} is running`}>The form appears when one starts.</Empty> : <p class="loading" role="status">Loading …</p>}
      </>
    );
  }
  return (
    <Loaded polled={contract}>
      {(known: Contract) => {
        const verb = known.verbs.find((one) => one.verb === name);
        return (
          <>
            {head(verb)}
            {verb === undefined ? (
              <Empty title={`${service} has no verb ${name}`}><a href={href("services", [service])}>Show its verbs</a></Empty>
            ) : (
              <TryVerb key={JSON.stringify(verb.parameters)} service={service} instances={own} verb={verb} />
            )}
          </>
        );
      }}
    </Loaded>
  );
}

function kindOf(verb: Verb): Kind {
  return verb.job ? "job" : verb.stream ? "stream" : "call";
}

const ACTIONS: Record<Kind, string> = { call: "Call", stream: "Read the stream", job: "Start the job" };

function TryVerb({ service, instances, verb }: { service: string; instances: readonly Instance[]; verb: Verb }) {
  const kind = kindOf(verb);
  const documentation = useMemo(() => readDocstring(verb.description), [verb.description]);
  const form = useCallForm(verb);
  const [options, setOptions] = useState<Options>({ instance: "", timeout: kind === "call" ? "30" : "", priority: "" });
  const [attempt, setAttempt] = useState<Attempt | null>(null);
  const running = useRef<AbortController | null>(null);
  const place = useRef<HTMLFormElement>(null);
  const answer = useRef<HTMLDivElement>(null);
  useEffect(() => () => running.current?.abort(), []);

  const isOpen = attempt?.state === "open";
  const isRefused = verb.allowed === false;
  const timeout = Number(options.timeout);
  const timeoutFault = options.timeout !== "" && !(timeout > 0 && timeout <= 86_400) ? "must be more than 0, at most 86400" : "";

  const chosen = instances.find(({ name }) => name === options.instance);
  const address = chosen?.queue ?? verb.queue ?? addressOf(instances, service);

  const submit = (): void => {
    if (isOpen || isRefused) return;
    const parameters = form.submit();
    if (parameters === null || timeoutFault) {
      // After the faults are drawn: the user goes on at the first one.
      requestAnimationFrame(() => place.current?.querySelector<HTMLElement>("[aria-invalid='true']")?.focus());
      return;
    }
    const aborter = new AbortController();
    running.current = aborter;
    // On a narrow screen the reply is below the form.
    answer.current?.scrollIntoView({ block: "nearest" });
    void tryCall(
      {
        kind,
        address,
        verb: verb.verb,
        parameters: parameters.value,
        timeout: options.timeout === "" ? (kind === "stream" ? undefined : 30_000) : timeout * 1000,
        headers: kind === "job" && options.priority !== "" ? { "neb-job-priority": options.priority } : {},
      },
      aborter.signal,
      (next) => {
        setAttempt(next);
        if (next.error?.code === "bad-parameters") form.place(parameters.value, next.error.details);
      },
    );
  };

  return (
    <div class="try">
      <section class="try-ask" aria-label="Try it">
        <div class="try-about">
          {documentation.summary && <p>{documentation.summary}</p>}
          {documentation.rest && <p class="try-rest">{documentation.rest}</p>}
        </div>
        {isRefused && <p class="note warn">The service does not let you call this verb.</p>}
        <form
          ref={place}
          class="card"
          noValidate
          onSubmit={(event) => {
            event.preventDefault();
            submit();
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
              event.preventDefault();
              submit();
            }
          }}
        >
          <div class="try-head">
            <h2>Parameters</h2>
            <Views name="Give parameters by" views={[["form", "Form"], ["json", "JSON"]]} chosen={form.mode} onChoose={form.setMode} />
          </div>
          {form.mode === "form" ? (
            <SchemaForm field={form.field} draft={form.draft} onChange={form.setDraft} faults={form.faults} notes={documentation.parameters} />
          ) : (
            <JsonForm form={form} />
          )}
          {form.others.map((text) => <p key={text} class="form-fault">{text}</p>)}
          <OptionFields kind={kind} instances={instances} options={options} onChange={setOptions} timeoutFault={timeoutFault} />
          <div class="actions">
            <button type="submit" class="primary" disabled={isOpen || isRefused} title="Ctrl+Enter">{ACTIONS[kind]}</button>
            {isOpen && (
              <button type="button" onClick={() => running.current?.abort()}>
                {kind === "stream" ? "Stop" : "Cancel the call"}
              </button>
            )}
            <button type="button" class="link" onClick={form.reset}>Reset</button>
          </div>
        </form>
        <WrittenCall
          link={href("services", [service, verb.verb], { with: JSON.stringify(form.value ?? {}) })}
          written={{
            address,
            verb: verb.verb,
            parameters: form.value ?? {},
            schema: verb.parameters,
            kind,
            place: thisPlace(),
            timeout: options.timeout === "" || timeoutFault ? null : timeout,
            priority: options.priority === "" ? null : Number(options.priority),
            login: loginOf(),
          }}
        />
      </section>
      <section class="try-reply" aria-label="Reply">
        <div class="card try-answer" ref={answer} aria-live="polite">
          <h2>Reply</h2>
          {attempt === null ? <p class="muted">No call yet.</p> : <Reply service={service} verb={verb} attempt={attempt} />}
        </div>
        <ContractCard verb={verb} />
      </section>
    </div>
  );
}

interface Options {
  instance: string;
  timeout: string;
  priority: string;
}

function OptionFields({ kind, instances, options, onChange, timeoutFault }: { kind: Kind; instances: readonly Instance[]; options: Options; onChange: (options: Options) => void; timeoutFault: string }) {
  return (
    <details class="try-options">
      <summary>Options</summary>
      <div class="try-option-fields">
        <label class="field">
          Instance
          <select value={options.instance} onChange={(event) => onChange({ ...options, instance: event.currentTarget.value })}>
            <option value="">any</option>
            {instances.filter(({ queue }) => queue !== null).map(({ name }) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <label class="field">
          Time limit, seconds
          <input
            inputMode="decimal"
            value={options.timeout}
            placeholder={kind === "stream" ? "none" : "30"}
            aria-invalid={timeoutFault ? "true" : undefined}
            onInput={(event) => onChange({ ...options, timeout: event.currentTarget.value })}
          />
          {timeoutFault && <span class="form-fault">{timeoutFault}</span>}
        </label>
        {kind === "job" && (
          <label class="field">
            Priority
            <select value={options.priority} onChange={(event) => onChange({ ...options, priority: event.currentTarget.value })}>
              <option value="">default (4)</option>
              {Array.from({ length: 10 }, (_, number) => <option key={number} value={String(9 - number)}>{9 - number}{number === 0 ? ", first" : number === 9 ? ", last" : ""}</option>)}
            </select>
          </label>
        )}
      </div>
    </details>
  );
}

interface CallForm {
  field: Field;
  mode: "form" | "json";
  setMode: (mode: "form" | "json") => void;
  draft: Draft;
  setDraft: (draft: Draft) => void;
  text: string;
  setText: (text: string) => void;
  /** What is wrong, at its places. */
  faults: readonly Fault[];
  /** What is wrong without a place. */
  others: readonly string[];
  /** JSON that cannot be read. */
  syntax: string;
  /** The parameters as far as they are given. */
  value: unknown;
  /** The parameters to send; null: they cannot be. From now on faults are shown. */
  submit: () => { value: unknown } | null;
  /** Show what the service has found wrong. */
  place: (value: unknown, details: unknown) => void;
  reset: () => void;
}

/** Parameters as a form or as JSON: each way begins with what the other one had. */
function useCallForm(verb: Verb): CallForm {
  const field = useMemo(() => fieldOf(verb.parameters), [verb.parameters]);
  const given = useMemo(() => parametersInLink(), []);
  const first = (): Draft => (given === undefined ? emptyDraft(field) : draftOf(field, given));
  const [mode, setMode] = useState<"form" | "json">("form");
  const [draft, setDraft] = useState<Draft>(first);
  const [text, setText] = useState("");
  const [isTried, setTried] = useState(false);
  const [told, setTold] = useState<{ faults: readonly Fault[]; others: readonly string[] }>({ faults: [], others: [] });
  const forget = (): void => setTold({ faults: [], others: [] });
  const outcome = useMemo(() => outcomeOf(field, draft), [field, draft]);
  const parsed = useMemo(() => parse(text), [text]);
  const isJson = mode === "json";
  const value = isJson ? parsed.value : outcome.value;
  const own = isJson ? (parsed.error || value === undefined ? [] : check(field, value)) : outcome.faults;
  return {
    field,
    mode,
    setMode: (next) => {
      if (next === mode) return;
      if (next === "json") setText(JSON.stringify(outcome.value ?? {}, null, 2));
      else if (parsed.error === "") setDraft(draftOf(field, parsed.value));
      else return;
      forget();
      setMode(next);
    },
    draft,
    setDraft: (next) => {
      setDraft(next);
      forget();
    },
    text,
    setText: (next) => {
      setText(next);
      forget();
    },
    faults: [...(isTried || isJson ? own : []), ...told.faults],
    others: told.others,
    syntax: isJson ? parsed.error : "",
    value,
    submit: () => {
      setTried(true);
      forget();
      if (isJson) return parsed.error ? null : { value: parsed.value };
      return outcome.faults.length > 0 ? null : { value: outcome.value };
    },
    place: (sent, details) => setTold(placeDetails(field, sent, details)),
    reset: () => {
      setDraft(emptyDraft(field));
      setText("{}");
      setTried(false);
      forget();
    },
  };
}

/** Parameters that a link has brought: `#/services/prices/quote?with={"symbol":"ABC"}`. */
function parametersInLink(): unknown {
  const given = route.value.query.get("with");
  return given === null ? undefined : parse(given).value;
}

function parse(text: string): { value: unknown; error: string } {
  if (text.trim() === "") return { value: undefined, error: "" };
  try {
    return { value: JSON.parse(text) as unknown, error: "" };
  } catch (error) {
    return { value: undefined, error: error instanceof Error ? error.message : String(error) };
  }
}

function JsonForm({ form }: { form: CallForm }): JSX.Element {
  return (
    <div class="try-json">
      <textarea
        aria-label="Parameters as JSON"
        aria-invalid={form.syntax ? "true" : undefined}
        aria-describedby="json-faults"
        rows={Math.min(24, Math.max(6, form.text.split("\n").length + 1))}
        spellcheck={false}
        value={form.text}
        onInput={(event) => form.setText(event.currentTarget.value)}
      />
      <div id="json-faults">
        {form.syntax && <p class="form-fault">{form.syntax}</p>}
        {form.faults.map(({ path, message }) => (
          <p key={`${path.join(".")} ${message}`} class="form-fault">{[path.join("."), message].filter(Boolean).join(": ")}</p>
        ))}
      </div>
      <p class="form-hint">Sent as is, even if the checks above fail: the service decides.</p>
    </div>
  );
}

/** How the page has signed in, as far as a text may say so. */
function loginOf(): Login {
  const principal = session.principal.value;
  if (session.kind === "passcode" && principal !== null) return { kind: "passcode", login: principal };
  return { kind: session.kind === "token" ? "token" : "none" };
}

function WrittenCall({ written, link }: { written: Written; link: string }) {
  const [form, choose] = useState<"python" | "curl" | "command">("python");
  const text = { python: asPython, curl: asCurl, command: asCommand }[form](written);
  return (
    <div class="card">
      <div class="try-head">
        <h2>As code</h2>
        <Views name="Write the call for" views={[["python", "Python"], ["curl", "curl"], ["command", "nebula call"]]} chosen={form} onChoose={choose} />
      </div>
      {text !== null && (
        <div class="code">
          <pre tabIndex={0} aria-label="The call as code">{text}</pre>
          <div class="code-tools">
            <CopyButton text={`${location.href.split("#")[0]}${link}`} label="Copy a link" />
            <CopyButton text={text} />
          </div>
        </div>
      )}
      {notesOn(written, form).map((note) => (
        // Between `…` are words to type.
        <p key={note} class="form-hint">{note.split("`").map((part, place) => (place % 2 === 1 ? <code key={place}>{part}</code> : part))}</p>
      ))}
    </div>
  );
}

function ContractCard({ verb }: { verb: Verb }) {
  return (
    <div class="card">
      <h2>Contract</h2>
      {verb.errors !== undefined && (
        <>
          <h3>Errors</h3>
          <dl class="facts">
            {verb.errors.map(({ code, description, retryable }) => (
              <>
                <dt><code>{code}</code></dt>
                <dd>{description}{retryable && <span class="muted"> (a retry may succeed)</span>}</dd>
              </>
            ))}
          </dl>
        </>
      )}
      <details>
        <summary>Schema of the parameters</summary>
        <Json value={verb.parameters} label="Schema of the parameters" />
      </details>
      <details>
        <summary>{verb.stream ? "Schema of an item" : "Schema of the result"}</summary>
        <Json value={(verb.stream ? verb.item : verb.result) ?? {}} label="Schema of the result" />
      </details>
      <p class="form-hint">Queue: <code>{verb.queue}</code></p>
    </div>
  );
}

