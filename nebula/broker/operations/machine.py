"""Facts about the machine: limits of the process and the system, file systems, memory.

Each is None where the system does not tell it, as outside Linux.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["SystemLimits", "file_system_of", "read_limits"]

_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")
# `max`, and what version 1 of control groups has for it, are no limits.
_ANY_BYTES: Final = 1 << 60

# mountinfo writes spaces and the like as octal numbers, see proc(5).
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class SystemLimits:
    """What the system lets this process have.

    Attributes:
        open_files: it may open; None: any number, or not known.
        memory_bytes: of its control group, or of the machine.
        backlog: connections that may wait at a listener (`somaxconn`).
        ports: first and last port of outgoing connections.
    """

    open_files: int | None
    memory_bytes: int | None
    backlog: int | None
    ports: tuple[int, int] | None


def read_limits(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> SystemLimits:
    """The limits now.

    Args:
        proc: in place of `/proc`.
        cgroups: in place of `/sys/fs/cgroup`.
    """
    sysctl = proc / "sys" / "net"
    backlog = _numbers(sysctl / "core" / "somaxconn")
    ports = _numbers(sysctl / "ipv4" / "ip_local_port_range")
    return SystemLimits(
        _open_files(),
        _memory_bytes(proc, cgroups),
        backlog[0] if backlog else None,
        (ports[0], ports[1]) if len(ports) == 2 else None,
    )


def file_system_of(folder: Path, *, proc: Path = _PROC) -> str | None:
    """The kind of the file system that holds a folder, such as `ext4`; None: it is not known."""
    with suppress(OSError, ValueError, IndexError):
        place = folder.resolve()
        found = ("", "")
        for line in (proc / "self" / "mountinfo").read_text().splitlines():
            # proc(5): the fields before ` - ` vary in number; the fifth is the mount point.
            before, _, after = line.partition(" - ")
            mount = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before.split()[4])
            # The last one of equal length counts, because a mount hides those before it.
            if place.is_relative_to(mount) and len(mount) >= len(found[0]):
                found = (mount, after.split()[0])
        return found[1] or None
    return None


def _open_files() -> int | None:
    # Not there on Windows, where only clients run.
    try:
        import resource
    except ImportError:
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _memory_bytes(proc: Path, cgroups: Path) -> int | None:
    limits = [bytes_ for bytes_ in (*_cgroup_limits(proc, cgroups), _physical_bytes()) if bytes_ is not None]
    return min(limits, default=None)


def _cgroup_limits(proc: Path, cgroups: Path) -> list[int]:
    """The limits of our control group and of those above it."""
    found: list[int] = []
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            number, kinds, name = line.split(":", 2)
            # Version 2 has one tree and the number 0; version 1 has a tree for each kind.
            if number == "0":
                root, file = cgroups, "memory.max"
            elif "memory" in kinds.split(","):
                root, file = cgroups / "memory", "memory.limit_in_bytes"
            else:
                continue
            group = root / name.lstrip("/")
            # In a container the name may be of the host's tree, and then only the root is ours.
            for folder in (group, *group.parents):
                found += [number for number in _numbers(folder / file) if number < _ANY_BYTES]
                if folder == root:
                    break
    return found


def _physical_bytes() -> int | None:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _numbers(file: Path) -> list[int]:
    try:
        return [int(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []
