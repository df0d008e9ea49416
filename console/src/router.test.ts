import { expect, test } from "vitest";
import { href, parseRoute } from "./router";

test("a link leads to the route that it was made of", () => {
  const link = href("queues", ["/queue/a b?c", "100%"], { sort: "depth" });

  const { page, rest, query } = parseRoute(link);
  expect([page, rest, query.get("sort")]).toEqual(["queues", ["/queue/a b?c", "100%"], "depth"]);
});

test.each([
  ["", ""],
  ["#/", ""],
  ["#/map", "map"],
  ["#/%E0%A4%A", "%E0%A4%A"],
])("parseRoute(%j) is the page %j", (hash, page) => expect(parseRoute(hash).page).toBe(page));
