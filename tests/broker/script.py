"""Frames as one line each: `SEND destination:/queue/a; receipt:r1 | body`."""

from __future__ import annotations

from nebula.stomp.frames import Frame

Received = tuple[str, dict[str, str], *tuple[str, ...]]
"""A frame as tests compare it: command, headers without `content-length`, the body if there is one."""


def octets(line: str) -> bytes:
    """The octets of a frame that is written as a line. Headers stand as they go over the wire."""
    start, _, body = line.partition(" | ")
    command, _, headers = start.partition(" ")
    lines = [command, *(each for each in headers.split("; ") if each)]
    return ("\n".join(lines) + f"\n\n{body}\0").encode()


def read(line: str) -> Received:
    """The frame that a line describes, as `shown` would give it."""
    start, bar, body = line.partition(" | ")
    command, _, headers = start.partition(" ")
    pairs = [each.partition(":") for each in headers.split("; ") if each]
    fields = {name: value for name, _, value in pairs}
    return (command, fields, body) if bar else (command, fields)


def shown(frame: Frame) -> Received:
    """A parsed frame as tests compare it."""
    headers = {name: value for name, value in frame.headers.items() if name != "content-length"}
    if frame.body:
        return frame.command, headers, frame.body.decode(errors="backslashreplace")
    return frame.command, headers


def written(received: Received) -> str:
    """A frame as a line: the reverse of `read`."""
    command, headers, *body = received
    fields = "; ".join(f"{name}:{value}" for name, value in headers.items())
    return " ".join(part for part in (command, fields, *(f"| {text}" for text in body)) if part)
