// What is shown where there is nothing, or no right to see it, or an error.

import type { ComponentChildren } from "preact";
import type { NebulaError } from "../session";
import type { Polled } from "./poll";

/** Nothing is there, and what that means. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children !== undefined && <div class="muted">{children}</div>}
    </div>
  );
}

/** A call failed. */
export function ErrorNote({ error, onRetry }: { error: NebulaError; onRetry?: () => void }) {
  return (
    <div class="note failed" role="alert">
      <span>
        <strong>{error.code}</strong> {error.message}
      </span>
      {onRetry !== undefined && (
        <button type="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** The principal lacks the right to a page. */
export function NotAllowed({ verb }: { verb: string }) {
  return (
    <Empty title="You may not see this">
      It needs the right to call <code>{verb}</code> of the broker. An operator can grant it.
    </Empty>
  );
}

/** What was polled, once it is there; an error above it where the last attempt failed. */
export function Loaded<T>({ polled, children }: { polled: Polled<T>; children: (data: T) => ComponentChildren }) {
  return (
    <>
      {polled.error !== null && polled.error.code !== "lost" && (
        <ErrorNote error={polled.error} onRetry={polled.refresh} />
      )}
      {polled.data !== null ? (
        children(polled.data)
      ) : polled.error === null ? (
        <p class="loading" role="status">
          Loading …
        </p>
      ) : null}
    </>
  );
}

/** The head of a page: its title, a line about it, and buttons. */
export function PageHead({
  title,
  about,
  children,
}: {
  title: ComponentChildren;
  about?: ComponentChildren;
  children?: ComponentChildren;
}) {
  return (
    <div class="page-head">
      <div>
        <h1>{title}</h1>
        {about !== undefined && <p class="muted">{about}</p>}
      </div>
      {children !== undefined && <div class="actions">{children}</div>}
    </div>
  );
}
