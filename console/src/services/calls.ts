// The same call in other words: Python, curl, `nebula call`.

/** What is called, and where. */
export interface Written {
  service: string;
  verb: string;
  parameters: unknown;
  kind: "call" | "stream" | "job";
  /** The console's own address: `https://broker.example/console/`. */
  page: string;
}

/** The broker as programs reach it: by the listener that the page came from. */
export function brokerUrl(page: string): string {
  const url = new URL("..", page.split("#")[0]);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = "";
  return url.href.replace(/\/$/, "");
}

export function asPython({ service, verb, parameters, kind, page }: Written): string {
  const given = isEmpty(parameters) ? "" : `, ${pythonOf(parameters)}`;
  const target = `${pythonOf(service)}, ${pythonOf(verb)}${given}`;
  const body = {
    call: `    print(client.call(${target}))`,
    stream: `    for item in client.stream(${target}):\n        print(item)`,
    job: `    job = client.start(${target})\n    print(job.result())`,
  }[kind];
  return `from nebula import sync\n\nwith sync.Client(${pythonOf(brokerUrl(page))}) as client:\n${body}`;
}

export function asCurl({ service, verb, parameters, kind, page }: Written): string {
  const url = new URL(`../call/${encodeURIComponent(service)}/${encodeURIComponent(verb)}`, page.split("#")[0]);
  url.search = "";
  const stream = kind === "stream" ? " -N -H 'Accept: application/x-ndjson'" : "";
  return `curl -s${stream} --json ${shellOf(JSON.stringify(parameters ?? {}))} ${shellOf(url.href)}`;
}

export function asCommand({ service, verb, parameters, page }: Written): string {
  const given =
    typeof parameters === "object" && parameters !== null && !Array.isArray(parameters)
      ? Object.entries(parameters).map(([name, value]) =>
          typeof value === "string" ? shellOf(`${name}=${value}`) : shellOf(`${name}:=${JSON.stringify(value)}`),
        )
      : [];
  return ["nebula call", `--broker ${shellOf(brokerUrl(page))}`, shellOf(service), shellOf(verb), ...given].join(" ");
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
