"""Reply rights: whoever received a request may answer it, and nothing else (DESIGN 4)."""

from __future__ import annotations

from nebula.broker.messages import Message
from nebula.headers import REPLY_ID

# A request without a time to live may be answered for an hour.
_SECONDS = 3600.0

# A consumer that never answers collects rights: so many are kept, the oldest are forgotten first.
_MAX_RIGHTS = 100_000


class ReplyRights:
    """What one connection may answer. They belong to it alone and survive the ACK of the request."""

    __slots__ = ("_rights",)

    def __init__(self) -> None:
        self._rights: dict[tuple[str, str | None], tuple[float, str]] = {}

    def grant(self, message: Message, now: float) -> None:
        """The connection receives a request: it may answer once where that asks for the answer."""
        rights = self._rights
        if len(rights) >= _MAX_RIGHTS:
            del rights[next(iter(rights))]
        head = message.head
        assert head.reply_to is not None
        until = message.expires_at
        rights[head.reply_to, message.header(REPLY_ID)] = (
            now + _SECONDS if until is None else until,
            head.sender,
        )

    def requester(self, destination: str, reply_id: str | None, now: float) -> str | None:
        """Whose request may be answered at `destination` with this id; None: nobody's."""
        right = self._rights.get((destination, reply_id))
        return right[1] if right is not None and right[0] > now else None

    def spend(self, destination: str, reply_id: str | None) -> None:
        """The answer was accepted."""
        self._rights.pop((destination, reply_id), None)
