"""Where transcripts are played: in memory, and over sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from nebula.broker.core.access import Capability, Grants
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received
from tests.conformance.cases import Case
from tests.conformance.wires import Wire

# What the peers of each profile say to be let in, beside the versions that they speak.
_OFFERS: Final = {"standard": "host:h; heart-beat:0,0", "maxam": "host:MAXVAPI; heart-beat:0,0"}

Heard = Received | Literal["nothing", "closed"]
"""What a peer that listens gets: a frame, nothing, or the end of its connection."""


@dataclass
class Rights:
    """Who may do what: by name, by what it may do (`publish`, `subscribe`), globs."""

    globs: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def grant(self, who: str, action: str, globs: Iterable[str]) -> None:
        """From now on `who` may do so."""
        self.globs.setdefault(who, {}).setdefault(action, []).extend(globs)

    def withdraw(self, who: str, action: str, globs: Iterable[str]) -> None:
        """From now on `who` may no longer do so."""
        for glob in globs:
            self.globs[who][action].remove(glob)

    def grants(self, principal_of: Callable[[str], str]) -> Grants:
        """The same in the broker's words: a capability for each name."""
        given = {who: actions for who, actions in self.globs.items() if any(actions.values())}
        return Grants(
            capabilities={
                who: Capability(**{action: tuple(globs) for action, globs in actions.items()})
                for who, actions in given.items()
            },
            identities={principal_of(who): (who,) for who in given},
        )


class World(Protocol):
    """A broker and its peers, by name.

    Attributes:
        offer: headers that a peer of 1.1 or 1.2 says on its CONNECT.
    """

    offer: str

    def accept(self, name: str, who: str) -> str:
        """A peer that has said nothing yet, which is `who`. Returns its principal."""
        ...

    def send(self, name: str, data: bytes) -> None: ...

    def hear(self, name: str) -> Heard:
        """The next frame, or why there is none."""
        ...

    def hears_nothing(self, name: str) -> bool: ...

    def octets(self, name: str) -> bytes:
        """Everything that was heard so far, as it came."""
        ...

    def lose(self, name: str) -> None: ...

    def let(self, rights: Rights) -> None:
        """Have nobody do anything but what he may."""
        ...


class InMemory:
    """The sans-I/O broker. Time and sockets do what the transcript says."""

    def __init__(self, case: Case, profile: str) -> None:
        self.offer = _OFFERS[profile]
        self._profile = case.profile(profile)
        self._harness = BrokerHarness(case.limits, case.policies, key_of=case.key_of)
        self._peers: dict[str, Peer] = {}
        self._heard: dict[str, list[Received]] = {}
        self._seen_bytes: dict[str, int] = {}

    def accept(self, name: str, who: str) -> str:
        self._peers[name] = self._harness.accept(name, principal=who, profile=self._profile)
        self._heard[name] = []
        return who

    def send(self, name: str, data: bytes) -> None:
        self._peers[name].feed(data)

    def hear(self, name: str) -> Heard:
        heard = self._heard[name]
        heard += self._peers[name].received()
        self._seen_bytes[name] = len(self._peers[name].octets)
        if heard:
            return heard.pop(0)
        return "closed" if self._peers[name].is_closed else "nothing"

    def hears_nothing(self, name: str) -> bool:
        self._heard[name] += self._peers[name].received()
        return not self._heard[name]

    def octets(self, name: str) -> bytes:
        return self._peers[name].octets

    def lose(self, name: str) -> None:
        self._peers.pop(name).lose()

    def let(self, rights: Rights) -> None:
        self._harness.broker.review(rights.grants(str), self._harness.now)
        self._harness.settle()

    # What only this world has

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._harness.advance(seconds)

    def set_blocked(self, name: str, *, is_blocked: bool) -> None:
        """Have a socket take no more, or again."""
        peer = self._peers[name]
        if is_blocked:
            peer.block()
        else:
            peer.unblock()

    def has_beaten(self, name: str) -> bool:
        """Whether a beat came since this was last asked or a frame was heard."""
        octets = self._peers[name].octets
        seen, self._seen_bytes[name] = self._seen_bytes.get(name, 0), len(octets)
        return octets[seen:].strip(b"\n") == b"" and len(octets) > seen


class Running(Protocol):
    """A running broker, beside its sockets."""

    def reload(self, grants: Grants) -> None:
        """Have it take up other rights."""
        ...

    def see_one_go(self, go: Callable[[], None]) -> None:
        """Call `go`, by which a peer leaves, and wait until the broker knows."""
        ...


class OverSockets:
    """A running broker and sockets to it. Only what needs no clock can be played here.

    What one peer asked for is done before another one says anything, as it is in memory.

    Args:
        running: the broker.
        profile: of its listener.
        open_: opens a connection of somebody.
        principal_of: who somebody is to the broker.
    """

    def __init__(
        self,
        running: Running,
        profile: str,
        open_: Callable[[str], Wire],
        principal_of: Callable[[str], str],
    ) -> None:
        self.offer = _OFFERS[profile]
        self._running = running
        self._open = open_
        self._principal_of = principal_of
        self._wires: dict[str, Wire] = {}
        self._speaker = ""

    def accept(self, name: str, who: str) -> str:
        self._settle_others(name)
        self._wires[name] = self._open(who)
        return self._principal_of(who)

    def send(self, name: str, data: bytes) -> None:
        self._settle_others(name)
        self._wires[name].send(data)

    def hear(self, name: str) -> Heard:
        try:
            return self._wires[name].next() or "closed"
        except TimeoutError:
            return "nothing"

    def hears_nothing(self, name: str) -> bool:
        self._settle_others(name)
        return not self._wires[name].waiting()

    def octets(self, name: str) -> bytes:
        return self._wires[name].heard

    def lose(self, name: str) -> None:
        self._settle_others("")
        self._running.see_one_go(self._wires.pop(name).lose)

    def let(self, rights: Rights) -> None:
        self._settle_others("")
        self._running.reload(rights.grants(self._principal_of))

    def close(self) -> None:
        """End all connections."""
        for wire in self._wires.values():
            wire.close()

    def _settle_others(self, name: str) -> None:
        """Have the broker do what it was asked for by whoever spoke last, if that was not `name`."""
        if self._speaker != name and self._speaker in self._wires:
            self._wires[self._speaker].waiting()
        self._speaker = name
