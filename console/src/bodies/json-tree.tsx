// A JSON value as a tree that opens and closes.

import { useState } from "preact/hooks";
import type { ComponentChildren } from "preact";

// What is open at first: a large value would make a long page, and many elements.
const OPEN_LEVELS = 3;
const OPEN_ENTRIES = 50;
const ENTRIES = 100;

export function JsonTree({ value }: { value: unknown }) {
  return (
    <div class="json-tree">
      <Node value={value} level={0} />
    </div>
  );
}

function Node({ name, value, level }: { name?: ComponentChildren; value: unknown; level: number }) {
  const label = name === undefined ? null : <span class="json-name">{name}: </span>;
  if (typeof value !== "object" || value === null) {
    return (
      <div class="json-leaf">
        {label}
        <Scalar value={value} />
      </div>
    );
  }
  return <Branch label={label} value={value} level={level} />;
}

function Branch({ label, value, level }: { label: ComponentChildren; value: object; level: number }) {
  const isList = Array.isArray(value);
  const entries = Object.entries(value);
  const [isOpen, setOpen] = useState(level < OPEN_LEVELS && entries.length <= OPEN_ENTRIES);
  const [most, setMost] = useState(ENTRIES);
  if (entries.length === 0) {
    return (
      <div class="json-leaf">
        {label}
        <span class="json-empty">{isList ? "[]" : "{}"}</span>
      </div>
    );
  }
  const count = `${entries.length} ${isList ? (entries.length === 1 ? "item" : "items") : entries.length === 1 ? "field" : "fields"}`;
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span class="json-count">{isList ? `[ ${count} ]` : `{ ${count} }`}</span>
      </summary>
      {isOpen && (
        <div class="json-entries">
          {entries.slice(0, most).map(([key, each]) => (
            <Node key={key} name={key} value={each} level={level + 1} />
          ))}
          {entries.length > most && (
            <button type="button" class="link" onClick={() => setMost(most + 10 * ENTRIES)}>
              {entries.length - most} more
            </button>
          )}
        </div>
      )}
    </details>
  );
}

function Scalar({ value }: { value: unknown }) {
  if (typeof value === "string") return <span class="json-string">{JSON.stringify(value)}</span>;
  if (value === null) return <span class="json-null">null</span>;
  return <span class={`json-${typeof value}`}>{String(value)}</span>;
}
