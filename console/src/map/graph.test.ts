import { expect, test } from "vitest";
import { FlowReader, grouped, picture, type Rated } from "./graph";

const flow = (sender: string, destination: string, receivers: string[], rate: number | null): Rated => ({
  sender,
  destination,
  receivers,
  rate,
  messages: 0,
});

test("rates are those between two readings; a count that fell began anew", () => {
  const reader = new FlowReader();
  const row = { sender: "a", destination: "/queue/q", receivers: [] };

  expect(reader.read([{ ...row, messages: 10 }], 100)[0]!.rate).toBeNull();
  expect(reader.read([{ ...row, messages: 30 }], 104)[0]!.rate).toBe(5);
  expect(reader.read([{ ...row, messages: 1 }], 106)[0]!.rate).toBeNull();
});

test("many destinations that are alike are drawn as one", () => {
  const machines = ["1", "2", "3", "4"].map((each) => `X/EGM.Q.${each}.Meter`);

  const names = grouped([...machines, "X/EGM.Q.1.Status", "/queue/orders"]);

  expect(new Set(machines.map((each) => names.get(each)))).toEqual(new Set(["X/EGM.Q.*.Meter"]));
  expect(names.get("X/EGM.Q.1.Status")).toBe("X/EGM.Q.1.Status");
  expect(names.get("/queue/orders")).toBe("/queue/orders");
});

test("a picture has a node for each in its column, and lines with the rates added up", () => {
  const drawn = picture(
    [flow("till", "/queue/orders", ["shop"], 2), flow("web", "/queue/orders", ["shop"], 3)],
    900,
  );

  expect(drawn.nodes.map(({ key, rate }) => [key, rate])).toEqual([
    ["sender:till", 2],
    ["sender:web", 3],
    ["destination:/queue/orders", 5],
    ["receiver:shop", 5],
  ]);
  expect(drawn.edges.find(({ to }) => to === "receiver:shop")?.rate).toBe(5);
});

test("what has no place is counted, and the busiest stay", () => {
  const flows = Array.from({ length: 5 }, (_, number) => flow(`s${number}`, "/queue/q", [], number));

  const drawn = picture(flows, 900, 3);

  expect(drawn.left).toBe(2);
  expect(drawn.nodes.filter(({ column }) => column === "sender").map(({ name }) => name)).toEqual(["s2", "s3", "s4"]);
  expect(drawn.edges.every(({ from }) => !from.endsWith("s0"))).toBe(true);
});
