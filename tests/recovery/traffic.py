"""Load on a broker that is about to be killed: each part of it runs until its connection ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskStatus

from nebula.stomp.frames import Frame
from tests.recovery.ledger import Group
from tests.recovery.peer import Peer
from tests.recovery.world import (
    END,
    KEYS,
    VALUES,
    WATCH,
    WATCHER,
    Line,
    World,
    ack_of,
    body_of,
    key_of,
    read_body,
)

# RECEIPTs under way: enough that the store always has a next batch.
_WINDOW: Final = 300
_MOST_AT_ONCE: Final = 40

_PACE: Final = 0.002

# Of one consumer, never ACKed; it has to leave credit for others.
_HELD_PART: Final = 0.6

_Play: TypeAlias = Callable[[Peer], Coroutine[Any, Any, None]]
_Answer: TypeAlias = Callable[[Frame], bytes]


async def run_all(
    port: int,
    world: World,
    chance: Random,
    troubles: list[str],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Load the broker until it is gone; it has started when all are connected.

    Args:
        troubles: gets what the broker did wrong meanwhile.
    """
    plays = [(play, await Peer.connect(port, client_id=name)) for play, name in _plays(world, chance)]
    async with anyio.create_task_group() as tasks:
        for play, peer in plays:
            tasks.start_soon(play, peer)
        task_status.started()
    for _, peer in plays:
        troubles += peer.troubles
        await peer.close()


def _plays(world: World, chance: Random) -> Iterator[tuple[_Play, str]]:
    """What each connection does, and its client-id."""
    yield partial(_publish_values, world, _child(chance)), ""
    yield partial(_consume, WATCH, partial(_watch, world, _child(chance))), WATCHER
    yield partial(_transact, world, _child(chance)), ""
    for line in world.plain:
        yield partial(_produce, line, _child(chance)), ""
    for line in world.lines:
        for _ in range(line.consumers):
            answer = (_Cumulative if line.mode == "client" else _Single)(line, _child(chance))
            yield partial(_consume, line.subscribe(), answer), line.client_id


def _child(chance: Random) -> Random:
    # Each part has its own, or the order of their turns would change what all of them do.
    return Random(chance.random())


# --- those who send ---


async def _feed(peer: Peer, next_frames: Callable[[], bytes], has_room: Callable[[], bool]) -> None:
    """Write as fast as the RECEIPTs and the depth allow, until the connection ends."""
    while True:
        if peer.awaited < _WINDOW and has_room():
            if not await peer.say(next_frames()):
                break
            continue
        # Its consumers may be behind: look again soon.
        with anyio.move_on_after(_PACE):
            if await peer.hear() is None:
                return
    await _hear_out(peer)


async def _hear_out(peer: Peer) -> None:
    """What the broker wrote before its end counts, also where we could write no more."""
    while await peer.hear() is not None:
        pass


async def _produce(line: Line, chance: Random, peer: Peer) -> None:
    ledger, deepest = line.ledger, chance.randrange(50, line.deepest)
    again = deque(ledger.unanswered if line.repeats else ())

    def send() -> bytes:
        if again:
            number = again.popleft()
            ledger.send_again(number)
        else:
            number = ledger.send()
        receipt = "" if chance.random() < 0.03 else peer.expect(partial(ledger.receipted, number))
        return _send(line.destination, line.headers(number), receipt, body=body_of(ledger.name, number))

    await _feed(
        peer,
        lambda: b"".join(send() for _ in range(chance.randint(1, _MOST_AT_ONCE))),
        lambda: ledger.depth < deepest,
    )


async def _publish_values(world: World, chance: Random, peer: Peer) -> None:
    values = world.values

    def send() -> bytes:
        key = f"k{chance.randrange(KEYS)}"
        deletes = chance.random() < 0.1
        number = values.send(key, deletes=deletes)
        receipt = peer.expect(partial(values.receipted, key))
        return _send(VALUES + key, receipt, body=b"" if deletes else body_of(VALUES + key, number))

    await _feed(peer, lambda: b"".join(send() for _ in range(chance.randint(1, 10))), lambda: True)


