// The same call in other words: Python, curl, `nebula call`. None of them contains a passcode or token.

import type { Place } from "../place";

/** How the caller of a text proves who it is; the secret itself comes from a variable of the environment. */
export type Login = { kind: "none" } | { kind: "passcode"; login: string } | { kind: "token" };

/** What is called, where, and how. */
export interface Written {
  /** The queue of the service, or of one of its instances. */
  address: string;
  verb: string;
  parameters: unknown;
  kind: "call" | "stream" | "job";
  place: Place;
  /** Seconds; null: as long as by default. */
  timeout: number | null;
  /** Of a job; null: the default. */
  priority: number | null;
  login: Login;
}

/** What clients wait for without an option, in seconds. */
const DEFAULT_SECONDS = 30;
/** The longest that a call over HTTP may take. */
const MOST_HTTP_SECONDS = 300;

const VARIABLES = { passcode: "PASSCODE", token: "TOKEN" } as const;

export function asPython(written: Written): string {
  const { address, verb, parameters, kind, place, login } = written;
  const given = [
    pythonOf(serviceOf(address)),
    pythonOf(verb),
    ...(isEmpty(parameters) ? [] : [pythonOf(parameters)]),
    ...(hasTimeout(written) ? [`timeout=${written.timeout}`] : []),
    ...(hasPriority(written) ? [`priority=${written.priority}`] : []),
  ].join(", ");
  const body = {
    call: `    print(client.call(${given}))`,
    stream: `    for item in client.stream(${given}):\n        print(item)`,
    job: `    job = client.start(${given})\n    print(job.result())`,
  }[kind];
  const [os, url] =
    login.kind === "none"
      ? ["", pythonOf(place.url)]
      : ["import os\n\n", `f"${withLogin(place.url, login, `{os.environ['${VARIABLES[login.kind]}']}`)}"`];
  return `${os}from nebula import sync\n\nwith sync.Client(${url}) as client:\n${body}`;
}

/** A command of curl; null where no address of the broker for HTTP is known. */
export function asCurl(written: Written): string | null {
  const { address, verb, parameters, kind, place, login, timeout } = written;
  const service = serviceOf(address);
  if (place.http === null || service.includes("/")) return null;
  return [
    "curl -s",
    ...(kind === "stream" ? ["-N -H 'Accept: application/x-ndjson'"] : []),
    ...(hasTimeout(written) ? [`-H 'Neb-Timeout: ${Math.round(Math.min(timeout ?? 0, MOST_HTTP_SECONDS) * 1000)}'`] : []),
    ...(login.kind === "passcode" ? [`-u ${shellOf(login.login)}`] : []),
    ...(login.kind === "token" ? [`-H "Authorization: Bearer $${VARIABLES.token}"`] : []),
    `--json ${shellOf(JSON.stringify(parameters ?? {}))}`,
    shellOf(`${place.http}/call/${encodeURIComponent(service)}/${encodeURIComponent(verb)}`),
  ].join(" ");
}

export function asCommand(written: Written): string {
  const { address, verb, parameters, kind, place, login } = written;
  const given =
    typeof parameters === "object" && parameters !== null && !Array.isArray(parameters)
      ? Object.entries(parameters).map(([name, value]) =>
          typeof value === "string" ? shellOf(`${name}=${value}`) : shellOf(`${name}:=${JSON.stringify(value)}`),
        )
      : [];
  const command = kind === "stream" ? "nebula stream" : "nebula call";
  return [
    // By the environment: other users of a machine see the arguments of a command.
    ...(login.kind === "none"
      ? [command, `--broker ${shellOf(place.url)}`]
      : [`NEBULA_BROKER="${withLogin(place.url, login, `$${VARIABLES[login.kind]}`)}"`, command]),
    ...(hasTimeout(written) ? [`--timeout ${written.timeout}`] : []),
    ...(hasPriority(written) ? [`--priority ${written.priority}`] : []),
    shellOf(serviceOf(address)),
    shellOf(verb),
    ...given,
  ].join(" ");
}

/** What a user has to know or do before a text works. Words to type are between `…`. */
export function notesOn(written: Written, form: "python" | "curl" | "command"): string[] {
  const { login, place, timeout } = written;
  const notes: string[] = [];
  if (form === "curl") {
    if (asCurl(written) === null) {
      return [
        "This page knows no address of the broker for HTTP. It writes the command if `nebula console` is started with" +
          " `--broker ws://HOST:PORT`, the WebSocket address of a listener that serves calls (`nebula broker --http-calls`).",
      ];
    }
    notes.push("The listener must serve calls over HTTP: `nebula broker --http-calls`.");
    if (hasPriority(written)) notes.push("A call over HTTP has no priority: the job gets the default.");
    if (timeout !== null && timeout > MOST_HTTP_SECONDS) notes.push(`A call over HTTP takes ${MOST_HTTP_SECONDS} s at most.`);
  }
  if (login.kind === "token") notes.push("Set the environment variable `TOKEN` to your token.");
  else if (login.kind === "passcode" && form === "curl") notes.push(`curl asks for the passcode of ${login.login}.`);
  else if (login.kind === "passcode") {
    notes.push(
      `Set the environment variable \`PASSCODE\` to the passcode of ${login.login}, percent-encoded as in any address:` +
        " `@` is `%40`.",
    );
  }
  if (/^(stomps|wss):/.test(place.url)) {
    notes.push(
      form === "curl"
        ? "For a private CA or a client certificate, add `--cacert`, `--cert` and `--key`."
        : "For a private CA or a client certificate, set `NEBULA_CA`, `NEBULA_CERT` and `NEBULA_KEY`.",
    );
  }
  return notes;
}

/** The name by which programs call a queue. */
function serviceOf(address: string): string {
  return address.replace(/^\/queue\//, "");
}

function hasTimeout({ kind, timeout }: Written): boolean {
  return timeout !== null && (kind === "stream" || timeout !== DEFAULT_SECONDS);
}

function hasPriority({ kind, priority }: Written): boolean {
  return kind === "job" && priority !== null;
}

/** An address with a login; a token has none. */
function withLogin(url: string, login: Login, secret: string): string {
  // `!` is left as it is by the function, and interactive shells expand it.
  const name = login.kind === "passcode" ? encodeURIComponent(login.login).replaceAll("!", "%21") : "";
  return url.replace("://", `://${name}:${secret}@`);
}

function isEmpty(parameters: unknown): boolean {
  return parameters === undefined || (typeof parameters === "object" && parameters !== null && Object.keys(parameters).length === 0);
}

/** A JSON value as Python writes it. */
export function pythonOf(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  // JSON's escapes are Python's as well.
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonOf(one)}`).join(", ")}}`;
  }
  return String(value);
}

/** A word of a shell's command. */
export function shellOf(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
