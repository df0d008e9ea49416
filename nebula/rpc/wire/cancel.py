"""Cancelled requests: how a service learns that a caller withdrew one, and remembers it (G.cancel)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic_core import from_json

from nebula.headers import CANCEL_TOPIC_PREFIX
from nebula.milliseconds import Milliseconds, to_seconds

_QUEUE: Final = "/queue/"

# How long a withdrawal is remembered that does not say how long its request may still be on its way, and
# how many are.
_DEFAULT_SECONDS: Final = 30.0
_MOST: Final = 10_000

# Of a destination or an id: they are remembered, and a stranger may have written them.
_LONGEST_TEXT: Final = 500

# No request is on its way for longer; and what a stranger writes must fit a float.
_LONGEST_SECONDS: Final = 24 * 3600.0


def cancel_topics(service: str, destinations: Iterable[str]) -> list[str]:
    """Where a service hears of requests that their callers withdraw, sent to it by name or to these queues.

    A queue of an instance, `/queue/<service>.<instance>`, has no topic of its own.
    """
    return list(dict.fromkeys(map(cancel_topic, [_QUEUE + service, *destinations])))


def cancel_topic(queue: str) -> str:
    """Where requests that were sent to a queue are withdrawn."""
    # Names of services have no dot; behind it is an instance's, which has no topic of its own.
    # RabbitMQ knows a queue that is there, whatever it is like, as /amq/queue/NAME.
    return CANCEL_TOPIC_PREFIX + queue.removeprefix("/amq").removeprefix(_QUEUE).partition(".")[0]


@dataclass(frozen=True, slots=True)
class Cancel:
    """A caller's word that it waits no longer.

    Attributes:
        reply_to: the request's reply destination.
        reply_id: the request's `neb-reply-id`.
        seconds: that the caller would have gone on waiting, None if it does not say.
    """

    reply_to: str
    reply_id: str
    seconds: float | None = None

    @classmethod
    def parse(cls, body: bytes) -> Self | None:
        """Read one; None if it is malformed: any client may have sent it.

        One whose destination or id has more than 500 characters counts as none.
        """
        try:
            fields = from_json(body)
        except ValueError:
            return None
        if not isinstance(fields, dict):
            return None
        reply_to, reply_id = fields.get("reply-to"), fields.get("reply-id")
        if not isinstance(reply_to, str) or not isinstance(reply_id, str):
            return None
        if len(reply_to) > _LONGEST_TEXT or len(reply_id) > _LONGEST_TEXT:
            return None
        return cls(reply_to, reply_id, _seconds(fields))


def _seconds(fields: Mapping[str, Any]) -> float | None:
    milliseconds = fields.get("timeout")
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int) or milliseconds < 0:
        return None
    return to_seconds(Milliseconds(min(milliseconds, _LONGEST_SECONDS * 1000)))


class PendingCancels:
    """Remembers cancels of requests that have not come yet, so that those never start.

    Bounded: of more than 10,000, whosever, the oldest are forgotten, and their requests run.
    """

    def __init__(self) -> None:
        # By reply destination, id and principal; when it may be forgotten. The principal is part of the
        # key so that no client can make up what another principal withdrew.
        self._until: dict[tuple[str, str, str | None], float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def remember(self, one: Cancel, principal: str | None, now: float) -> None:
        """Note a cancel.

        Args:
            one: of a request that is not here.
            principal: that withdrew it, None where the broker does not say.
            now: the time, on the clock of `take`.
        """
        key = (one.reply_to, one.reply_id, principal)
        # At the end of the order again, if it was known.
        self._until.pop(key, None)
        self._forget_first(now)
        self._until[key] = now + (_DEFAULT_SECONDS if one.seconds is None else one.seconds)

    def take(self, reply_to: str, reply_id: str, principal: str | None, now: float) -> bool:
        """Whether this request was withdrawn. It is asked for once: then it is forgotten.

        Args:
            reply_to: the request's reply destination.
            reply_id: its `neb-reply-id`.
            principal: whose it is, None where the broker does not say.
            now: the time.
        """
        until = self._until.pop((reply_to, reply_id, principal), None)
        if until is None and principal is not None:
            # On a topic of MaXaM's profile the broker does not name the sender.
            until = self._until.pop((reply_to, reply_id, None), None)
        return until is not None and now < until

    def _forget_first(self, now: float) -> None:
        # In the order of their coming, which with like timeouts is that of their end.
        while self._until:
            first = next(iter(self._until))
            if len(self._until) < _MOST and now < self._until[first]:
                return
            del self._until[first]
