// Modal dialogs, on the browser's own <dialog>: it traps the focus, and Escape closes it.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

export interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Buttons at the foot. */
  actions?: ComponentChildren;
  wide?: boolean;
}

/** A dialog that is open while it is rendered. */
export function Dialog({ title, onClose, children, actions, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      element.current?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={wide ? "dialog wide" : "dialog"}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === element.current && onClose()}
    >
      <div class="dialog-box">
        <header>
          <h2 id={heading}>{title}</h2>
          <button type="button" class="icon" aria-label="Close" onClick={onClose}>
            ✕
          </button>
        </header>
        <div class="dialog-body">{children}</div>
        {actions !== undefined && <footer>{actions}</footer>}
      </div>
    </dialog>
  );
}

interface Question {
  title: string;
  body: ComponentChildren;
  /** What the button says: "Purge". */
  action: string;
  danger?: boolean;
}

const asked = signal<(Question & { answer: (is: boolean) => void }) | null>(null);

/** Ask before something is done: `if (await confirm({ title, body, action: "Purge", danger: true })) ...` */
export function confirm(question: Question): Promise<boolean> {
  asked.value?.answer(false);
  return new Promise((resolve) => {
    asked.value = {
      ...question,
      answer: (is) => {
        asked.value = null;
        resolve(is);
      },
    };
  });
}

/** Where `confirm` appears; the shell has one. */
export function ConfirmHost() {
  const question = asked.value;
  if (question === null) return null;
  return (
    <Dialog
      title={question.title}
      onClose={() => question.answer(false)}
      actions={
        <>
          <button type="button" onClick={() => question.answer(false)}>
            Cancel
          </button>
          <button
            type="button"
            class={question.danger ? "danger" : "primary"}
            onClick={() => question.answer(true)}
          >
            {question.action}
          </button>
        </>
      }
    >
      {question.body}
    </Dialog>
  );
}
