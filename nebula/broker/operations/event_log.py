"""Rate-limited log of what peers cause, with the facts of each event.

The end of a connection is one event with the whole story, `ConnectionEnd`. A flood of one event makes few
lines, so peers cannot fill a disk. Facts never hold a body, a passcode or a key; names and ids that a peer
has chosen are cut. `events` declares what is logged and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from nebula.broker.core.account import Account
from nebula.broker.core.fixed_limits import MAX_LINES_OF_ONE_EVENT, MAX_LOGGED_CHARACTERS
from nebula.broker.core.messages import Verdict
from nebula.broker.core.notes import MESSAGES_DROPPED, Note
from nebula.broker.operations.events import ENDS, EndReason
from nebula.log_events import Level
from nebula.logs import get_logger

_log = get_logger("nebula.broker")

# The core's notes are logged once a second: a queue that drops ten thousand messages causes one line.
_INTERVAL_SECONDS = 1.0

_QUOTE: Final = re.compile("[\"']")

# These verdicts are refusals too, and logged as such.
_TOLD_ELSEWHERE: Final = frozenset({Verdict.INVALID.value, Verdict.UNAUTHORISED.value})


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The whole story of a connection that was closed.

    Attributes:
        reason: why.
        detail: more about that, or empty. Nothing that the peer has sent.
        principal: who the peer was.
        session: its id.
        address: of the peer, host and port, or `in process`.
        listener: the URL at which it arrived, or `in process`.
        version: of STOMP; None: it has not connected.
        duration_seconds: since it was accepted.
        read_frames, sent_frames: frames from and to the peer. Those read do not count heart-beats.
        read_bytes, written_bytes: bytes from and to the peer; with TLS, of what is inside.
        unsent_bytes: what the broker dropped because it ended the connection.
    """

    reason: EndReason
    detail: str
    principal: str
    session: str
    address: str
    listener: str
    version: str | None
    duration_seconds: float
    read_frames: int
    sent_frames: int
    read_bytes: int
    written_bytes: int
    unsent_bytes: int


class EventLog:
    """The log of events, at a pace that a disk and a reader can keep up with.

    Args:
        account: where the core notes what happened.

    Attributes:
        counts: how often each event happened that is logged at once, logged or not.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self.counts: Counter[str] = Counter()
        # By event, detail and whether it is ordinary. Details are a closed set, so peers cannot make this
        # grow.
        self._told: Counter[tuple[str, str, bool]] = Counter()
        self._dropped: Counter[str] = Counter()
        self._next_look = 0.0

    def debug(self, event: str, **facts: object) -> None:
        """A frequent event, such as a client that connects or disconnects."""
        # Counted even if it is not logged: metrics include all of a flood.
        self.counts[event] += 1
        if self._has_room_for(event, is_ordinary=True):
            _log.debug(event, **_cut(facts))

    def info(self, event: str, **facts: object) -> None:
        """Something harmless."""
        self.counts[event] += 1
        if self._has_room_for(event):
            _log.info(event, **_cut(facts))

    def warning(self, event: str, **facts: object) -> None:
        """Something that an operator may have to look after."""
        self.counts[event] += 1
        if self._has_room_for(event):
            _log.warning(event, **_cut(facts))

    def exception(self, event: str, **facts: object) -> None:
        """A bug in the broker, with the traceback of the current exception."""
        self.counts[event] += 1
        if self._has_room_for(event):
            _log.exception(event, **_cut(facts))

    def count(self, event: str) -> None:
        """Count an event that is part of the story of a connection's end, and has no line of its own."""
        self.counts[event] += 1

    def connection_closed(self, end: ConnectionEnd, *, is_open: bool) -> None:
        """The end of a connection. The lines of each reason are limited by themselves.

        Args:
            is_open: it had connected; strangers that did not are ordinary.
        """
        level = ENDS[end.reason].level
        is_ordinary = level is Level.DEBUG or (level is Level.INFO and not is_open)
        if not self._has_room_for("connection closed", end.reason, is_ordinary=is_ordinary):
            return
        quiet = _log.info if level is Level.INFO else _log.warning
        tell = _log.debug if is_ordinary else quiet
        facts: dict[str, Any] = {
            "reason": end.reason.value,
            "detail": end.detail,
            "principal": end.principal,
            "session": end.session,
            "address": end.address,
            "listener": end.listener,
            "version": end.version,
            "duration_seconds": round(end.duration_seconds, 3),
            "read_frames": end.read_frames,
            "sent_frames": end.sent_frames,
            "read_bytes": end.read_bytes,
            "written_bytes": end.written_bytes,
            "unsent_bytes": end.unsent_bytes,
        }
        tell("connection closed", **_cut(facts))

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
        for (event, reason, is_ordinary), count in self._told.items():
            if count > MAX_LINES_OF_ONE_EVENT:
                tell = _log.debug if is_ordinary else _log.warning
                facts = {"reason": reason} if reason else {}
                tell("further events", what=event, count=count - MAX_LINES_OF_ONE_EVENT, **facts)
        self._told.clear()

    def _has_room_for(self, event: str, reason: str = "", *, is_ordinary: bool = False) -> bool:
        # The reason belongs to the key: a flood of strangers that are refused must not hide one
        # client that is ended as too slow.
        key = (event, reason, is_ordinary)
        self._told[key] += 1
        # The first lines of each second are logged: they show how a flood began.
        return self._told[key] <= MAX_LINES_OF_ONE_EVENT

    def _tell_refusals(self) -> None:
        """What the peers themselves were not told (D.5)."""
        # The core keeps a few and counts the others (`MAX_KEPT_REFUSALS`).
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
        # The counters are never reset, because metrics read them too: the log takes the difference.
        dropped = self._account.dropped - self._dropped
        self._dropped = self._account.dropped.copy()
        for reason, count in dropped.items():
            if reason not in _TOLD_ELSEWHERE:
                # Some reasons have a count and no note, such as an operator's purge.
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
        name: f"{value[:MAX_LOGGED_CHARACTERS]}…"
        if isinstance(value, str) and len(value) > MAX_LOGGED_CHARACTERS
        else value
        for name, value in facts.items()
    }
