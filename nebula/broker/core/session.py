"""Sessions: one peer as the core sees it.

What is on its way to the peer is in its `Receiver`; what the peer sends, and what it waits for, is here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from nebula.broker.core.context import CoreContext
from nebula.broker.core.known_heads import KnownHeads
from nebula.broker.core.profiles import Profile
from nebula.broker.core.reply_rights import ReplyRights
from nebula.broker.core.subscription import Receiver


@dataclass(slots=True, eq=False, repr=False)
class Session(Receiver):
    """What the broker knows of one connected peer.

    Attributes:
        profile: how its listener behaves.
        context: what all parts of the core share.
        place: the address of the peer, or empty.
        connection: for the shell, which writes the outbox; the core does not look at it.
        has_entered: it has sent CONNECT, and its connection is counted.
        heads: header blocks that its messages may share.
        own_requests: requests to the broker itself that may still wait: numbers and sizes.
        is_backlogged: the store is behind with what it has sent, so that it is not read.
        waited_until: the deadline of the SEND with which it was last held back.
    """

    profile: Profile
    context: CoreContext
    _: KW_ONLY
    place: str = ""
    # Any: each shell has a class of its own, and the core hands it back unread.
    connection: Any = None
    has_entered: bool = False
    heads: KnownHeads = field(init=False)
    own_requests: deque[tuple[int, int]] = field(default_factory=deque)
    is_backlogged: bool = False
    waited_until: float = 0.0

    def __post_init__(self) -> None:
        # Copied: they are looked at for each delivery.
        limits = self.context.limits
        self.high_water_bytes = limits.outbox_high_water_bytes
        self.max_outbox_bytes = limits.max_outbox_bytes
        self.value_credit = limits.max_unacked_values

    def identify(self, principal: str) -> None:
        """Set the principal of the peer. Call it before `Broker.enter`."""
        # Until it has authenticated it is `anonymous`. The principal pays for heads and reply rights, so they
        # begin anew.
        account = self.context.account
        self.rights = self.context.access.rights_of(principal)
        self.usage = account.usages.of(self.rights, self.place)
        self.reply_rights = ReplyRights(account, self.usage)
        self.heads = KnownHeads(account, self.usage)

    @property
    def is_ahead_of_store(self) -> bool:
        """Whether too much of it waits for the store to read it further.

        A consumer is always read: its ACKs come by the same stream.
        """
        return (self.held_bytes >= self.high_water_bytes or self.is_backlogged) and not self.subscriptions
