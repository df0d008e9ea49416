"""Fuzz targets: functions of bytes that return where all is well, and raise where it is not.

What a target raises, how long it takes (the runner's time limit) and what it holds (its memory limit)
are what a finding is. None knows of the fuzzer, so that an ordinary test replays what was found.
A target in `COMPILED` returns its outcome, which is the same in both builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tests.fuzz.targets import avro, conversation, globs, requests, streams, websockets

Target: TypeAlias = Callable[[bytes], object]

TARGETS: Final[Mapping[str, Target]] = {
    "parser": streams.parse,
    "client": streams.hear,
    "server": conversation.talk,
    "envelope": avro.read_envelope,
    "datum": avro.read_datum,
    "schema": avro.read_schema,
    "body": requests.read_body,
    "globs": globs.match,
    "http": websockets.ask,
    "websocket": websockets.talk,
}

COMPILED: Final = ("parser", "client", "server")
"""Targets whose code is compiled. They return an outcome that can be compared; the others return None."""
