"""State tables: which frame is legal in which state, and what follows from it.

The client's side (`nebula.stomp.client_states`) and the server's (`nebula.broker.protocol.states`) are each
one list of `Row`s. Everything about states is read from it: what is legal, what a frame needs, which
state is next, and the text of a refusal. The diagrams in docs/reference/states.md are drawn from the same
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from nebula.errors import RemoteProtocolError
from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import Frame

S = TypeVar("S", bound=Enum)


class Need(NamedTuple):
    """A header that a frame must have, and that must not be empty.

    Attributes:
        header: its name.
        when: in which versions; by default in all.
        instead: a header that replaces this one and all others of its row.
    """

    header: str
    when: Callable[[Dialect], bool] = lambda _: True
    instead: str | None = None


class Row(NamedTuple, Generic[S]):
    """What one frame, or one event, does in one state.

    Attributes:
        state: where the connection is.
        command: of the frame; or an event that is not a frame, in lower case.
        handler: name of the method that handles it, in the class that the table is for; empty: no method
            does.
        next_state: where the connection is afterwards.
        needs: headers that the frame must have.
        clause: what makes it legal.
    """

    state: S
    command: str
    handler: str
    next_state: S
    needs: tuple[Need, ...]
    clause: str


class Rule(NamedTuple, Generic[S]):
    """A row, as it is looked up for each frame, in one version.

    Attributes:
        handler: name of the method.
        required: headers that must not be missing or empty.
        instead: a header that replaces all of those; None: no header does.
        next_state: None where the state stays.
    """

    handler: str
    required: tuple[str, ...]
    instead: str | None
    next_state: S | None

    def check(self, frame: Frame) -> None:
        """Refuse a frame without its required headers (A.6).

        Raises:
            RemoteProtocolError: it names the command and the header.
        """
        fields = frame.headers
        for name in self.required:
            value = fields.get(name)
            if not value and not (self.instead and fields.get(self.instead)):
                what = "needs the header" if value is None else "has an empty header"
                raise RemoteProtocolError(f"{frame.command} {what} {name}")


class StateTable(Generic[S]):
    """The rows of one side of a connection. The first row's state is where a connection begins.

    Attributes:
        rows: as given.
        initial: where a connection begins.
    """

    def __init__(self, rows: Sequence[Row[S]]) -> None:
        self.rows = tuple(rows)
        self.initial = rows[0].state
        # Events are rare, so they are looked up here; frames are looked up in the mappings of `rules`.
        self._next = {(row.state, row.command): row.next_state for row in rows}
        self._live = frozenset(row.state for row in rows)
        # A connection looks up its frames in one mapping, which only a change of state or version replaces.
        # States, dialects and exemptions are few, so all connections share the same handful of mappings.
        self.rules = cache(self._rules)

    def _rules(
        self, state: S, dialect: Dialect, exempt: frozenset[str] = frozenset()
    ) -> Mapping[str, Rule[S]]:
        """The frames that are legal in a state, by command. Made once, and shared by all connections.

        A client's table has both directions. They have no command in common, and a parser lets only those of
        its peer through, so one mapping serves both.

        Args:
            dialect: what was negotiated.
            exempt: headers that may be missing nevertheless.
        """
        # An event, in lower case, is no frame.
        rows = (row for row in self.rows if row.state is state and row.command.isupper())
        return {row.command: _rule(row, dialect, exempt) for row in rows}

    def after(self, state: S, event: str) -> S:
        """The state after an event; where the table has no such row, it stays."""
        return self._next.get((state, event), state)

    def is_final(self, state: S) -> bool:
        """Whether nothing is legal in this state, and nothing leads out of it."""
        return state not in self._live

    def refusal(self, state: S, command: str) -> str:
        """Why a frame without a row in this state is refused (A.11.4); a state's value is the reason."""
        return f"{command} {state.value}"


def every(states: Iterable[S], event: str, next_state: S, clause: str) -> list[Row[S]]:
    """One row for each of these states: an event that ends all of them."""
    return [Row(state, event, "", next_state, (), clause) for state in states]


def _rule(row: Row[S], dialect: Dialect, exempt: frozenset[str]) -> Rule[S]:
    needs = [need for need in row.needs if need.when(dialect) and need.header not in exempt]
    instead = next((need.instead for need in needs if need.instead), None)
    # None for the common case, so that a frame that changes nothing costs one comparison.
    next_state = None if row.next_state is row.state else row.next_state
    return Rule(row.handler, tuple(need.header for need in needs), instead, next_state)
