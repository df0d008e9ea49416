"""Capacity of a registry: when a new one is refused, and whose ended jobs are removed for it.

All jobs together take at most `max_stored_bytes`. When that is reached, ended jobs of the owner with the most
bytes are removed, the oldest first, down to what the requesting owner has: no owner loses jobs to an owner
that has more. If the requesting owner itself has the most, its own jobs are removed. Open jobs cannot be
removed, so those of one owner may take at most `owner_share` of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from nebula.logs import get_logger
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.registry.registry import Disk, JobRegistry, Kept, OwnerBytes
from nebula.rpc.jobs.registry.rows import row_of, size_of

__all__ = ["Capacity", "NoRoom", "Wanted", "share_out"]

_log = get_logger(__name__)

# This much more than needed is freed, because sharing out has to read all owners.
_SLACK: Final = 64

# With less free space than this multiple of the minimum, the registry's file does not grow: otherwise one
# owner could fill the disk up to the minimum and have all others refused. New jobs then have to fit into the
# spare room of the file.
_NEARLY: Final = 1.5

# The most that a row takes of spare pages, which it need not fill.
_PAGED: Final = 2

# Needed before the disk counts as having room again, so that removing a small file does not make it flap.
_ENOUGH: Final = 1.25


class Wanted(NamedTuple):
    """Bytes that a new job of an owner takes."""

    owner: str
    bytes: int


class NoRoom(VerbError):
    """The registry has no room for the job unless ended ones are removed."""

    code = "busy"
    retryable = True

    def __init__(self, message: str, wanted: Wanted) -> None:
        super().__init__(message)
        self.wanted = wanted


class Capacity:
    """Decides on the capacity for the jobs of one service. Call its methods in the registry's thread.

    Args:
        service: its name.
        limits: of jobs.
    """

    def __init__(self, service: str, limits: JobLimits) -> None:
        self._service, self._limits = service, limits
        self._is_low = False

    def require(self, registry: JobRegistry, draft: JobRecord) -> None:
        """Check that there is room for a new job.

        Raises:
            NoRoom: ended jobs have to be removed first.
            VerbError: `busy`: the disk is nearly full, or the owner's open jobs take their share.
        """
        disk = registry.disk()
        self._require_disk(disk)
        size = size_of(row_of(draft))
        share = int(self._limits.max_stored_bytes * self._limits.owner_share)
        if registry.stored_by(draft.owner).held_bytes + size > share:
            taken = f"the open jobs of {draft.owner or 'all callers'}"
            raise VerbError("busy", f"{taken} take their share of the room, {share:,} bytes; try later")
        stored = registry.stored_bytes()
        most, is_paged = self._most_bytes(stored, disk)
        wanted = Wanted(draft.owner, _PAGED * size if is_paged else size)
        if stored + wanted.bytes > most:
            raise NoRoom(
                f"the jobs of {self._service} take all of their room, {most:,} bytes; try later", wanted
            )

    def choose(
        self, registry: JobRegistry, wanted: Wanted | None, may_go: Callable[[Kept], bool]
    ) -> list[Kept]:
        """The ended jobs to remove, chosen as described above; none if that would not suffice.

        Args:
            registry: has the jobs.
            wanted: bytes for a new job; None: only what is above the maximum is removed, as far as possible.
            may_go: whether this instance may remove a job.
        """
        stored = registry.stored_bytes()
        most, _ = self._most_bytes(stored, registry.disk())
        if stored + (0 if wanted is None else wanted.bytes) <= most:
            return []
        found: list[Kept] = []
        for owner, given_up in share_out(registry.owners(), most, wanted).items():
            missing = given_up
            for job in registry.may_make_way(owner):
                if missing <= 0:
                    break
                if may_go(job):
                    found.append(job)
                    missing -= job.bytes
        return found

    def _most_bytes(self, stored: int, disk: Disk | None) -> tuple[int, bool]:
        """How many bytes all jobs may take, and whether that is because the disk is nearly full."""
        most = self._limits.max_stored_bytes
        if disk is None:
            return most, False
        growth = max(0, disk.free_bytes - int(_NEARLY * self._limits.min_free_disk_bytes))
        # Bytes of removed rows stay in the file as spare pages: they count as room even if the disk has
        # none.
        there = stored + disk.spare_bytes + growth
        return min(most, there), there < most

    def _require_disk(self, disk: Disk | None) -> None:
        if disk is None:
            return
        least = self._limits.min_free_disk_bytes
        is_low = disk.free_bytes < least * (_ENOUGH if self._is_low else 1.0)
        if is_low and not self._is_low:
            _log.error(
                "disk nearly full, no jobs taken",
                service=self._service,
                free_bytes=disk.free_bytes,
                min_free_disk_bytes=least,
            )
        elif self._is_low and not is_low:
            _log.warning("disk has room for jobs again", service=self._service, free_bytes=disk.free_bytes)
        self._is_low = is_low
        if is_low:
            raise VerbError("busy", f"the disk of {self._service} is nearly full, try later")


# Fairness by a level, as water finds it: all owners above the level are cut down to it, those below keep
# everything. So an owner with little never loses a job because another one has much. An owner's own new
# job may not push others below what that owner would then have (`least`).
def share_out(owners: Sequence[OwnerBytes], most: int, wanted: Wanted | None) -> Mapping[str, int]:
    """How many bytes each owner has to give up, so that all together, with what is wanted, take `most`.

    Somewhat more than needed is given up, if possible.

    Args:
        owners: all of them, and what they have.
        most: bytes for all.
        wanted: bytes for a new job. Nothing is given up if it would not get its room. None: as much as
            possible is given up, but each owner keeps an equal share.
    """
    have = {one.owner: one for one in owners}
    size = 0 if wanted is None else wanted.bytes
    aim = most - most // _SLACK - size
    if wanted is None:
        least = most // max(1, len(owners))
    else:
        least = have.get(wanted.owner, OwnerBytes(wanted.owner)).bytes + size
    level = _level(owners, aim, least)
    gives = {one.owner: one.bytes - _left(one, level) for one in owners if _left(one, level) < one.bytes}
    left = sum(one.bytes for one in owners) - sum(gives.values())
    if wanted is not None and left > aim and (own := have.get(wanted.owner)) is not None:
        gives[own.owner] = min(own.bytes - own.held_bytes, left - aim)
        left -= gives[own.owner]
    return gives if wanted is None or left + size <= most else {}


def _left(one: OwnerBytes, level: int) -> int:
    return max(min(one.bytes, level), one.held_bytes)


def _level(owners: Sequence[OwnerBytes], aim: int, least: int) -> int:
    """The bytes to which the largest owners are cut down: as many as possible, and at least `least`."""
    # By bisection: the sum grows with the level, and there may be many owners.
    low, high = least, max((one.bytes for one in owners), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_left(one, middle) for one in owners) <= aim:
            low = middle
        else:
            high = middle - 1
    return low