async def _transact(world: World, chance: Random, peer: Peer) -> None:
    deepest = chance.randrange(50, world.joined[0].deepest)

    def transaction() -> bytes:
        is_aborted = chance.random() < 0.1
        frames, group = [b"BEGIN\ntransaction:t\n\n\0"], []
        for line in chance.choices(world.joined, k=chance.randint(2, 8)):
            # Of what is aborted nothing may ever be seen: the ledger does not know the number.
            number = 0 if is_aborted else line.ledger.send()
            group.append((line.ledger, number))
            body = body_of(line.ledger.name, number)
            frames.append(_send(line.destination, line.headers(number), "transaction:t\n", body=body))
        if is_aborted:
            return b"".join([*frames, b"ABORT\ntransaction:t\n\n\0"])
        world.groups.append(group)
        receipt = peer.expect(partial(_committed, world, group))
        return b"".join([*frames, f"COMMIT\ntransaction:t\n{receipt}\n\0".encode()])

    await _feed(peer, transaction, lambda: all(line.ledger.depth < deepest for line in world.joined))


def _committed(world: World, group: Group) -> None:
    world.groups.remove(group)
    for ledger, number in group:
        ledger.receipted(number)


def _send(destination: str, *headers: str, body: bytes) -> bytes:
    head = f"SEND\ndestination:{destination}\n{''.join(headers)}content-length:{len(body)}\n\n"
    return head.encode() + body + b"\0"


# --- those who receive ---


async def _consume(subscribe: bytes, answer_to: Callable[[Peer], _Answer], peer: Peer) -> None:
    """Answer what comes until the connection ends."""
    answer = answer_to(peer)
    is_open = await peer.say(subscribe)
    while (frames := await peer.hear()) is not None:
        if is_open:
            is_open = await peer.say(b"".join(map(answer, frames)))


class _Single:
    """ACKs each message for itself, or does something worse to it."""

    def __init__(self, line: Line, chance: Random) -> None:
        self._line = line
        self._chance = chance
        self._held = 0

    def __call__(self, peer: Peer) -> _Answer:
        return partial(self._answer, peer)

    def _answer(self, peer: Peer, frame: Frame) -> bytes:
        number = _read(self._line, frame)
        ledger, fate = self._line.ledger, self._chance.random()
        has_receipt = self._chance.random() < 0.96
        if fate < 0.05 and self._held < _HELD_PART * self._line.prefetch:
            self._held += 1
            return b""
        if fate < 0.06:
            return ack_of(frame, command="NACK")
        if fate < 0.09 and not self._line.client_id:
            ledger.bury(number)
            receipt = peer.expect(partial(ledger.buried, number)) if has_receipt else ""
            return ack_of(frame, "requeue:false\n", receipt, command="NACK")
        ledger.ack(number)
        return ack_of(frame, peer.expect(partial(ledger.settled, number)) if has_receipt else "")


class _Cumulative:
    """ACKs several at once."""

    def __init__(self, line: Line, chance: Random) -> None:
        self._line = line
        self._chance = chance
        self._unacked: list[int] = []

    def __call__(self, peer: Peer) -> _Answer:
        return partial(self._answer, peer)

    def _answer(self, peer: Peer, frame: Frame) -> bytes:
        self._unacked.append(_read(self._line, frame))
        if self._chance.random() < 0.9 and len(self._unacked) < self._line.prefetch // 2:
            return b""
        numbers, self._unacked = self._unacked, []
        for each in numbers:
            self._line.ledger.ack(each)
        return ack_of(frame, peer.expect(partial(self._settle, numbers)))

    def _settle(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._line.ledger.settled(number)


def _read(line: Line, frame: Frame) -> int:
    """The number of a message; the ledger is told of it."""
    name, number = read_body(frame.body)
    assert name == line.ledger.name, f"{name} {number} in {line.destination}"
    line.ledger.delivered(number, frame.headers["message-id"])
    return number


def _watch(world: World, chance: Random, peer: Peer) -> _Answer:
    values, held = world.values, 0

    def answer(frame: Frame) -> bytes:
        nonlocal held
        key = key_of(frame)
        if key.startswith(END):
            return ack_of(frame)
        if chance.random() < 0.05 and held < KEYS // 2:
            held += 1
            return b""
        state = read_body(frame.body)[1] if frame.body else None
        values.ack(key, state)
        return ack_of(frame, peer.expect(partial(values.settled, key, state)))

    return answer
