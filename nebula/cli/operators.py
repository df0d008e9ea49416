"""What the commands for operators have in common: asking the broker's own service, showing what it tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Exit as Leave
from typer import Option

from nebula.cli.answers import Page, checked
from nebula.cli.exits import Exit
from nebula.cli.render import Output
from nebula.cli.tables import Column, table
from nebula.cli.terminal import ask_yes, is_attended

if TYPE_CHECKING:
    from nebula.rpc.client import Client

SERVICE = "nebula.broker"

# What the broker tells at once.
_PAGE = 1_000

Limit: TypeAlias = Annotated[int, Option("--limit", "-n", min=1, help="How many.")]
All: TypeAlias = Annotated[bool, Option("--all", help="All of them.")]
Yes: TypeAlias = Annotated[
    bool, Option("--yes", "-y", help="Do not ask first. Off a terminal nothing is asked.")
]


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows of a list of the broker's.

    Attributes:
        matched: how many there are.
        may_grow: more are had by a higher limit. By rank only the first ones are.
    """

    rows: list[dict[str, Any]]
    matched: int
    may_grow: bool


def tell(url: str | None, verb: str, parameters: Mapping[str, Any], timeout: float, form: Any = Any) -> Any:
    """What the broker answers to one of its verbs. Parameters that are None are left to it.

    Args:
        form: the type of the answer, see `checked`.

    Raises:
        NebulaError: there is no answer, or it is an error.
    """
    from nebula.cli.asking import ask

    given = {name: value for name, value in parameters.items() if value is not None}
    answer = ask(url, lambda client: client.call(SERVICE, verb, given, timeout=timeout))
    return checked(form, answer, SERVICE, verb)


def list_all(url: str | None, verb: str, parameters: Mapping[str, Any], limit: int, timeout: float) -> Listed:
    """Up to `limit` rows of one of the broker's lists, page by page.

    Raises:
        NebulaError: there is no answer, or it is an error.
    """
    from nebula.cli.asking import ask

    given = {name: value for name, value in parameters.items() if value is not None}

    async def read(client: Client) -> Listed:
        rows: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            wanted = given | after | {"limit": min(_PAGE, limit - len(rows))}
            page = checked(Page, await client.call(SERVICE, verb, wanted, timeout=timeout), SERVICE, verb)
            rows += page["rows"]
            goes_on_after = page.get("after")
            # A page without rows is the last one, whatever it says.
            if goes_on_after is None or not page["rows"] or len(rows) >= limit:
                has_more = page["matched"] > len(rows)
                may_grow = has_more and len(rows) >= limit and (goes_on_after is not None or limit < _PAGE)
                return Listed(rows, page["matched"], may_grow=may_grow)
            after = {"after": goes_on_after}

    return ask(url, read)


def show_list(output: Output, columns: Sequence[Column], listed: Listed, what: str) -> None:
    """A table, or one line of JSON; each says how many there are."""
    rows, matched = listed.rows, listed.matched
    if not output.is_for_people:
        output.json_line({"rows": rows, "matched": matched})
        return
    output.show(table(columns, rows) if rows else f"no {what}")
    if matched > len(rows):
        way = "--limit shows more" if listed.may_grow else "an order has no more, --order name shows all"
        output.show(f"{len(rows):,} of {matched:,} {what}; {way}")


def show_details(
    output: Output, details: Mapping[str, Any], facts: Sequence[Column], subscriptions: Sequence[Column]
) -> None:
    """One thing with its subscriptions, or one line of JSON."""
    if not output.is_for_people:
        output.json_line(details)
        return
    output.value({fact.heading: text for fact in facts if (text := fact.text(details))})
    if details["subscriptions"]:
        output.show("", table(subscriptions, details["subscriptions"]))


def make_sure(question: str, *, is_sure: bool) -> None:
    """Ask a person; leave if the answer is no. Programs have made up their minds."""
    if not is_sure and is_attended() and not ask_yes(question):
        raise Leave(Exit.FAILED)


def queue_name(name: str) -> str:
    """`orders` is `/queue/orders`."""
    return name if name.startswith("/") else f"/queue/{name}"
