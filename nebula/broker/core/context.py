"""Shared context of the broker core: one frozen value that every part gets whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nebula.broker.core.access import AccessPolicy
from nebula.broker.core.account import Account
from nebula.broker.core.journal import Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import QUEUE_KIND, DestinationKind, Numbers, kinds_by_prefix
from nebula.broker.core.policies import PolicyTable
from nebula.headers import DEAD_LETTER_QUEUE


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreContext:
    """The surroundings of every part of one broker.

    Attributes:
        limits: what peers may use.
        policies: exceptions for single destinations, by pattern.
        access: who may do what.
        account: resources in use by all principals.
        journal: gathers what goes to disk; None: there is no store.
        numbers: gives messages their numbers.
        wall_offset: added to the broker's time, it gives wall-clock time (seconds since 1970).
        kinds: of destinations, by the prefix of their names; any other name is a queue. The first counts.
        key_of: gives the key of a last-value destination, where several may share one (D.30).
        dead_letter: name of the dead-letter queue.
        note_flow: told the sender and destination of each message that is accepted; None: they are not
            counted.
        incarnation: begins every message-id, so that none comes again after a restart (D.20). No space, no
            colon, no backslash.
    """

    limits: Limits
    policies: PolicyTable
    access: AccessPolicy
    account: Account
    journal: Journal | None
    # They begin above those of earlier runs, as the store's rows are found by them.
    numbers: Numbers
    wall_offset: float
    kinds: dict[str, DestinationKind] = field(default_factory=lambda: kinds_by_prefix(("X/",)))
    key_of: Callable[[str], str] | None = None
    dead_letter: str = DEAD_LETTER_QUEUE
    incarnation: str = "m"
    note_flow: Callable[[str, str], None] | None = None

    def kind_of(self, destination: str) -> DestinationKind:
        """What a destination is, by its name (D.10)."""
        return next((self.kinds[each] for each in self.kinds if destination.startswith(each)), QUEUE_KIND)
