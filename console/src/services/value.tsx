// A value that a verb gave: rows as a table and a plot, all else as JSON.

import { useState } from "preact/hooks";
import { RowsPlot, RowsTable } from "../jobs/rows-view";
import { columnsOf, isRows, plotOf } from "../jobs/rows";
import { CopyButton } from "../widgets/copy";
import { Views } from "./views";

/** JSON that is longer than this is shown in part: a page of a million lines helps no reader. */
const MOST_SHOWN = 200_000;

export function Json({ value, label }: { value: unknown; label: string }) {
  const text = value === undefined ? "nothing" : JSON.stringify(value, null, 2);
  const isCut = text.length > MOST_SHOWN;
  return (
    <div class="code">
      <pre tabIndex={0} aria-label={label}>{isCut ? `${text.slice(0, MOST_SHOWN)}\n…` : text}</pre>
      <div class="code-tools">
        {isCut && <span class="muted">the first {MOST_SHOWN.toLocaleString("en")} of {text.length.toLocaleString("en")} characters</span>}
        <CopyButton text={text} />
      </div>
    </div>
  );
}

export function ValueView({ value, label }: { value: unknown; label: string }) {
  const isTable = isRows(value);
  const [view, setView] = useState<"table" | "plot" | "json">("table");
  if (!isTable) return <Json value={value} label={label} />;
  const columns = columnsOf(value, null);
  const plot = plotOf(value, columns);
  const shown = view === "plot" && plot === null ? "table" : view;
  return (
    <>
      <Views
        name="Show the result as"
        chosen={shown}
        onChoose={setView}
        views={[["table", "Table"], ...(plot === null ? [] : [["plot", "Plot"] as const]), ["json", "JSON"]]}
      />
      {shown === "table" && <RowsTable label={label} rows={value} columns={columns} />}
      {shown === "plot" && plot !== null && <RowsPlot label={label} rows={value} columns={columns} first={plot} />}
      {shown === "json" && <Json value={value} label={label} />}
    </>
  );
}
