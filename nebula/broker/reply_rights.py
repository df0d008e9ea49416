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

    __slots__ = ("_found", "_rights")

    def __init__(self) -> None:
        self._rights: dict[tuple[str, str | None], tuple[float, str]] = {}
        self._found: tuple[str, str | None] | None = None

    def grant(self, message: Message, now: float) -> None:
        """The connection receives a request: it may answer once where that asks for the answer."""
        rights = self._rights
        if len(rights) >= _MAX_RIGHTS:
            del rights[next(iter(rights))]
        head = message.head
        exchange = message.exchange
        if exchange is not None and exchange[0] == REPLY_ID:
            reply_id: str | None = exchange[1]
        else:
            reply_id = message.header(REPLY_ID)
        until = message.expires_at
        assert head.reply_to is not None
        rights[head.reply_to, reply_id] = (now + _SECONDS if until is None else until, head.sender)

    def find(self, destination: str, reply_id: str | None, now: float) -> str | None:
        """Whose request may be answered at `destination` with this id; None: nobody's.

        What was found last is what `spend` spends.
        """
        key = (destination, reply_id)
        right = self._rights.get(key)
        if right is None or right[0] <= now:
            self._found = None
            return None
        self._found = key
        return right[1]

    def spend(self) -> None:
        """The answer was accepted."""
        if self._found is not None:
            self._rights.pop(self._found, None)
            self._found = None
