"""Shared parts of operators' commands: calling the broker's service, lists and details."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import BadParameter, Option
from typer import Exit as Leave

from nebula.cli.exits import Exit
from nebula.cli.ids import SESSION_PREFIX, is_session_id, only_one
from nebula.cli.options import named_queue
from nebula.cli.render import Output
from nebula.cli.replies import DeadLetters, Page, checked
from nebula.cli.tables import Column, table
from nebula.cli.terminal import ask_yes, is_attended, text
from nebula.errors import RemoteError, SettingsError
from nebula.headers import RESERVED_PREFIXES

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

# Operators' verbs are those of a service: the same calls, rights and errors.
SERVICE = "nebula.broker"

# Rows that the broker returns at once.
_PAGE = 1_000

Limit: TypeAlias = Annotated[int, Option("--limit", "-n", min=1, help="How many.")]
Internal: TypeAlias = Annotated[
    bool, Option("--all", "-a", help="Include Nebula's own, whose names begin with nebula, such as inboxes.")
]
Yes: TypeAlias = Annotated[bool, Option("--yes", "-y", help="Do not ask first. Required off a terminal.")]
Exact: TypeAlias = Annotated[
    bool, Option("--exact", help="The name as it stands: do not read `orders` as /queue/orders.")
]


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows of a list of the broker's.

    Attributes:
        matched: how many there are.
        may_grow: more are had by a higher limit. By rank only the first ones are.
        hidden: the number of internal ones left out.
    """

    rows: list[dict[str, Any]]
    matched: int
    may_grow: bool
    hidden: int = 0


def tell(url: str | None, verb: str, parameters: Mapping[str, Any], timeout: float, form: Any = Any) -> Any:
    """The broker's reply to one of its verbs. Parameters that are None are left out.

    Args:
        form: the type of the answer, see `checked`.

    Raises:
        NebulaError: no answer, or an error.
    """
    from nebula.cli.asking import ask

    given = {name: value for name, value in parameters.items() if value is not None}
    # Omitted instead of null, because an older broker refuses parameters that it does not know.
    answer = ask(url, lambda client: client.call(SERVICE, verb, given, timeout=timeout))
    return checked(form, answer, SERVICE, verb)


def list_all(url: str | None, verb: str, parameters: Mapping[str, Any], limit: int, timeout: float) -> Listed:
    """Up to `limit` rows of one of the broker's lists, page by page.

    Raises:
        NebulaError: no answer, or an error.
    """
    from nebula.cli.asking import ask

    given = {name: value for name, value in parameters.items() if value is not None}

    async def read(client: Client) -> Listed:
        rows: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            # A list of the broker comes in pages, so that no reply grows without bound.
            wanted = given | after | {"limit": min(_PAGE, limit - len(rows))}
            page = checked(Page, await client.call(SERVICE, verb, wanted, timeout=timeout), SERVICE, verb)
            rows += page["rows"]
            goes_on_after = page.get("after")
            # A page without rows is the last one, whatever it says.
            if goes_on_after is None or not page["rows"] or len(rows) >= limit:
                # A list by name can continue after its last row. By rank there is only the first page,
                # because ranks change.
                has_more = page["matched"] > len(rows)
                may_grow = has_more and len(rows) >= limit and (goes_on_after is not None or limit < _PAGE)
                return Listed(rows, page["matched"], may_grow=may_grow, hidden=page.get("hidden", 0))
            after = {"after": goes_on_after}

    return ask(url, read)


def show_list(
    output: Output, columns: Sequence[Column], listed: Listed, what: str, *, has_full_ids: bool = False
) -> None:
    """A table, or one line of JSON; each says how many there are."""
    rows, matched, hidden = listed.rows, listed.matched, listed.hidden
    if not output.is_for_people:
        output.json_line({"rows": rows, "matched": matched} | ({"hidden": hidden} if hidden else {}))
        return
    output.show(table(columns, rows, has_full_ids=has_full_ids) if rows else f"no {what}")
    if matched > len(rows):
        way = "--limit shows more" if listed.may_grow else "an order has no more, --order name shows all"
        output.show(f"{len(rows):,} of {matched:,} {what}; {way}")
    if hidden:
        output.show(text(f"internal {what} hidden: {hidden:,}; --all shows them", "dim"))


