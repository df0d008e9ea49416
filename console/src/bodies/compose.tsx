// A form that sends a message: destination, headers, body, and the broker's verdict.

import { useState } from "preact/hooks";
import { session, type NebulaError } from "../session";
import { asNebulaError } from "../widgets/poll";
import { ErrorNote } from "../widgets/states";
import { bytesOfHex, hexText, textOf } from "./hex";
import { jsonOf, prettyJson } from "./reading";
import "./bodies.css";

export type BodyKind = "json" | "text" | "hex";

/** What a form begins with. */
export interface Draft {
  destination: string;
  headers: Record<string, string>;
  body: string;
  kind: BodyKind;
}

const KINDS: Record<BodyKind, { title: string; contentType: string }> = {
  json: { title: "JSON", contentType: "application/json" },
  text: { title: "Text", contentType: "text/plain" },
  hex: { title: "Bytes (hex)", contentType: "application/octet-stream" },
};

// The broker and the frame set these.
const OWN_HEADERS = new Set(["destination", "content-length", "receipt", "transaction", "sender", "message-id"]);

/** A draft for a new message. */
export function newDraft(destination: string): Draft {
  return { destination, headers: {}, body: "{}", kind: "json" };
}

/** A draft with the body and headers of a message. */
export function draftOf(destination: string, headers: Record<string, string>, body: Uint8Array): Draft {
  const text = textOf(body);
  if (text === null) return { destination, headers, body: hexText(body), kind: "hex" };
  const json = jsonOf(text);
  return json === undefined
    ? { destination, headers, body: text, kind: "text" }
    : { destination, headers, body: prettyJson(json), kind: "json" };
}

/**
 * The body as it goes over the wire.
 *
 * @throws {Error} it is not what `kind` says
 */
export function encodeDraft(kind: BodyKind, body: string): string | Uint8Array {
  if (kind === "json" && jsonOf(body) === undefined) {
    throw new Error("The body is not valid JSON. Correct it, or send it as text.");
  }
  if (kind !== "hex") return body;
  const bytes = bytesOfHex(body);
  if (bytes === null) throw new Error("Bytes are pairs of hexadecimal digits, such as 0a ff.");
  return bytes;
}

type Pair = { name: string; value: string };

/** What became of a message: the RECEIPT's headers. */
export type Verdict = Record<string, string>;

export interface ComposeProps {
  draft: Draft;
  /** What the button says. */
  action?: string;
  /** Where it goes cannot be changed. */
  isFixed?: boolean;
  /** Below the form, above the button: what else happens. */
  children?: preact.ComponentChildren;
  /** Called when the broker has taken it; what it resolves to is shown after the verdict. */
  onSent?: (verdict: Verdict, destination: string) => Promise<string> | void;
}

export function Compose({ draft, action = "Publish", isFixed = false, children, onSent }: ComposeProps) {
  const [destination, setDestination] = useState(draft.destination);
  const [kind, setKind] = useState(draft.kind);
  const [body, setBody] = useState(draft.body);
  const [isPersistent, setPersistent] = useState(draft.headers["persistent"] === "true");
  const [pairs, setPairs] = useState<readonly Pair[]>(() =>
    Object.entries(draft.headers)
      .filter(([name]) => name !== "persistent" && name !== "content-type")
      .map(([name, value]) => ({ name, value })),
  );
  const [contentType, setContentType] = useState(draft.headers["content-type"] ?? "");
  const [isSending, setSending] = useState(false);
  const [outcome, setOutcome] = useState<{ text: string } | { error: NebulaError } | null>(null);

  const change = (place: number, pair: Pair) => setPairs(pairs.map((each, at) => (at === place ? pair : each)));

  const send = async () => {
    setSending(true);
    setOutcome(null);
    try {
      const headers: Record<string, string> = {
        ...headersOf(pairs),
        "content-type": contentType || KINDS[kind].contentType,
        ...(isPersistent ? { persistent: "true" } : {}),
      };
      const verdict = await session.send(destination, headers, encodeDraft(kind, body));
      const more = await onSent?.(verdict, destination);
      setOutcome({ text: [verdictText(verdict, destination, isPersistent), more].filter(Boolean).join(" ") });
    } catch (error) {
      setOutcome({ error: asNebulaError(error) });
    } finally {
      setSending(false);
    }
  };

  return (
    <form
      class="compose"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <label class="field">
        Destination
        <input
          required
          readOnly={isFixed}
          value={destination}
          placeholder="/queue/orders, /topic/news, X/value"
          onInput={(event) => setDestination(event.currentTarget.value)}
        />
      </label>
      <fieldset class="compose-headers">
        <legend>Headers</legend>
        {pairs.map((pair, place) => (
          <div class="compose-pair" key={place}>
            <input
              aria-label={`Name of header ${place + 1}`}
              placeholder="name"
              value={pair.name}
              onInput={(event) => change(place, { ...pair, name: event.currentTarget.value })}
            />
            <input
              aria-label={`Value of header ${place + 1}`}
              placeholder="value"
              value={pair.value}
              onInput={(event) => change(place, { ...pair, value: event.currentTarget.value })}
            />
            <button
              type="button"
              class="icon"
              aria-label={`Remove header ${pair.name || place + 1}`}
              onClick={() => setPairs(pairs.filter((_, at) => at !== place))}
            >
              ✕
            </button>
          </div>
        ))}
        <button type="button" onClick={() => setPairs([...pairs, { name: "", value: "" }])}>
          Add header
        </button>
      </fieldset>
      <div class="compose-row">
        <label class="field">
          Body is
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as BodyKind)}>
            {Object.entries(KINDS).map(([each, { title }]) => (
              <option key={each} value={each}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          Content type
          <input
            value={contentType}
            placeholder={KINDS[kind].contentType}
            onInput={(event) => setContentType(event.currentTarget.value)}
          />
        </label>
        <label class="tick">
          <input
            type="checkbox"
            checked={isPersistent}
            onChange={(event) => setPersistent(event.currentTarget.checked)}
          />
          Persistent
        </label>
      </div>
      <label class="field">
        Body
        <textarea
          rows={8}
          spellcheck={false}
          value={body}
          onInput={(event) => setBody(event.currentTarget.value)}
        />
      </label>
      {children}
      <div class="compose-foot">
        <div class="compose-outcome" role="status">
          {outcome !== null && "text" in outcome && <p class="note">{outcome.text}</p>}
          {outcome !== null && "error" in outcome && <ErrorNote error={outcome.error} />}
        </div>
        <button type="submit" class="primary" disabled={isSending || !session.isOpen.value}>
          {isSending ? "Sending …" : action}
        </button>
      </div>
    </form>
  );
}

/** Headers by name; those that the broker writes itself are left out, and rows without a name. */
export function headersOf(pairs: readonly Pair[]): Record<string, string> {
  return Object.fromEntries(
    pairs
      .map(({ name, value }) => [name.trim(), value] as const)
      .filter(([name]) => name !== "" && !OWN_HEADERS.has(name)),
  );
}

/** The broker's verdict in words. */
export function verdictText(verdict: Verdict, destination: string, isPersistent = false): string {
  if (verdict["duplicate"] === "true") return "Accepted before: a message with this dedup-id is known already.";
  const parts = [`${destination} has accepted the message`];
  const consumers = verdict["consumers"];
  if (consumers !== undefined) {
    parts.push(consumers === "0" ? "no consumer is there yet" : `${consumers} ${consumers === "1" ? "consumer" : "consumers"}`);
  }
  if (isPersistent && verdict["durable"] === "false") parts.push("it is not on disk");
  return `${parts.join("; ")}.`;
}
