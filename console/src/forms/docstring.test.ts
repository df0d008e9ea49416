import { expect, it } from "vitest";
import { readDocstring } from "./docstring";

it("tells what a verb does from what its parameters are", () => {
  const told = readDocstring(
    "List jobs, the last accepted\nfirst.\n\nMore of it.\n\nArgs:\n    state: or states,\n        any of which will do.\n    since, until: times.\n    **more (int): others.\n\nRaises:\n    NotFound: there is no such job.",
  );

  expect(told.summary).toBe("List jobs, the last accepted first.");
  expect(told.rest).toBe("More of it.\n\nRaises:\n    NotFound: there is no such job.");
  expect(told.parameters).toEqual({ state: "or states, any of which will do.", since: "times.", until: "times.", more: "others." });
});

it("takes text without sections as it is", () => {
  expect(readDocstring("Count.")).toEqual({ summary: "Count.", rest: "", parameters: {} });
  expect(readDocstring("")).toEqual({ summary: "", rest: "", parameters: {} });
});

it("goes on with text that follows the arguments", () => {
  expect(readDocstring("A.\n\nArgs:\n    x: one.\nB.").rest).toBe("B.");
});
