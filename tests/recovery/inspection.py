"""What a broker holds after a restart: all of it is looked at, nothing of it is settled but dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio

from nebula.headers import DEAD_LETTER_QUEUE
from nebula.stomp.frames import Frame
from tests.recovery.ledger import State, torn
from tests.recovery.peer import Peer
from tests.recovery.world import (
    END,
    VALUES,
    WATCH,
    WATCHER,
    Line,
    World,
    ack_of,
    end_of,
    key_of,
    read_body,
)

# All of a line at once: it is deeper than what its traffic lets it grow to.
_PREFETCH: Final = 100_000
_SNAPSHOT: Final = f"SUBSCRIBE\nid:s\ndestination:{VALUES}*\neager:true\n\n\0".encode()


@dataclass
class Inspection:
    """What was found.

    Attributes:
        numbers: by line, in order of delivery.
        dead: by line.
        values: by key.
        heard: by key, what the durable subscription to the values was told.
        troubles: what the broker said that it should not have.
    """

    numbers: dict[str, list[int]] = field(default_factory=dict)
    dead: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    values: dict[str, int] = field(default_factory=dict)
    heard: dict[str, State] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)

    def differences(self, world: World) -> list[str]:
        """What is not as the ledgers have it, a line each."""
        lines = list(self.troubles)
        for line in world.lines:
            name = line.ledger.name
            lines += line.ledger.differences(self.numbers[name], self.dead[name])
        lines += world.values.differences(self.values)
        lines += world.values.untold(self.values, self.heard)
        whole: Mapping[str, set[int]] = {
            name: {*numbers, *self.dead[name]} for name, numbers in self.numbers.items()
        }
        return lines + [line for group in world.groups for line in torn(group, whole)]

    def adopt(self, world: World) -> None:
        """From now on this is what is owed."""
        for line in world.lines:
            line.ledger.adopt(self.numbers[line.ledger.name])
        world.values.adopt(self.values)
        world.groups.clear()


async def inspect(port: int, world: World, turn: int) -> Inspection:
    """Look at everything. Nobody else is connected meanwhile.

    Args:
        turn: another one for each inspection.
    """
    found = Inspection()
    async with anyio.create_task_group() as tasks:
        for line in world.lines:
            tasks.start_soon(_inspect_line, port, line, found, turn)
        tasks.start_soon(_drain_dead_letters, port, found, turn)
    # One after the other: each leaves its own mark among the values for a moment.
    snapshot = await _values_told(port, _SNAPSHOT, "", found, 2 * turn)
    found.values = {key: number for key, number in snapshot.items() if number is not None}
    found.heard = await _values_told(port, WATCH, WATCHER, found, 2 * turn + 1)
    return found


async def _inspect_line(port: int, line: Line, found: Inspection, turn: int) -> None:
    peer = await Peer.connect(port, client_id=line.client_id)
    await peer.say(line.subscribe(prefetch=_PREFETCH, mode="client-individual"))
    await peer.say(line.end(turn))
    *frames, end = await _until_end(peer, turn)
    found.numbers[line.ledger.name] = numbers = []
    for frame in frames:
        name, number = read_body(frame.body)
        if name != line.ledger.name:
            found.troubles.append(f"{name} {number} is in {line.destination}")
            continue
        line.ledger.delivered(number, frame.headers["message-id"])
        numbers.append(number)
    await _leave(peer, found, end)


async def _drain_dead_letters(port: int, found: Inspection, turn: int) -> None:
    peer = await Peer.connect(port)
    subscribe = (
        f"SUBSCRIBE\nid:s\ndestination:{DEAD_LETTER_QUEUE}\nack:client\nprefetch-count:{_PREFETCH}\n\n\0"
    )
    await peer.say(subscribe.encode() + end_of(DEAD_LETTER_QUEUE, turn))
    *frames, end = await _until_end(peer, turn)
    for frame in frames:
        name, number = read_body(frame.body)
        found.dead[name].append(number)
    await _leave(peer, found, end)


async def _values_told(
    port: int, subscribe: bytes, client_id: str, found: Inspection, turn: int
) -> dict[str, State]:
    """The last values as they are told to a subscription."""
    peer = await Peer.connect(port, client_id=client_id)
    mark = f"{VALUES}{END}-{turn}"
    await peer.say(subscribe + end_of(mark, turn))
    told: dict[str, State] = {}
    for frame in (await _until_end(peer, turn))[:-1]:
        if not key_of(frame).startswith(END):
            told[key_of(frame)] = read_body(frame.body)[1] if frame.body else None
    await peer.say(f"SEND\ndestination:{mark}\ncontent-length:0\n\n\0".encode())
    await _leave(peer, found)
    return told


async def _until_end(peer: Peer, turn: int) -> list[Frame]:
    """All MESSAGEs up to the one that `end_of` made, with it."""
    frames: list[Frame] = []
    while not frames or not frames[-1].body or read_body(frames[-1].body) != (END, turn):
        heard = await peer.hear()
        assert heard is not None, f"the connection ended too early: {peer.troubles}"
        frames += heard
    return frames


async def _leave(peer: Peer, found: Inspection, *settled: Frame) -> None:
    for frame in settled:
        await peer.say(ack_of(frame, peer.expect(lambda: None)))
    await peer.leave()
    found.troubles += peer.troubles
