"""Warnings about loss and duplicates in a recording, as sentences for its user."""

from __future__ import annotations

from collections.abc import Sequence

from nebula.record.identity import has_stable_ids
from nebula.rpc.wire.brokers import NEBULA, Brand, is_last_value

__all__ = ["notes_on"]


def notes_on(destinations: Sequence[str], durable: str | None, brand: Brand = NEBULA) -> list[str]:
    """Sentences about what a recording may lose or double; empty: nothing."""
    notes = []
    for destination in destinations:
        # A last value may be replaced before the recorder has read it.
        if is_last_value(destination):
            notes.append(
                f"{destination}: only the latest values are recorded; with copy_to at the broker, record the"
                " queue that gets a copy of each"
            )
        # Queues keep messages without a subscriber. Topics do so for durable subscriptions alone.
        elif durable is None and not destination.startswith("/queue/"):
            notes.append(
                f"{destination}: what is sent while the recorder is away is not recorded; a durable"
                " subscription keeps it"
            )
    if not has_stable_ids(brand):
        notes.append(
            "this broker names a message anew when it comes again: doubles are known by dedup-id only"
        )
    return notes
