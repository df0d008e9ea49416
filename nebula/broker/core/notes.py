"""Notes of the core for the operator's log: a count for each kind, and the facts of the first one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Note:
    """Something that happened, once or often.

    Attributes:
        count: how often.
        principal: who caused it the first time; so for the others.
        session: its session, where it is known.
        destination: where it happened.
    """

    count: int
    principal: str
    session: str
    destination: str


class Notes:
    """Events since the last look, by kind and reason. Equal ones are one note with a count, so a flood of
    events takes no more memory than there are reasons."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], Note] = {}

    def add(self, what: str, reason: str, principal: str, session: str = "", destination: str = "") -> None:
        """Note it down, or count it where it was noted already.

        Args:
            what: the event, a short phrase in the past tense; `reason` why. Both from a closed set.
        """
        note = self._notes.get((what, reason))
        if note is None:
            self._notes[what, reason] = Note(1, principal, session, destination)
        else:
            note.count += 1

    def take(self) -> dict[tuple[str, str], Note]:
        """All that was noted since the last call."""
        taken, self._notes = self._notes, {}
        return taken


# What is noted, in addition to refusals.
MESSAGES_DROPPED = "messages dropped"
MESSAGES_DEAD = "messages dead-lettered"
PUBLISHERS_PAUSED = "publishers paused"
SESSIONS_EXPIRED = "sessions expired"
SHARE_EXCEEDED = "share exceeded"

# Why a message was not kept for a durable subscription.
SHARE = "share"
