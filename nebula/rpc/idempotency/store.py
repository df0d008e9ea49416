"""`IdempotencyStore`: the interface of what remembers replies by key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from nebula.errors import NebulaError

# Characters of a key.
_SENDER_LENGTH: Final = 16


class Reach(StrEnum):
    """Where a key is known, as `describe` reports it."""

    INSTANCE = "instance"
    """By the process that ran the request. A retry that another instance gets runs again."""

    MACHINE = "machine"
    """By all instances on this machine."""

    SHARED = "shared"
    """By all instances."""


class StoreFailed(NebulaError):
    """A store cannot be reached, or cannot read or write."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a key stands for now.

    Attributes:
        fingerprint: of the parameters that were first sent with it.
        is_mine: it was free, and is the caller's now.
        reply: the reply that was kept, or None: the request is being handled.
    """

    fingerprint: str
    is_mine: bool = False
    reply: bytes | None = None


# The key begins with the sender, so that a full store can forget the replies of the largest sender first. It
# is a digest, so the store sees no principal's name.
def join_key(sender: str, request: str) -> str:
    """A key for a store, of digests in hex of 64 characters each."""
    return sender[:_SENDER_LENGTH] + request[_SENDER_LENGTH:]


def sender_of(key: str) -> str:
    """What the keys of one sender have in common: of one principal of one service."""
    return key[:_SENDER_LENGTH]


class IdempotencyStore(Protocol):
    """Remembers by key that a request is being handled, and by which owner, then its reply.

    A claim ends when its reply is kept, when it is released, or when it was not renewed within its lease: its
    owner is then considered dead, and another may claim the key. Each method is atomic among all processes
    that share the store, and may raise `StoreFailed`.

    A full store may forget replies before their time; `sender_of` gives the sender of each, so that no sender
    loses replies because of what others sent.
    """

    @property
    def reach(self) -> Reach:
        """Which processes share it."""

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Claim a key if it is free, otherwise return what it stands for.

        Args:
            key: up to 64 characters; see `sender_of`.
            fingerprint: of the parameters; kept with the key.
            owner: identifies the claim; a different text for each.
            lease: seconds after which the claim ends by itself.
        """
        ...

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Let claims, each a key and its owner, end that many seconds from now. A lost claim stays lost."""

    async def keep(self, key: str, owner: str, reply: bytes, window: float) -> None:
        """Keep a reply for some seconds, if the claim is still its owner's."""

    async def release(self, key: str, owner: str) -> None:
        """Give up a claim without a reply, if it is still its owner's."""

    async def close(self) -> None:
        """Close files and connections; kept replies stay. The store may be used again afterwards."""
