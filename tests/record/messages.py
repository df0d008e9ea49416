"""Messages as a client hands them out, what was recorded of them, and a broker's word on its ACKs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro

from nebula.avro import Schema
from nebula.stomp.client import AckMode, Message, PushSubscription

QUEUE = "/queue/readings"

READING = Schema(
    {
        "type": "record",
        "name": "venue.Reading_v1",
        "fields": [{"name": "machine", "type": "string"}, {"name": "turnover", "type": "long"}],
    }
)
NEWER_READING = Schema(
    {
        "type": "record",
        "name": "venue.Reading_v1",
        "fields": [
            {"name": "machine", "type": "string"},
            {"name": "turnover", "type": "long"},
            {"name": "wins", "type": "long", "default": 0},
        ],
    }
)
SCHEMAS = {schema.fingerprint: schema for schema in (READING, NEWER_READING)}


def message(
    message_id: str,
    body: bytes = b"",
    destination: str = QUEUE,
    *,
    sent_to: str | None = None,
    **headers: str,
) -> Message:
    """A MESSAGE that came by a subscription to `destination`."""
    listener = PushSubscription(None, "1", destination, AckMode.CLIENT, lambda _: None)  # type: ignore[arg-type]
    delivery = {"subscription": "1", "message-id": message_id, "ack": f"1 {message_id}"}
    return Message({**delivery, "destination": sent_to or destination, **headers}, body, listener)


def files(folder: Path) -> list[Path]:
    """The files that readers see."""
    return sorted(folder.glob("*/date=*/hour=*/[!.]*"))


def hidden(folder: Path) -> list[Path]:
    """Files that are still written, or were when their process died."""
    return sorted(folder.glob("*/date=*/hour=*/.*"))


def records(path: Path) -> list[Any]:
    """What a file holds, as another library reads it."""
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def recorded(folder: Path) -> list[Any]:
    """What all files hold, in the order of their names."""
    return [record for path in files(folder) for record in records(path)]


class Acks:
    """The ids that were ACKed, in a file. A broker takes an ACK or not, and nobody hears of it at once.

    The process may be killed while it writes: a word that was cut is no ACK.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "acks"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        path.write_text(whole and f"{whole}\n")
        self.ids = whole.split()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def send(self, ids: Iterable[str]) -> None:
        os.write(self._file, "".join(f"{each}\n" for each in ids).encode())

    def close(self) -> None:
        os.close(self._file)
