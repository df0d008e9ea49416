"""Fuzz targets: functions of bytes that return where all is well, and raise where it is not.

What a target raises, how long it takes (the runner's time limit) and what it holds (its memory limit)
are what a finding is. None knows of the fuzzer, so that an ordinary test replays what was found.
A target of what is compiled returns what came of its input, which is the same in both builds.
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
"""Targets that return what both builds make of an input, as values to compare; the others return None."""
