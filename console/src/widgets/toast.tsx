// Short messages about what was done.

import { signal } from "@preact/signals";
import { asNebulaError } from "./poll";

interface Toast {
  id: number;
  text: string;
  kind: "done" | "failed";
}

const toasts = signal<readonly Toast[]>([]);
let last = 0;

/** Say what was done. */
export function toast(text: string, kind: Toast["kind"] = "done"): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === "done" ? 5_000 : 12_000);
}

/** Do something, and say that it was done or why it failed. Resolves to whether it was done. */
export async function attempt(act: () => Promise<unknown>, done: string | (() => string)): Promise<boolean> {
  try {
    await act();
    toast(typeof done === "string" ? done : done());
    return true;
  } catch (error) {
    const { code, message } = asNebulaError(error);
    toast(`${message} (${code})`, "failed");
    return false;
  }
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Where toasts appear; the shell has one. */
export function ToastHost() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, text, kind }) => (
        <div key={id} class={`toast ${kind}`}>
          <span>{text}</span>
          <button type="button" class="icon" aria-label="Dismiss" onClick={() => dismiss(id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
