// What is known of a field, in a few words.

import type { Field, Limits } from "./schema";

/** The type of a value: "integer", "list", "date". */
export function typeOf(field: Field): string {
  switch (field.kind) {
    case "number":
      return field.integer ? "integer" : "number";
    case "text":
      return ({ "date-time": "date and time", binary: "bytes" } as Record<string, string>)[field.format ?? ""] ?? field.format ?? "text";
    case "choice":
      return field.values.every((value) => typeof value === "boolean") ? "true or false" : "choice";
    case "object":
      return field.properties.length > 0 ? field.title || "object" : "map";
    case "any":
      return "any JSON";
    case "union":
      return "one of several";
    default:
      return field.kind;
  }
}

/** Its limits: "from 1 to 9, 5 characters at most". */
export function hintOf(field: Field): string {
  switch (field.kind) {
    case "number":
    case "decimal":
      return limitsIn(field.limits);
    case "text":
      return [
        rangeIn(field.minimum, field.maximum, "characters"),
        field.pattern === null ? "" : `matches ${field.pattern}`,
        ({ duration: "such as PT1H30M", binary: "base64, or a file" } as Record<string, string>)[field.format ?? ""] ?? "",
      ].filter(Boolean).join(", ");
    case "list":
      return [rangeIn(field.minimum, field.maximum, "items"), field.unique ? "unique" : ""].filter(Boolean).join(", ");
    case "object":
      return rangeIn(field.minimum, field.maximum, "entries");
    default:
      return "";
  }
}

function limitsIn({ minimum, maximum, above, below, multiple }: Limits): string {
  const low = minimum !== null ? `from ${minimum}` : above !== null ? `above ${above}` : "";
  const high = maximum !== null ? `${minimum !== null ? "to" : "up to"} ${maximum}` : below !== null ? `below ${below}` : "";
  return [[low, high].filter(Boolean).join(" "), multiple === null || multiple === 1 ? "" : `in steps of ${multiple}`].filter(Boolean).join(", ");
}

function rangeIn(minimum: number | null, maximum: number | null, word: string): string {
  if (minimum !== null && maximum !== null) return minimum === maximum ? `${minimum} ${word}` : `${minimum} to ${maximum} ${word}`;
  if (minimum !== null && minimum > 0) return minimum === 1 ? "not empty" : `at least ${minimum} ${word}`;
  return maximum === null ? "" : `at most ${maximum} ${word}`;
}

/** A value in one short line. */
export function shortOf(value: unknown, most = 40): string {
  const text = typeof value === "string" && value !== "" ? value : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
