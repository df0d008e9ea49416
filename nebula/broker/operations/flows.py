"""Counts of messages by sender and destination, for the map of the console."""

from __future__ import annotations

from itertools import islice
from typing import Final

from nebula.headers import RESERVED_QUEUE_PREFIX

MAX_FLOWS: Final = 10_000
"""How many pairs are counted, in some two megabytes. At it: the older half is forgotten, and counted anew."""


class Flows:
    """Counts the messages that were accepted, for each pair of a principal and a destination.

    Queues of Nebula's own, such as inboxes, are not counted: each client has one.

    Attributes:
        counts: by sender and destination, in the order in which the pairs were first seen.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def note(self, sender: str, destination: str) -> None:
        """A message was accepted."""
        pair = sender, destination
        count = self.counts.get(pair)
        if count is None:
            # Only of new pairs: those that are counted have other names.
            if destination.startswith(RESERVED_QUEUE_PREFIX):
                return
            if len(self.counts) >= MAX_FLOWS:
                self._forget_half()
            count = 0
        self.counts[pair] = count + 1

    def _forget_half(self) -> None:
        # Those that still have messages come back at once, with a count from 0.
        for pair in list(islice(self.counts, MAX_FLOWS // 2)):
            del self.counts[pair]
