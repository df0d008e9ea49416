// Rows as a table, and as a plot.

import { useState } from "preact/hooks";
import { Table, type Column } from "../widgets/table";
import { count } from "../widgets/format";
import { Plot } from "./plot";
import { cellOf, numberOf, type Plotted, type Row, type RowColumn } from "./rows";

interface Numbered {
  number: number;
  row: Row;
}

export function RowsTable({ label, rows, columns, from = 0 }: { label: string; rows: readonly Row[]; columns: readonly RowColumn[]; from?: number }) {
  const numbered = rows.map((row, number) => ({ number: from + number + 1, row }));
  const shown: Column<Numbered>[] = [
    { key: "#", title: "#", value: ({ number }) => number, numeric: true, secondary: true, about: "Place in the result" },
    ...columns.map(({ name, kind, type }): Column<Numbered> => ({
      key: `column ${name}`,
      title: name,
      value: ({ row }) => (kind === "number" ? numberOf(row[name]) : cellOf(row[name])),
      render: ({ row }) => written(row[name]),
      numeric: kind === "number",
      ...(type ? { about: type } : {}),
    })),
  ];
  return <Table label={label} rows={numbered} columns={shown} rowKey={({ number }) => String(number)} pageSize={50} />;
}

const DIGITS = 6;

function written(value: unknown) {
  const cell = cellOf(value);
  if (cell === null) return "–";
  if (typeof cell === "number" && !Number.isInteger(cell)) {
    const rounded = String(Number(cell.toPrecision(DIGITS)));
    // JSON and what is saved have all digits, too.
    return rounded === String(cell) ? rounded : <span title={String(cell)}>{rounded}</span>;
  }
  // Counts as people write them; ids and years would be harder to read so.
  return typeof cell === "number" && Math.abs(cell) >= 10_000 ? count(cell) : String(cell);
}

export function RowsPlot({ label, rows, columns, first }: { label: string; rows: readonly Row[]; columns: readonly RowColumn[]; first: Plotted }) {
  const [{ x, y }, choose] = useState(first);
  const numbers = columns.filter(({ kind }) => kind === "number");
  const kind = columns.find(({ name }) => name === x)?.kind ?? "other";
  const toggle = (name: string): void => choose({ x, y: y.includes(name) ? y.filter((one) => one !== name) : [...y, name] });
  return (
    <div class="rows-plot">
      <div class="rows-plot-tools">
        <label>
          across
          <select value={x} onChange={(event) => choose({ x: event.currentTarget.value, y: y.filter((name) => name !== event.currentTarget.value) })}>
            {columns.filter((one) => one.kind !== "other").map(({ name }) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <fieldset>
          <legend class="hidden">Columns that are drawn</legend>
          {numbers.filter(({ name }) => name !== x).map(({ name }) => (
            <label key={name}>
              <input type="checkbox" checked={y.includes(name)} onChange={() => toggle(name)} />
              {name}
            </label>
          ))}
        </fieldset>
      </div>
      <Plot
        label={`${label}: ${y.join(", ")} by ${x}`}
        x={rows.map((row) => row[x])}
        isText={kind !== "number" && kind !== "time"}
        isTime={kind === "time"}
        series={y.map((name) => ({ name, values: rows.map((row) => numberOf(row[name])) }))}
      />
    </div>
  );
}
