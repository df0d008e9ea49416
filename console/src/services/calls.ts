// The same call in other words: Python, curl, `nebula call`. None of them contains a passcode or token.

import { isObject, type Schema } from "../forms/schema";
import type { Place } from "../place";

/** How the caller of a text proves who it is; the secret itself comes from a variable of the environment. */
export type Login = { kind: "none" } | { kind: "passcode"; login: string } | { kind: "token" };

/** What is called, where, and how. */
export interface Written {
  /** The queue of the service, or of one of its instances. */
  address: string;
  verb: string;
  parameters: unknown;
  /** Of the parameters, by the verb's contract. */
  schema: Schema;
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
/** In the schema of parameters that are one model or list: what the verb calls it. */
const PARAMETER_NAME = "x-parameter";
/** What `nebula call` reads as a name: the first `=` or `:=` ends it. */
const COMMAND_NAME = /^[^=:]+$/;
/** The longest that a call over HTTP may take. */
const MOST_HTTP_SECONDS = 300;

const VARIABLES = { passcode: "PASSCODE", token: "TOKEN" } as const;

export function asPython(written: Written): string {
  const { address, verb, parameters, kind, place, login } = written;
  const [before, after] = aroundSecret(place.url, login);
  const given = [
    pythonOf(serviceOf(address)),
    pythonOf(verb),
    ...(isLeftOut(written) ? [] : [pythonOf(parameters)]),
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
      : ["import os\n\n", `${pythonOf(before)} + os.environ["${VARIABLES[login.kind]}"] + ${pythonOf(after)}`];
  return `${os}from nebula import sync\n\nwith sync.Client(${url}) as client:\n${body}`;
}

/** A command of curl; null where no address of the broker for HTTP is known. */
export function asCurl(written: Written): string | null {
  const { address, verb, parameters, kind, place, login, timeout } = written;
  const service = serviceOf(address);
  if (place.http === null || service.includes("/")) return null;
  return [
    // By stdin: other users of a machine see the arguments of a program, but not those of a shell's own `echo`.
    ...(login.kind === "token" ? [`echo "Authorization: Bearer $${VARIABLES.token}" |`] : []),
    "curl -s",
    ...(kind === "stream" ? ["-N -H 'Accept: application/x-ndjson'"] : []),
    ...(hasTimeout(written) ? [`-H 'Neb-Timeout: ${Math.round(Math.min(timeout ?? 0, MOST_HTTP_SECONDS) * 1000)}'`] : []),
    ...(login.kind === "passcode" ? [`-u ${shellOf(login.login)}`] : []),
    ...(login.kind === "token" ? ["-H @-"] : []),
    `--json ${shellOf(JSON.stringify(parameters ?? {}))}`,
    shellOf(`${place.http}/call/${encodeURIComponent(service)}/${encodeURIComponent(verb)}`),
  ].join(" ");
}

/** A command of `nebula`; null where it cannot give these parameters. */
export function asCommand(written: Written): string | null {
  const { address, verb, kind, place, login } = written;
  const named = namedParameters(written);
  if (named === null || unreadableName(named) !== undefined) return null;
  const [before, after] = aroundSecret(place.url, login);
  const command = kind === "stream" ? "nebula stream" : "nebula call";
  const words = [
    serviceOf(address),
    verb,
    ...Object.entries(named).map(([name, value]) => (typeof value === "string" ? `${name}=${value}` : `${name}:=${JSON.stringify(value)}`)),
  ];
  return [
    // By the environment: other users of a machine see the arguments of a command.
    ...(login.kind === "none"
      ? [command, `--broker ${shellOf(place.url)}`]
      : [`NEBULA_BROKER=${shellOf(before)}"$${VARIABLES[login.kind]}"${shellOf(after)}`, command]),
    ...(hasTimeout(written) ? [`--timeout ${written.timeout}`] : []),
    ...(hasPriority(written) ? [`--priority ${written.priority}`] : []),
    // Without it, such a word would be an option.
    ...(words.some((word) => word.startsWith("-")) ? ["--"] : []),
    ...words.map(shellOf),
  ].join(" ");
}

/** Why there is no command. */
function whyNoCommand(written: Written): string | null {
  const named = namedParameters(written);
  if (named === null) {
    return "`nebula call` gives parameters by name, and the contract has no names for all of these. Give them by name, or use Python or curl.";
  }
  const name = unreadableName(named);
  return name === undefined ? null : `\`nebula call\` cannot give a parameter named “${name}”. Use Python or curl.`;
}

/** The parameters by name; null: the contract has no names for them. */
function namedParameters({ parameters, schema }: Written): Record<string, unknown> | null {
  if (parameters === undefined || parameters === null) return {};
  if (isObject(parameters)) return parameters;
  const whole = schema[PARAMETER_NAME];
  if (typeof whole === "string") return Array.isArray(parameters) && schema.type === "array" ? { [whole]: parameters } : null;
  // A list gives parameters by position, and any other value is the first one.
  const values: unknown[] = Array.isArray(parameters) ? parameters : [parameters];
  const names = isObject(schema.properties) ? Object.keys(schema.properties) : [];
  return values.length > names.length ? null : Object.fromEntries(values.map((value, place) => [names[place], value]));
}

function unreadableName(named: Record<string, unknown>): string | undefined {
  return Object.keys(named).find((name) => !COMMAND_NAME.test(name));
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
  if (form === "command") {
    const why = whyNoCommand(written);
    if (why !== null) return [why];
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

/** What is before and after the secret in an address with a login; a token has no name before it. */
function aroundSecret(url: string, login: Login): [string, string] {
  const start = url.indexOf("://") + 3;
  const name = login.kind === "passcode" ? encodeURIComponent(login.login) : "";
  return [`${url.slice(0, start)}${name}:`, `@${url.slice(start)}`];
}

/** Whether a call without parameters means the same. */
function isLeftOut({ parameters, schema }: Written): boolean {
  if (parameters === undefined || parameters === null) return true;
  // A verb that takes one model or list has to get it, even an empty one.
  return isObject(parameters) && Object.keys(parameters).length === 0 && !(PARAMETER_NAME in schema);
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
