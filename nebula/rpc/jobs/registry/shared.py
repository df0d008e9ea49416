"""Interface to a registry that several instances share, and to the database that has it.

`nebula.extras.postgres` implements it. `JobService` gets the database as an argument: nothing in `nebula.rpc`
knows which one it is.

An instance joins with a lease, and renews it with `beat`. One that has not been heard of for the time of its
lease has lost its jobs: another one's `beat` returns them. Its own writes raise `Fenced` from then on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, Self

from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.registry import JobRegistry

__all__ = ["ChangeListener", "Changes", "Heard", "Notified", "SharedDatabase", "SharedRegistry"]


# Every result has all `ids`, because a deleted row has no change to report.
class Changes(NamedTuple):
    """Changes in the table.

    Attributes:
        records: as they are now, in the order in which they changed.
        unwanted: of these, by ULID, the jobs that a caller has asked another instance to cancel.
        last: to ask for what is newer.
        ids: of all jobs that are open or held.
    """

    records: list[JobRecord]
    unwanted: frozenset[str]
    last: int
    ids: frozenset[str]


class Heard(NamedTuple):
    """Reply to an instance that shows that it lives.

    Attributes:
        orphans: open jobs that no known instance runs, or that none can begin.
        has_lost_others: some instance has just been given up.
        working: the verbs that some instance could run when it was last heard of.
    """

    orphans: list[JobRecord]
    has_lost_others: bool
    working: frozenset[str] = frozenset()


class Notified(NamedTuple):
    """Changes that a listener has heard of.

    Attributes:
        has_changes: jobs of the service have changed.
        grown: the jobs, by ULID, whose logs have grown.
    """

    has_changes: bool
    grown: frozenset[str]


# Instances learn three things of each other, all through the database: whether an instance is alive (its
# lease), what has changed (a number that rises), and which job a caller wants cancelled (a mark on its row).
# Nothing is lost while one of them is away.
class SharedRegistry(JobRegistry):
    """A registry that all instances of a service share."""

    @abstractmethod
    def join(self, name: str, incarnation: str, lease: float) -> list[JobRecord]:
        """Become an instance, in a transaction: returns what an earlier process of this name left open.

        Args:
            name: of the instance; no other process has it now.
            incarnation: of this process.
            lease: seconds for which it need not be heard of.
        """

    @abstractmethod
    def beat(
        self,
        lease: float,
        verbs: Sequence[str],
        *,
        working: Collection[str] | None = None,
        unseen: float | None = None,
    ) -> Heard:
        """Renew the lease, in a transaction, and give up the instances that were not heard of.

        Args:
            lease: seconds from now.
            verbs: those whose orphans the caller can deal with.
            working: those of them that it can run now; by default all.
            unseen: seconds; open jobs without a holder, of verbs that no instance has had for this time, are
                orphans as well. None: they wait on.

        Raises:
            Fenced: this instance has been given up itself.
        """

    @abstractmethod
    def ask_to_cancel(self, job: str) -> None:
        """Have the instance that holds an open job cancel it."""

    @abstractmethod
    def changes(self, after: int | None) -> Changes:
        """Changes since a number, in a transaction; None: all jobs that are open or held."""


class ChangeListener(Protocol):
    """Hears that other instances have changed jobs. What came before it was made is not heard."""

    async def wait(self) -> Notified:
        """Return once another instance has changed jobs of the service or their logs.

        Raises:
            RegistryAway: the connection ended.
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class SharedDatabase(Protocol):
    """A database that has the registries of services. Its methods block."""

    def registry(self, service: str, instance: str, *, patience: float) -> SharedRegistry:
        """Open the registry of a service, and create its tables if they are missing.

        Args:
            service: its name.
            instance: the name of this user of it, for the lists of the server.
            patience: seconds for which a transaction may hang before the server ends it.

        Raises:
            SettingsError: the name is too long, or the tables cannot be made or are of another version.
            RegistryAway: there is no connection.
        """

    def listener(self, registry: SharedRegistry) -> ChangeListener:
        """Listen to changes that are not this registry's own.

        Raises:
            RegistryAway: there is no connection.
        """
