"""Facts that checks judge: what the broker, services and this machine tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "Build", "Certificate", "Clock", "DiskFacts", "InstanceFacts", "LimitFacts", "ListenerFacts",
    "QueueFacts", "RightsFacts", "SettingsFacts", "StatusFacts", "SyncTimes",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Build:
    """A program: who runs it, and the versions of Nebula and Python."""

    who: str
    nebula: str
    python: str
    build: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock, read from afar.

    Attributes:
        who: whose it is.
        ahead_seconds: of our clock, if the answer was made halfway between question and receipt.
        uncertainty_seconds: half of the time between the two.
    """

    who: str
    ahead_seconds: float
    uncertainty_seconds: float


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Times that writes of one page took until they were on the disk."""

    median_seconds: float
    longest_seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The disk of a store. None: not known."""

    file_system: str | None
    free_bytes: int | None
    min_free_bytes: int
    schema: int | None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What the system allows a broker, and what that needs. None: no limit, or not known."""

    open_files: int | None
    wanted_files: int
    memory_bytes: int | None
    counted_bytes: int
    backlog: int | None
    ports: tuple[int, int] | None
    listening: Sequence[int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate: whose it is, and the end of its validity in seconds since 1970."""

    who: str
    ends_at: float


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    """An address of the broker."""

    url: str
    is_loopback: bool
    is_anonymous: bool


@dataclass(frozen=True, slots=True)
class RightsFacts:
    """What the broker says about its grants; see `RightsView` of the broker."""

    is_open: bool
    capabilities: int
    identities: int
    unused_capabilities: Sequence[str]
    without_rights: Sequence[str]
    unknown_verbs: Sequence[str]
    unmatched: Sequence[str]
    anonymous_verbs: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue: messages in it, of which some are un-ACKed, and its consumers."""

    name: str
    depth: int
    unacked: int
    consumers: int


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """An instance of a service.

    Attributes:
        service: its name.
        name: of the instance.
        version: of the service.
        contracts: a hash of its verbs' contracts; empty: not known.
        seconds: that its reply to `ping` took; None: it did not reply.
        failing: hooks of its health that say no; None: it did not tell.
    """

    service: str
    name: str
    version: str
    contracts: str
    seconds: float | None
    failing: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class SettingsFacts:
    """What `settings.check` replies: changed settings, and mistakes."""

    reload: Sequence[str]
    restart: Sequence[str]
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What the broker says about itself.

    Attributes:
        not_ready: why it should get no traffic now; None: it is ready.
        dead_letters: messages in the dead-letter queue.
        held_back: connections that are not read until there is room.
        pools: used part and number of refusals of each resource that principals share.
        commit_seconds: mean time of a batch of the store; None: there was none, or there is no store.
    """

    not_ready: str | None
    dead_letters: int
    held_back: int
    pools: Mapping[str, tuple[float, int]]
    commit_seconds: float | None
