"""Recording of messages into Avro container files, without loss or duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nebula.record.message import MESSAGE_SCHEMA
    from nebula.record.recorder import Recorder, Recording, Rotation
    from nebula.record.status import RecorderState, RecorderStatus

__all__ = ["MESSAGE_SCHEMA", "Recorder", "RecorderState", "RecorderStatus", "Recording", "Rotation"]

_HOMES = {
    "MESSAGE_SCHEMA": "nebula.record.message",
    "RecorderState": "nebula.record.status",
    "RecorderStatus": "nebula.record.status",
}


def __getattr__(name: str) -> Any:
    # Lazily: a reader of recorded files, in Spark's processes too, pays for no client.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "nebula.record.recorder")), name)
