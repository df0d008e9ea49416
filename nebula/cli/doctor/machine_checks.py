"""Judgements about the machine: versions, clocks, disk, limits of the system. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from nebula.cli.doctor.facts import Build, Clock, DiskFacts, LimitFacts, SyncTimes
from nebula.cli.doctor.findings import Finding, Outcome, Problem, found, listed
from nebula.cli.tables import byte_size, duration, latency, number

__all__ = [
    "check_backlog",
    "check_builds",
    "check_clocks",
    "check_commits",
    "check_file_system",
    "check_files",
    "check_free_space",
    "check_memory",
    "check_ports",
    "check_pythons",
    "check_schema",
    "check_sync",
    "check_versions",
]  # fmt: skip

# Tokens and certificates are compared with clocks; the broker allows tokens 10 s.
_CLOCK_WARNING: Final = 2.0
_CLOCK_ERROR: Final = 10.0

# A persistent message is acknowledged when its batch is on the disk. SSDs take 0.1 to 5 ms.
_SLOW_SYNC: Final = 0.02
_VERY_SLOW_SYNC: Final = 0.2

# SQLite's log needs memory shared by all programs on the machine and locks that work, which these lack
# (https://sqlite.org/wal.html).
_REMOTE: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs"}
)
_VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
_LAYERED: Final = frozenset({"overlay", "aufs", "fuse.fuse-overlayfs"})

# Of what the broker counts: Python needs more for the same messages, and for what it has freed.
_MEMORY_FACTOR: Final = 1.5
# `listen` of the broker asks for as many.
_BACKLOG: Final = 1024
_FEW_PORTS: Final = 10_000


def check_versions(builds: Sequence[Build]) -> Finding:
    """One version of Nebula everywhere."""
    by_version = _grouped((each.nebula, each.who) for each in builds)
    problems = []
    if len(by_version) > 1:
        what = "; ".join(f"{version}: {listed(who)}" for version, who in sorted(by_version.items()))
        problems = [Problem(Outcome.WARNING, what, "bring all of them to one version, the broker first")]
    return found("versions.nebula", f"Nebula {next(iter(by_version), '')} everywhere", problems)


def check_pythons(builds: Sequence[Build]) -> Finding:
    """One version of Python, as far as its first two numbers go."""
    by_version = _grouped((".".join(each.python.split(".")[:2]), each.who) for each in builds)
    problems = []
    if len(by_version) > 1:
        what = "; ".join(f"Python {version}: {listed(who)}" for version, who in sorted(by_version.items()))
        # Different versions work together; but a bug may show on one machine only.
        problems = [Problem(Outcome.WARNING, what, "bring the programs to one version of Python")]
    return found("versions.python", f"Python {next(iter(by_version), '')} everywhere", problems)


def check_builds(builds: Sequence[Build]) -> Finding:
    """Compiled and interpreted modules; both are fine, and the mixture is worth knowing."""
    by_build = _grouped((each.build, each.who) for each in builds)
    return found(
        "versions.build", "; ".join(f"{build}: {listed(who)}" for build, who in sorted(by_build.items()))
    )


def check_schema(disk: DiskFacts, known: int) -> Finding:
    """The store's tables are those that this program knows.

    Args:
        disk: with the version of the store.
        known: the version that this program writes.
    """
    if disk.schema is None:
        return Finding("versions.store", Outcome.OK, "there is no store yet")
    problems = []
    if disk.schema > known:
        what = f"the store has version {disk.schema}, and this program knows {known}"
        problems = [
            Problem(Outcome.ERROR, what, "install the version of Nebula that wrote it, or a newer one")
        ]
    elif disk.schema < known:
        what = f"the store has version {disk.schema}; a broker of this version makes it {known}"
        problems = [
            Problem(
                Outcome.WARNING, what, "make a backup before the upgrade: there is no way back without it"
            )
        ]
    return found("versions.store", f"version {disk.schema}", problems)


def check_clocks(clocks: Sequence[Clock]) -> Finding:
    """Clocks agree with ours, as far as the time of the answers allows to say."""
    if not clocks:
        return Finding("clocks", Outcome.SKIPPED, "no program reported its time")
    furthest = max(clocks, key=lambda clock: abs(clock.ahead_seconds))
    fine = f"within {duration(abs(furthest.ahead_seconds) + furthest.uncertainty_seconds)} of our clock"
    return found("clocks", fine, _wrong_clocks(clocks))


def _wrong_clocks(clocks: Iterable[Clock]) -> Iterator[Problem]:
    for clock in clocks:
        # At least: the answer may have been made at either end of the time that it took.
        off = abs(clock.ahead_seconds) - clock.uncertainty_seconds
        if off < _CLOCK_WARNING:
            continue
        way = "ahead of" if clock.ahead_seconds > 0 else "behind"
        yield Problem(
            Outcome.ERROR if off >= _CLOCK_ERROR else Outcome.WARNING,
            f"the clock of {clock.who} is {duration(abs(clock.ahead_seconds))} {way} our clock",
            "let NTP set the clocks of all machines (timedatectl set-ntp true)",
        )


def check_sync(times: SyncTimes) -> Finding:
    """The store's disk is quick to confirm what was written."""
    median, longest = latency(times.median_seconds), latency(times.longest_seconds)
    fine = f"median {median}, longest {longest}, of {times.count} writes"
    return found("disk.sync", fine, _slow_disk(times.median_seconds, fine))