def show_details(
    output: Output,
    details: Mapping[str, Any],
    facts: Sequence[Column],
    subscriptions: Sequence[Column],
    *,
    has_full_ids: bool = False,
) -> None:
    """One thing with its subscriptions, or one line of JSON."""
    if not output.is_for_people:
        output.json_line(details)
        return
    # Without facts that have no value, such as limits.
    output.value({fact.heading: shown for fact in facts if (shown := fact.text(details))})
    if details["subscriptions"]:
        output.show("", table(subscriptions, details["subscriptions"], has_full_ids=has_full_ids))


def is_internal_wanted(pattern: str, *, is_asked: bool) -> bool:
    """Whether to list internal destinations: on request, or if the pattern names them."""
    return is_asked or pattern.startswith(RESERVED_PREFIXES)


def make_sure(question: str, *, is_sure: bool) -> None:
    """Ask a person; leave if the answer is no.

    Raises:
        SettingsError: there is no terminal to ask on, and --yes is not given.
    """
    if is_sure:
        return
    if not is_attended():
        # A question would wait for ever, or take a pipe's next line for its answer (docs/decisions/0042).
        raise SettingsError(f"{question} There is no terminal to ask on: give --yes")
    if not ask_yes(question):
        # Not 0, because nothing was done.
        raise Leave(Exit.FAILED)


def find_session(url: str | None, name: str, timeout: float, verb: str = "connections.list") -> str:
    """The session with a name, or with an id that begins with it.

    Args:
        url: of the broker.
        name: as the user gave it.
        timeout: seconds for the answer.
        verb: lists where to look.

    Raises:
        BadParameter: several sessions match.
        NebulaError: no answer, or an error.
    """
    # A whole id, or a `client-id`, which is never abbreviated (docs/decisions/0050).
    if not SESSION_PREFIX.fullmatch(name):
        return name
    try:
        page = tell(url, verb, {"pattern": f"{name}*"}, timeout, Page)
    except RemoteError as error:
        # Without the right to list, the requested verb reports an error for the given name.
        if error.code == "not-allowed":
            return name
        raise
    sessions = [str(row.get("session")) for row in page["rows"]]
    # A client may have chosen that name.
    # An unknown name is sent unchanged, so that the broker's error names it.
    return name if name in sessions else only_one(name, filter(is_session_id, sessions)) or name


async def _has_queue(client: Client, name: str, timeout: float) -> bool:
    try:
        await client.call(SERVICE, "queue.show", {"queue": name}, timeout=timeout)
    except RemoteError as error:
        # Without the right to look, the requested verb reports the error, for the usual name.
        if error.code in ("not-found", "not-allowed"):
            return False
        raise
    return True


async def _has_dead_letters(client: Client, source: str, timeout: float) -> bool:
    wanted = {"source": source, "limit": 1}
    try:
        letters = checked(
            DeadLetters, await client.call(SERVICE, "dlq.list", wanted, timeout=timeout), SERVICE, "dlq.list"
        )
    except RemoteError as error:
        if error.code == "not-allowed":
            return False
        raise
    return bool(letters["rows"])


def find_queue(url: str | None, name: str, timeout: float, *, is_exact: bool) -> str:
    """The queue that a name means: `orders` is `/queue/orders`.

    If only a queue without the prefix exists, which other clients may have made, it is that one.

    Raises:
        BadParameter: there are both; or half a prefix is missing.
        NebulaError: no answer, or an error.
    """
    return _found(url, name, timeout, _has_queue, is_exact=is_exact)


def find_source(url: str | None, name: str | None, timeout: float, *, is_exact: bool) -> str | None:
    """Where dead letters were sent to, by a name that is read as that of `find_queue`."""
    if name is None:
        return None
    return _found(url, name, timeout, _has_dead_letters, is_exact=is_exact)


def _found(
    url: str | None,
    name: str,
    timeout: float,
    is_there: Callable[[Client, str, float], Awaitable[bool]],
    *,
    is_exact: bool,
) -> str:
    # Whole names cost no request.
    if is_exact or name.startswith("/"):
        return name
    usual = str(named_queue(name))
    from nebula.cli.asking import ask

    async def look(client: Client) -> tuple[bool, bool]:
        # Both requests share one connection (docs/decisions/0042).
        return await is_there(client, usual, timeout), await is_there(client, name, timeout)

    has_usual, has_bare = ask(url, look)
    if has_usual and has_bare:
        raise BadParameter(f"there are two: write {usual}, or --exact for {name} without a prefix")
    return name if has_bare else usual
