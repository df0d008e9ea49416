import { fireEvent, render, screen, within } from "@testing-library/preact";
import { afterEach, expect, test, vi } from "vitest";
import { cleanup } from "@testing-library/preact";
import { arrange, Table, type Column } from "./table";

afterEach(cleanup);

interface Row {
  name: string;
  depth: number | null;
}

const COLUMNS: Column<Row>[] = [
  { key: "name", title: "Name", value: (row) => row.name },
  { key: "depth", title: "Depth", value: (row) => row.depth, numeric: true },
];
const ROWS: Row[] = [
  { name: "queue 10", depth: 5 },
  { name: "queue 9", depth: null },
  { name: "Orders", depth: 70 },
];

const names = (rows: readonly Row[]) => rows.map(({ name }) => name);
const shown = () =>
  within(screen.getAllByRole("rowgroup")[1]!)
    .getAllByRole("row")
    .map((row) => within(row).getAllByRole("cell")[0]!.textContent);

test("names are sorted as people count, and what is unknown comes last either way", () => {
  expect(names(arrange(ROWS, COLUMNS, { key: "name", descending: false }, ""))).toEqual([
    "Orders",
    "queue 9",
    "queue 10",
  ]);
  for (const descending of [true, false]) {
    expect(names(arrange(ROWS, COLUMNS, { key: "depth", descending }, "")).at(-1)).toBe("queue 9");
  }
});

test("all words of the filter have to be somewhere in a row", () => {
  expect(names(arrange(ROWS, COLUMNS, null, "QUEUE 5"))).toEqual(["queue 10"]);
});

test("a click on a head sorts, and a second one turns it round", () => {
  render(<Table label="Queues" rows={ROWS} columns={COLUMNS} rowKey={(row) => row.name} />);

  fireEvent.click(screen.getByRole("button", { name: "Depth" }));
  expect(shown()).toEqual(["Orders", "queue 10", "queue 9"]);
  expect(screen.getByRole("columnheader", { name: "Depth" }).getAttribute("aria-sort")).toBe("descending");
  fireEvent.click(screen.getByRole("button", { name: "Depth" }));
  expect(shown()).toEqual(["queue 10", "Orders", "queue 9"]);
});

test("ten thousand rows are shown by pages", () => {
  const rows = Array.from({ length: 10_000 }, (_, number) => ({ name: `queue ${number}`, depth: number }));
  render(<Table label="Queues" rows={rows} columns={COLUMNS} rowKey={(row) => row.name} />);

  expect(shown()).toHaveLength(50);
  fireEvent.click(screen.getByRole("button", { name: "Last page" }));
  expect(shown().at(-1)).toBe("queue 9999");
  expect(screen.getByText(/9,951–10,000 of 10,000/)).toBeTruthy();
});

test("rows that the broker pages are shown as they are", () => {
  const onPage = vi.fn();
  const onSort = vi.fn();
  render(
    <Table
      label="Queues"
      rows={ROWS}
      columns={COLUMNS}
      rowKey={(row) => row.name}
      pageSize={3}
      remote={{ total: 9, page: 1, sort: null, filter: "", onPage, onSort }}
    />,
  );

  expect(shown()).toEqual(names(ROWS));
  fireEvent.click(screen.getByRole("button", { name: "Next page" }));
  expect(onPage).toHaveBeenCalledWith(2);
  fireEvent.click(screen.getByRole("button", { name: "Name" }));
  expect(onSort).toHaveBeenCalledWith({ key: "name", descending: false });
});
