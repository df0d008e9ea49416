// Controls for what is typed: text, numbers, dates with their zone, files as base64, JSON.

import type { JSX } from "preact";
import type { Field } from "./schema";

interface TextProps {
  attributes: {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": "true" | undefined;
    "aria-label": string | undefined;
    "aria-required": boolean;
    disabled: boolean;
    placeholder: string;
  };
  field: Field;
  text: string;
  onText: (text: string) => void;
}

const LONG_TEXT = 200;

export function TextControl({ attributes, field, text, onText }: TextProps): JSX.Element {
  const onInput = (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }): void => onText(event.currentTarget.value);
  const plain = { ...attributes, value: text, onInput, autocomplete: "off", spellcheck: false };
  if (field.kind === "any") return <textarea {...plain} class="form-json" rows={Math.min(12, text.split("\n").length + 1)} />;
  if (field.kind === "number") return <input {...plain} inputMode={field.integer ? "numeric" : "decimal"} />;
  if (field.kind === "decimal") return <input {...plain} inputMode="decimal" />;
  if (field.kind !== "text") return <input {...plain} />;
  switch (field.format) {
    case "date":
      return <input {...plain} type="date" />;
    case "time":
      return <input {...plain} type="text" placeholder={attributes.placeholder || "18:30:00"} />;
    case "date-time":
      return <Moment attributes={attributes} text={text} onText={onText} />;
    case "binary":
      return <Bytes attributes={attributes} text={text} onText={onText} />;
    case "password":
      return <input {...plain} type="password" autocomplete="new-password" />;
    case "email":
      return <input {...plain} type="email" />;
    default:
      // Several lines only where they are likely: Enter sends the form elsewhere.
      return text.includes("\n") || (field.maximum ?? 0) > LONG_TEXT ? <textarea {...plain} rows={3} /> : <input {...plain} type="text" />;
  }
}

type PlainProps = Pick<TextProps, "attributes" | "text" | "onText">;

/** A date and time as text, `2026-01-31T18:30:00Z`, with the present time at hand. */
function Moment({ attributes, text, onText }: PlainProps): JSX.Element {
  return (
    <span class="form-with-tool">
      <input {...attributes} type="text" autocomplete="off" value={text} placeholder={attributes.placeholder || "2026-01-31T18:30:00Z"} onInput={(event) => onText(event.currentTarget.value)} />
      <button type="button" class="form-small" disabled={attributes.disabled} onClick={() => onText(new Date().toISOString().replace(/\.\d+Z$/, "Z"))}>
        Now
      </button>
    </span>
  );
}

/** Bytes as base64, typed or from a file. */
function Bytes({ attributes, text, onText }: PlainProps): JSX.Element {
  return (
    <span class="form-with-tool">
      <input {...attributes} type="text" autocomplete="off" value={text} onInput={(event) => onText(event.currentTarget.value)} />
      <label class="form-small form-file">
        File…
        <input
          type="file"
          aria-label="Take the bytes of a file"
          disabled={attributes.disabled}
          onChange={(event) => {
            const [file] = event.currentTarget.files ?? [];
            if (file !== undefined) void base64Of(file).then(onText);
          }}
        />
      </label>
    </span>
  );
}

export async function base64Of(file: Blob): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  // By parts: all bytes as arguments of one call are too many.
  for (let start = 0; start < bytes.length; start += 0x8000) text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  return btoa(text);
}
