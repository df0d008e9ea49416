// A message's body in all its forms: JSON, text, Avro, hex.

import { Fragment } from "preact";
import { useEffect, useId, useMemo, useState } from "preact/hooks";
import { NebulaError } from "../session";
import { bytes as sizeOf, count } from "../widgets/format";
import { asNebulaError } from "../widgets/poll";
import { ErrorNote } from "../widgets/states";
import { AvroError } from "./avro";
import { fieldsOfEnvelope } from "./envelope";
import { hexLines } from "./hex";
import { JsonTree } from "./json-tree";
import { prettyJson, readAvro, readPlain, type AvroReading, type Body } from "./reading";
import { schemas } from "./schemas";
import "./bodies.css";

type Form = "avro" | "json" | "text" | "hex";

const TITLES: Record<Form, string> = { avro: "Avro", json: "JSON", text: "Text", hex: "Hex" };

// A body may have a megabyte, and a page with all its lines is slow.
const MOST_CHARACTERS = 100_000;
const MOST_HEX_BYTES = 8_192;

type Avro = { state: "asking" } | { state: "none" } | { state: "failed"; error: NebulaError } | ({ state: "read" } & AvroReading);

export function BodyView({ body }: { body: Body }) {
  const plain = useMemo(() => readPlain(body), [body]);
  const avro = useAvro(body, plain.json !== undefined);
  const name = useId();
  // The choice stays while the message changes, as a last value does.
  const [chosen, choose] = useState<Form | null>(null);

  if (body.total === 0) return <p class="muted">The body is empty.</p>;
  const forms: Form[] = [];
  if (avro.state === "read" || avro.state === "failed") forms.push("avro");
  if (plain.json !== undefined) forms.push("json");
  if (plain.text !== null) forms.push("text");
  forms.push("hex");
  const form = chosen !== null && forms.includes(chosen) ? chosen : (forms[0] ?? "hex");
  const copied =
    form === "avro" && avro.state === "read"
      ? prettyJson(avro.value)
      : form === "json"
        ? prettyJson(plain.json)
        : plain.text;

  return (
    <div class="body-view">
      <div class="body-bar">
        <fieldset class="segments">
          <legend class="hidden">Show the body as</legend>
          {forms.map((each) => (
            <label key={each}>
              <input type="radio" name={name} checked={each === form} onChange={() => choose(each)} />
              <span>{TITLES[each]}</span>
            </label>
          ))}
        </fieldset>
        <span class="body-size">
          {sizeOf(body.total)}
          {plain.isCut && `, the first ${sizeOf(body.bytes.length)} shown`}
        </span>
        {copied !== null && form !== "hex" && <CopyButton text={copied} />}
      </div>
      <div class="body-content" tabIndex={0} role="region" aria-label={`Body as ${TITLES[form]}`}>
        {form === "avro" && <AvroBody avro={avro} />}
        {form === "json" && <JsonTree value={plain.json} />}
        {form === "text" && <Text text={plain.text ?? ""} />}
        {form === "hex" && <Hex bytes={body.bytes} />}
      </div>
    </div>
  );
}

function useAvro(body: Body, isJson: boolean): Avro {
  const [avro, setAvro] = useState<Avro>({ state: "none" });
  useEffect(() => {
    let isCurrent = true;
    // JSON that is also a valid datum is so rare that the broker need not be asked about each body.
    if (isJson && !body.contentType.includes("avro")) {
      setAvro({ state: "none" });
      return;
    }
    setAvro({ state: "asking" });
    readAvro(body, schemas).then(
      (found) => isCurrent && setAvro(found === null ? { state: "none" } : { state: "read", ...found }),
      (error: unknown) => isCurrent && setAvro({ state: "failed", error: failureOf(error) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [body, isJson]);
  return avro;
}

function failureOf(error: unknown): NebulaError {
  return error instanceof AvroError ? new NebulaError("not-decoded", error.message) : asNebulaError(error);
}

function AvroBody({ avro }: { avro: Avro }) {
  if (avro.state === "failed") return <ErrorNote error={avro.error} />;
  if (avro.state !== "read") return null;
  const facts = [
    ...(avro.name === null ? [] : [["type", avro.name]]),
    ...(avro.fingerprint === null ? [] : [["schema", avro.fingerprint]]),
    ...(avro.envelope === null ? [] : fieldsOfEnvelope(avro.envelope)),
  ] as [string, string][];
  return (
    <>
      <dl class="facts">
        {facts.map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
      </dl>
      {avro.envelope?.body !== null && <JsonTree value={avro.value} />}
    </>
  );
}

function Text({ text }: { text: string }) {
  const [isWhole, showAll] = useState(false);
  const isLong = text.length > MOST_CHARACTERS && !isWhole;
  return (
    <>
      <pre>{isLong ? text.slice(0, MOST_CHARACTERS) : text}</pre>
      {isLong && (
        <button type="button" class="link" onClick={() => showAll(true)}>
          Show all {count(text.length)} characters
        </button>
      )}
    </>
  );
}

function Hex({ bytes }: { bytes: Uint8Array }) {
  return (
    <>
      <pre class="hex-dump">{hexLines(bytes, MOST_HEX_BYTES).join("\n")}</pre>
      {bytes.length > MOST_HEX_BYTES && (
        <p class="muted">
          The first {sizeOf(MOST_HEX_BYTES)} of {sizeOf(bytes.length)}.
        </p>
      )}
    </>
  );
}

function CopyButton({ text }: { text: string }) {
  const [isDone, setDone] = useState(false);
  // Pages without TLS have no clipboard, except those of this machine.
  if (navigator.clipboard === undefined) return null;
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 2_000);
  };
  return (
    <button type="button" onClick={() => void copy()}>
      <span role="status">{isDone ? "Copied" : "Copy"}</span>
    </button>
  );
}
