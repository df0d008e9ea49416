// Bytes as people read them.

/** Lines of a hex dump: offset, sixteen bytes, and what of them is ASCII. */
export function hexLines(data: Uint8Array, most = 4_096): string[] {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(data.length, most); at += 16) {
    const row = Array.from(data.subarray(at, Math.min(at + 16, most)));
    const bytes = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const halves = [bytes.slice(0, 8).join(" "), bytes.slice(8).join(" ")].join("  ").padEnd(48);
    const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${halves}  ${text}`);
  }
  return lines;
}

/** The bytes of hexadecimal digits, with or without white space; null: they are none. */
export function bytesOfHex(text: string): Uint8Array<ArrayBuffer> | null {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 !== 0 || /[^0-9a-fA-F]/.test(digits)) return null;
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => Number.parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

/** Hexadecimal digits for editing: sixteen bytes a line. */
export function hexText(data: Uint8Array): string {
  const bytes = Array.from(data, (byte) => byte.toString(16).padStart(2, "0"));
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) lines.push(bytes.slice(at, at + 16).join(" "));
  return lines.join("\n");
}

/** The bytes of Base64, as the broker's verbs send them. */
export function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

/** The text that bytes are; null: they are not UTF-8, or have control characters that no text has. */
export function textOf(data: Uint8Array): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}
