"""What the tests of the wire share: examples, and every way in which their bytes may come."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from nebula.errors import RemoteProtocolError
from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import OPENING, V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Frame

COMMANDS = CLIENT_COMMANDS | SERVER_COMMANDS

# No such version exists. It differs from each of the others, so that code which asks for a
# version instead of a rule goes red.
INVENTED = Dialect(
    "9.9",
    escapes={"n": "\n", "c": ":", "\\": "\\", "t": "\t"},
    allows_crlf=True,
    trims_values=True,
    ignores_stray_bodies=True,
    announces_version=True,
    needs_subscription_id=True,
    has_nack=True,
    ack_by_id=True,
    ack_on_message=False,
)
ALL_DIALECTS = (V1_0, V1_1, V1_2, INVENTED)

NEXT = b"BEGIN\ntransaction:next\n\n\0"
NEXT_FRAME = Frame("BEGIN", {"transaction": "next"})


def always(_: Dialect) -> bool:
    """An example for every version."""
    return True


def escapes(dialect: Dialect) -> bool:
    return bool(dialect.escapes)


def escapes_cr(dialect: Dialect) -> bool:
    return "r" in dialect.escapes


def allows_crlf(dialect: Dialect) -> bool:
    return dialect.allows_crlf


def lacks_crlf(dialect: Dialect) -> bool:
    return not dialect.allows_crlf


def lacks_escapes(dialect: Dialect) -> bool:
    return not dialect.escapes


def trims(dialect: Dialect) -> bool:
    return dialect.trims_values


def keeps_spaces(dialect: Dialect) -> bool:
    return not dialect.trims_values


def ignores_stray_bodies(dialect: Dialect) -> bool:
    return dialect.ignores_stray_bodies


def send(body: bytes = b"", receipt: str | None = None, /, **headers: str) -> Frame:
    return Frame("SEND", {"destination": "/queue/a", **headers}, body, receipt)


class Example(NamedTuple):
    """Bytes and the frames in them. `is_canonical`: the serializer writes just these bytes."""

    name: str
    wire: bytes
    frames: tuple[Frame, ...]
    where: Callable[[Dialect], bool] = always
    is_canonical: bool = False

    def dialects(self) -> list[Dialect]:
        """The dialects in which the bytes mean these frames."""
        return [dialect for dialect in ALL_DIALECTS if self.where(dialect)]


def receive(
    pieces: Iterable[bytes], dialect: Dialect, limits: FrameLimits | None = None
) -> tuple[list[Frame], RemoteProtocolError | None]:
    """What a parser makes of the pieces, one after the other: frames, and the fault if any."""
    parser = FrameParser(COMMANDS, limits)
    if dialect is not OPENING:
        parser.begin(dialect)
    frames = [frame for piece in pieces for frame in parser.feed(piece)]
    return frames, parser.failure


def splits(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, in two at every place, and in several random pieces."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    places = range(1, len(data))
    for place in places if len(data) < 200 else ():
        yield [data[:place], data[place:]]
    chance = random.Random(data)
    for _ in range(4):
        yield cut(data, chance.sample(places, min(len(places), chance.randint(1, 9))))


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The pieces of `data` between the places."""
    edges = [0, *sorted(places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def frames(data: bytes, *expected: Frame, dialects: Iterable[Dialect] = ALL_DIALECTS) -> None:
    """Assert that `data` is read as `expected`, however it comes and whatever comes behind it."""
    for dialect in dialects:
        for pieces in splits(data):
            assert receive(pieces, dialect) == ([*expected], None), (dialect.version, pieces)
        followed = [*expected, NEXT_FRAME]
        assert receive([data + NEXT], dialect) == (followed, None), dialect.version
        assert receive([data + NEXT[:9], NEXT[9:]], dialect) == (followed, None), dialect.version
