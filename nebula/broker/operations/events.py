"""The operator's log of what peers cause: each event with its facts, and few lines whatever they do.

Never a body, a passcode or a key; of what a peer has chosen, names and ids alone, cut.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from nebula.broker.core.account import Account
from nebula.broker.core.messages import Verdict
from nebula.broker.core.notes import MESSAGES_DROPPED, Note
from nebula.logs import get_logger

_log = get_logger("nebula.broker")

# Of one kind so many in a second are told whole; the others are counted. Ten thousand connects a second
# would take longer to log than to serve.
_INTERVAL_SECONDS = 1.0
_MOST_OF_ONE = 5

# What a peer has chosen: a name of a destination may be as long as a header line.
_MOST_CHARACTERS = 200

_QUOTE: Final = re.compile("[\"']")

# Each of them is a refusal too, and told as that.
_TOLD_ELSEWHERE: Final = frozenset({Verdict.INVALID.value, Verdict.UNAUTHORISED.value})


class EventLog:
    """Tells what happens, at a pace that a disk and a reader can keep up with.

    Args:
        account: where the core notes what happened.

    Attributes:
        counts: how often each event happened that is told at once, told or not.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.counts: Counter[str] = Counter()
        self._told: Counter[tuple[str, bool]] = Counter()
        self._dropped: Counter[str] = Counter()
        self._next_look = 0.0

    def debug(self, event: str, **facts: object) -> None:
        """A frequent event, such as a client that connects or disconnects."""
        if self._has_room_for(event, is_ordinary=True):
            _log.debug(event, **_cut(facts))

    def info(self, event: str, **facts: object) -> None:
        """Something that is no trouble, by itself."""
        if self._has_room_for(event):
            _log.info(event, **_cut(facts))

    def warning(self, event: str, **facts: object) -> None:
        """Something that an operator may have to look after."""
        if self._has_room_for(event):
            _log.warning(event, **_cut(facts))

    def exception(self, event: str, **facts: object) -> None:
        """A bug of ours, with the traceback of the exception at hand."""
        if self._has_room_for(event):
            _log.exception(event, **_cut(facts))

    def advance(self, now: float) -> None:
        """Once a second, tell what was noted and counted since. Call it more often than that."""
        if now >= self._next_look:
            self._next_look = now + _INTERVAL_SECONDS
            self.flush()

    def flush(self) -> None:
        """Tell it now: there will be no later."""
        self._tell_refusals()
        self._tell_unheard()
        self._tell_notes()
        for (event, is_ordinary), count in self._told.items():
            if count > _MOST_OF_ONE:
                tell = _log.debug if is_ordinary else _log.warning
                tell("further events", what=event, count=count - _MOST_OF_ONE)
        self._told.clear()

    def _has_room_for(self, event: str, *, is_ordinary: bool = False) -> bool:
        self.counts[event] += 1
        self._told[event, is_ordinary] += 1
        return self._told[event, is_ordinary] <= _MOST_OF_ONE

    def _tell_refusals(self) -> None:
        """What the peers themselves were not told (D.5)."""
        refusals, uncounted = self._account.take_refusals()
        for refusal in refusals:
            _log.warning(
                "request refused",
                **_cut(
                    {
                        "principal": refusal.principal,
                        "session": refusal.session,
                        "what": refusal.what,
                        "destination": refusal.destination,
                        "verdict": refusal.verdict,
                    }
                ),
            )
        if uncounted:
            _log.warning("further requests refused", count=uncounted)

    def _tell_unheard(self) -> None:
        """Log rejected SENDs without a receipt, whose senders do not know of it."""
        for refusal in self._account.take_unheard():
            _log.warning(
                "send rejected without receipt",
                **_cut(
                    {
                        "principal": refusal.principal,
                        "session": refusal.session,
                        "destination": refusal.destination,
                        "reason": refusal.verdict,
                    }
                ),
            )

    def _tell_notes(self) -> None:
        notes = self._account.notes.take()
        # The counters know of all that was dropped, the notes of one of each kind.
        dropped = self._account.dropped - self._dropped
        self._dropped = self._account.dropped.copy()
        for reason, count in dropped.items():
            if reason not in _TOLD_ELSEWHERE:
                note = notes.pop((MESSAGES_DROPPED, reason), None) or Note(0, "", "", "")
                note.count = count
                _tell(MESSAGES_DROPPED, reason, note)
        for (what, reason), note in notes.items():
            if what != MESSAGES_DROPPED:
                _tell(what, reason, note)


def _tell(what: str, reason: str, note: Note) -> None:
    known = {
        "principal": note.principal,
        "session": note.session,
        "destination": note.destination,
    }
    facts = {name: value for name, value in known.items() if value}
    _log.warning(what, reason=reason, count=note.count, **_cut(facts))


def unquoted(reason: str) -> str:
    """The text of an error without what it quotes of the peer: a piece of a body, or a passcode."""
    before, quote, _ = _QUOTE.sub("'", reason, count=1).partition("'")
    return f"{before}…" if quote else before


def _cut(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value[:_MOST_CHARACTERS]}…"
        if isinstance(value, str) and len(value) > _MOST_CHARACTERS
        else value
        for name, value in facts.items()
    }
