// Text to take away: a block with a button that copies it.

import { useEffect, useState } from "preact/hooks";

/** Copy text; false where the browser does not let us. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** The clipboard is there only for pages of https and of this machine. */
function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [told, setTold] = useState("");
  useEffect(() => {
    if (told === "") return;
    const timer = setTimeout(() => setTold(""), 2_000);
    return () => clearTimeout(timer);
  }, [told]);
  return (
    <button type="button" class="small" onClick={() => void copyText(text).then((is) => setTold(is ? "Copied" : "Not copied"))}>
      <span aria-live="polite">{told || label}</span>
    </button>
  );
}
