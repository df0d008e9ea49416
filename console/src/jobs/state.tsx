// How a job does, at a glance.

import { percent } from "../widgets/format";
import { hasEnded, lookOf, wordOf } from "./model";

export function StatePill({ state }: { state: string }) {
  return <span class={`pill ${lookOf(state)}`}>{wordOf(state)}</span>;
}

/** A bar as far as progress is known. */
export function Progress({ state, progress, label }: { state: string; progress: number | null; label: string }) {
  if (progress === null || state === "queued") return hasEnded(state) || state === "queued" ? <span class="muted">–</span> : <span class="muted">unknown</span>;
  return (
    <span class="progress">
      <progress class={lookOf(state)} value={progress} max={1} aria-label={label} />
      <span>{percent(Math.floor(progress * 100) / 100)}</span>
    </span>
  );
}
