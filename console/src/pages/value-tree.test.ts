import { describe, expect, it } from "vitest";
import { pathsOf, ValueTree } from "./value-tree";

function message(destination: string, text: string, headers: Record<string, string> = {}) {
  return { headers: { destination, ...headers }, binaryBody: new TextEncoder().encode(text) };
}

function shown(tree: ValueTree, filter = ""): string[] {
  return tree.rows(filter).map(({ node }) => `${"  ".repeat(node.level)}${node.name}${node.value === null ? "" : " ="}`);
}

describe("ValueTree", () => {
  it("has a node for each part of a name, in the order of numbers", () => {
    const tree = new ValueTree();
    for (const name of ["X/EGM.Q.GM10", "X/EGM.Q.GM9", "X/site"]) tree.take(message(name, "1"), 0);

    expect(shown(tree)).toEqual(["X", "  EGM", "    Q", "      GM9 =", "      GM10 =", "  site ="]);
    expect(tree.size).toBe(3);
  });

  it("a value may be the beginning of the name of others", () => {
    const tree = new ValueTree();
    tree.take(message("X/a", "1"), 0);
    tree.take(message("X/a.b", "2"), 0);

    expect(shown(tree)).toEqual(["X", "  a =", "  a", "    b ="]);
  });

  it("knows when the snapshot is complete, and counts changes from then on", () => {
    const tree = new ValueTree();
    tree.take(message("X/a", "1"), 0);
    expect(tree.isComplete).toBe(false);
    tree.take(message("X/b", "1", { snapshot: "end" }), 0);
    tree.take(message("X/a", "2"), 0);

    expect([tree.isComplete, tree.changes, tree.find("X/a")?.changes, tree.find("X/b")?.changes]).toEqual([true, 1, 1, 0]);
  });

  it("an empty message to the glob marks the end, and deletes nothing", () => {
    const tree = new ValueTree();
    tree.take(message("X/**", "", { snapshot: "end" }), 0);

    expect([tree.isComplete, tree.size]).toEqual([true, 0]);
  });

  it("deleted values go, with the nodes that lead to nothing else", () => {
    const tree = new ValueTree();
    tree.take(message("X/a.b.c", "1"), 0);
    tree.take(message("X/a.d", "1"), 0);
    tree.take(message("X/a.b.c", ""), 0);

    expect(shown(tree)).toEqual(["X", "  a", "    d ="]);
    tree.take({ headers: { destination: "X/a.d" }, binaryBody: Uint8Array.of(2, 10, 0, 0) }, 0);
    expect(shown(tree)).toEqual([]);
  });

  it("shows the nodes that were opened", () => {
    const tree = new ValueTree();
    for (let number = 0; number < 20; number += 1) tree.take(message(`X/many.${number}`, "1"), 0);
    expect(shown(tree)).toEqual(["X", "  many"]);

    const many = tree.rows("")[1]!.node;
    tree.toggle(many, true);
    expect(shown(tree)).toHaveLength(22);
    expect(tree.rows("")[2]).toMatchObject({ place: 1, siblings: 20 });
    tree.toggle(many, false);
    expect(shown(tree)).toHaveLength(2);
  });

  it("a filter shows the way to what matches", () => {
    const tree = new ValueTree();
    for (let number = 0; number < 20; number += 1) tree.take(message(`X/many.${number}.Status`, "1"), 0);

    expect(shown(tree, ".1.stat")).toEqual(["X", "  many", "    1", "      Status ="]);
  });

  it("forgets everything for a new connection", () => {
    const tree = new ValueTree();
    tree.take(message("X/a", "1", { snapshot: "end" }), 0);
    tree.clear();

    expect([tree.size, tree.isComplete, shown(tree)]).toEqual([0, false, []]);
  });
});

it("parts of names end with dots and slashes", () => {
  expect(pathsOf("X/EGM.GM1.")).toEqual(["X/", "X/EGM.", "X/EGM.GM1."]);
  expect(pathsOf("weather")).toEqual(["weather"]);
});
