"""Tables in pages of the documentation that are renewed from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Table = Sequence[Sequence[str]]


def markdown(table: Table) -> str:
    """A table, its heading first, as Markdown."""
    heading, *rows = table
    lines = [heading, ["---", *(["---:"] * (len(heading) - 1))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def renewed(page: str, shown: Mapping[str, str]) -> str:
    """The page with these tables in their places, which are marked by comments.

    Raises:
        ValueError: the page has no such place.
    """
    for name, table in shown.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, found, rest = page.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"the page has no place for the table {name}: <!-- {name} --> and {end}")
        page = f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    return page