def check_commits(seconds: float | None) -> Finding:
    """The same by the broker's own count, where its disk is not ours."""
    if seconds is None:
        return Finding("disk.sync", Outcome.OK, "the store has written nothing yet")
    fine = f"a batch takes {latency(seconds)} on average since the broker started"
    return found("disk.sync", fine, _slow_disk(seconds, fine))


def _slow_disk(seconds: float, what: str) -> list[Problem]:
    if seconds < _SLOW_SYNC:
        return []
    outcome = Outcome.ERROR if seconds >= _VERY_SLOW_SYNC else Outcome.WARNING
    cure = "put the store on a local SSD: each receipt of a persistent message waits for the disk"
    return [Problem(outcome, what, cure)]


def check_free_space(disk: DiskFacts) -> Finding:
    """The disk has room for more than the least that the broker demands."""
    free, least = disk.free_bytes, disk.min_free_bytes
    if free is None:
        return Finding("disk.space", Outcome.SKIPPED, "the free space is not known")
    what = f"{byte_size(free)} free; below {byte_size(least)} persistent messages are refused"
    cure = "make room on the store's disk, or give it a larger one"
    problems = []
    if free < least:
        problems = [Problem(Outcome.ERROR, what, cure)]
    # One more alarm before it happens, while there is time to act.
    elif free < 3 * least:
        problems = [Problem(Outcome.WARNING, what, cure)]
    return found("disk.space", what, problems)


def check_file_system(disk: DiskFacts) -> Finding:
    """The file system keeps what was written, and has locks."""
    kind = disk.file_system
    if kind is None:
        return Finding("disk.filesystem", Outcome.SKIPPED, "the kind of the file system is not known")
    problems = []
    if kind in _REMOTE:
        what = f"the store is on {kind}, where SQLite's locks and shared memory do not work"
        problems = [Problem(Outcome.ERROR, what, "move the store to a local disk or a block device")]
    elif kind in _VOLATILE:
        what = f"the store is on {kind}, in memory: it is lost when the machine restarts"
        problems = [Problem(Outcome.ERROR, what, 'move the store to a disk, or set store = "memory"')]
    elif kind in _LAYERED:
        what = f"the store is on {kind}: it is lost with the container"
        problems = [Problem(Outcome.ERROR, what, "mount a volume for the store's folder")]
    return found("disk.filesystem", kind, problems)


def check_files(limits: LimitFacts) -> Finding:
    """As many files may be open as the limits of the broker need."""
    allowed, wanted = limits.open_files, limits.wanted_files
    if allowed is None:
        return Finding("limits.files", Outcome.OK, "no limit on open files")
    what = f"{number(allowed)} files may be open; the broker's limits need {number(wanted)}"
    cure = (
        "raise the limit (LimitNOFILE of the unit, --ulimit nofile of a container), or lower max_connections"
    )
    return found("limits.files", what, [Problem(Outcome.WARNING, what, cure)] if allowed < wanted else [])


def check_memory(limits: LimitFacts) -> Finding:
    """There is memory for what the broker may hold, and for what Python needs on top."""
    memory = limits.memory_bytes
    if memory is None:
        return Finding("limits.memory", Outcome.SKIPPED, "the memory limit is not known")
    wanted = int(_MEMORY_FACTOR * limits.counted_bytes)
    what = f"{byte_size(memory)} of memory; max_memory_bytes and max_transit_bytes need {byte_size(wanted)}"
    problems = []
    if memory < wanted:
        # Below what it counts itself, it is killed for certain when it fills up.
        outcome = Outcome.ERROR if memory < limits.counted_bytes else Outcome.WARNING
        cure = "raise the limit (MemoryMax of the unit, --memory of a container), or lower max_memory_bytes"
        problems = [Problem(outcome, what, cure)]
    return found("limits.memory", what, problems)


def check_backlog(limits: LimitFacts) -> Finding:
    """All clients may reconnect at once."""
    if limits.backlog is None:
        return Finding("limits.backlog", Outcome.SKIPPED, "net.core.somaxconn is not known")
    what = f"net.core.somaxconn is {number(limits.backlog)}; the broker asks for {number(_BACKLOG)}"
    cure = f"sysctl -w net.core.somaxconn={_BACKLOG}: after a restart all clients connect at once"
    problems = [Problem(Outcome.WARNING, what, cure)] if limits.backlog < _BACKLOG else []
    return found("limits.backlog", what, problems)


def check_ports(limits: LimitFacts) -> Finding:
    """There are ports for outgoing connections, and none of them is one of the broker's."""
    if limits.ports is None:
        return Finding("limits.ports", Outcome.SKIPPED, "net.ipv4.ip_local_port_range is not known")
    first, last = limits.ports
    what = f"ports {first} to {last} are for outgoing connections"
    problems = []
    if last - first + 1 < _FEW_PORTS:
        problems.append(Problem(Outcome.WARNING, f"only {what}", "widen net.ipv4.ip_local_port_range"))
    if taken := [str(port) for port in limits.listening if first <= port <= last]:
        problems.append(
            Problem(
                Outcome.WARNING,
                f"{what}, and the broker's {listed(taken)} may be taken by one of them while it restarts",
                f"sysctl -w net.ipv4.ip_local_reserved_ports={','.join(taken)}, or use another port",
            )
        )
    return found("limits.ports", what, problems)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, who in pairs:
        groups.setdefault(key, []).append(who)
    return groups
