// The parts of a Python docstring: what a verb does, and what each of its parameters is.

export interface Documentation {
  /** Its first paragraph. */
  summary: string;
  /** What follows, without the sections on arguments. */
  rest: string;
  /** By the name of the parameter. */
  parameters: Record<string, string>;
}

const SECTION = /^(Args|Arguments|Parameters|Returns|Yields|Raises|Example|Examples|Note|Notes|Attributes):\s*$/;
const TOLD_ELSEWHERE = new Set(["Args", "Arguments", "Parameters"]);
const ENTRY = /^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\([^)]*\))?:\s*(.*)$/;

/** Read a docstring in Google's style, with its indentation cleaned (`inspect.getdoc`). */
export function readDocstring(text: string): Documentation {
  const parameters: Record<string, string> = {};
  const told: string[] = [];
  let isOfParameters = false;
  let names: string[] = [];
  for (const line of text.split("\n")) {
    const section = SECTION.exec(line);
    if (section !== null) {
      isOfParameters = TOLD_ELSEWHERE.has(section[1] ?? "");
      if (!isOfParameters) told.push(line);
    } else if (!isOfParameters || (line.trim() !== "" && !line.startsWith(" "))) {
      isOfParameters = false;
      told.push(line);
    } else if (line.trim() !== "") {
      const indent = line.length - line.trimStart().length;
      const entry = indent <= 4 ? ENTRY.exec(line.trim()) : null;
      if (entry !== null) {
        names = (entry[1] ?? "").split(",").map((name) => name.trim().replace(/^\*+/, ""));
        for (const name of names) parameters[name] = entry[2] ?? "";
      } else {
        for (const name of names) parameters[name] = `${parameters[name] ?? ""} ${line.trim()}`.trim();
      }
    }
  }
  const [summary = "", ...rest] = told.join("\n").trim().split(/\n\s*\n/);
  return { summary: summary.replaceAll("\n", " "), rest: rest.join("\n\n"), parameters };
}
