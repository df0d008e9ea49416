"""Limits on what jobs may cost: queue, disk, time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

__all__ = ["JobLimits"]

# Within two thirds of it a database has to be reached, and libpq takes 2 s for what is less.
_SHORTEST_LEASE: Final = 3.0


# Where instances share a registry, `max_queued`, `keep_jobs`, `max_stored_bytes` and `owner_share` hold for
# all of them together: they are checked in the one table, or in the scheduler, which knows the whole queue.
@dataclass(frozen=True, slots=True)
class JobLimits:
    """Numbers that bound what jobs may cost. Times are seconds.

    Attributes:
        max_queued: waiting jobs; above it requests are refused as `busy`. See `owner_share`.
        check_timeout: for a verb's `check`.
        cancel_grace: for a cancelled job to end, before it is called cancelled although its code runs on.
        keep_for: how long an ended job is remembered.
        keep_jobs: how many ended jobs are remembered. Above it, the oldest are removed of the owners with the
            most.
        max_stored_bytes: bytes of all jobs in the registry: parameters, results that are values, previews,
            logs. Above it, ended jobs are removed: of the owner with the most bytes first, the oldest first.
            If none can be removed, new jobs are refused as `busy`.
        owner_share: fraction of `max_stored_bytes` that the open jobs of one owner may take, and of
            `max_queued` that its waiting jobs may; above it the owner's requests are refused as `busy`. Above
            0, at most 1.
        min_free_disk_bytes: free space to leave on the registry's disk, if it is a disk of this machine;
            below it requests are refused as `busy`.
        max_waiting: callers of `job.wait`, `job.result` and `job.log` that are kept waiting at once; others
            get a reply at once.
        lease: for an instance that shares its registry with others: after this time without a sign of life
            the others take over its jobs. It ends its own runs after two thirds of that time without a reply.
            3 at least.
        adopt_every: between two looks for folders that no instance uses any more; their open jobs are taken
            over.

    Raises:
        ValueError: one is below 0, `owner_share` above 1, or `lease` too short.
    """

    max_queued: int = 2000
    check_timeout: float = 2.0
    cancel_grace: float = 10.0
    keep_for: float = 30 * 86400.0
    keep_jobs: int = 10_000
    max_stored_bytes: int = 4 * 1024**3
    owner_share: float = 0.5
    min_free_disk_bytes: int = 256 * 1024**2
    max_waiting: int = 32
    lease: float = 30.0
    adopt_every: float = 20.0

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) < 0:
                raise ValueError(f"{one.name} is {getattr(self, one.name)}: 0 or more is wanted")
        if self.owner_share > 1:
            raise ValueError(f"owner_share is {self.owner_share}: 1 at most is wanted")
        # Other limits may be 0: no grace, no waiting callers, no space left free. With one of these at 0,
        # jobs would be refused, or (`adopt_every`) the disk searched without a pause.
        for name in ("check_timeout", "adopt_every", "max_stored_bytes", "owner_share"):
            if not getattr(self, name):
                raise ValueError(f"{name} is 0: more is wanted")
        # `RegistryAccess` gives a transaction a third of the lease, and a connection half of that.
        if self.lease < _SHORTEST_LEASE:
            raise ValueError(
                f"lease is {_SHORTEST_LEASE:g} s or more, not {self.lease:g}: an instance gives itself up "
                "after two thirds of it, and may need 2 s to connect to its database"
            )
