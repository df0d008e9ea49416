"""Facts about the machine, read from folders in place of `/proc` and `/sys/fs/cgroup`."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.broker.operations.machine import file_system_of, read_limits

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / {root}/data rw,relatime - nfs4 server:/export rw
31 22 0:26 / {root}/with\\040space rw - tmpfs tmpfs rw
32 30 0:27 / {root}/data rw,relatime shared:5 master:2 - xfs /dev/sdb1 rw
"""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    proc = tmp_path / "proc"
    write(proc / "self" / "mountinfo", MOUNTS.format(root=tmp_path))
    write(proc / "sys" / "net" / "core" / "somaxconn", "4096\n")
    write(proc / "sys" / "net" / "ipv4" / "ip_local_port_range", "32768\t60999\n")
    return proc


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("elsewhere", "ext4"),
        ("data", "xfs"),
        ("data/broker", "xfs"),
        ("database", "ext4"),
        ("with space", "tmpfs"),
    ],
)
def test_file_system_is_that_of_the_innermost_mount(
    proc: Path, tmp_path: Path, folder: str, kind: str
) -> None:
    assert file_system_of(tmp_path / folder, proc=proc) == kind


@pytest.mark.parametrize("text", ["", "nonsense\n", "1 2 3\n"])
def test_unreadable_mounts_are_not_known(tmp_path: Path, text: str) -> None:
    write(tmp_path / "self" / "mountinfo", text)

    assert file_system_of(tmp_path, proc=tmp_path) is None
    assert file_system_of(tmp_path, proc=tmp_path / "missing") is None


def test_limits_of_the_network_are_read(proc: Path, tmp_path: Path) -> None:
    limits = read_limits(proc=proc, cgroups=tmp_path)

    assert (limits.backlog, limits.ports) == (4096, (32768, 60999))


def test_limits_that_the_system_does_not_tell_are_not_known(tmp_path: Path) -> None:
    limits = read_limits(proc=tmp_path, cgroups=tmp_path)

    assert (limits.backlog, limits.ports) == (None, None)


def test_memory_is_that_of_the_tightest_control_group(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    write(proc / "self" / "cgroup", "0::/system.slice/nebula.service\n")
    write(groups / "memory.max", "max\n")
    write(groups / "system.slice" / "memory.max", "3000000\n")
    write(groups / "system.slice" / "nebula.service" / "memory.max", "5000000\n")

    assert read_limits(proc=proc, cgroups=groups).memory_bytes == 3_000_000


def test_memory_of_the_first_version_of_control_groups_is_read_too(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    write(proc / "self" / "cgroup", "5:cpu,memory:/box\n1:name=systemd:/\n")
    write(groups / "memory" / "memory.limit_in_bytes", "9223372036854771712\n")
    write(groups / "memory" / "box" / "memory.limit_in_bytes", "4000000\n")

    assert read_limits(proc=proc, cgroups=groups).memory_bytes == 4_000_000


def test_without_a_control_group_the_memory_is_that_of_the_machine(proc: Path, tmp_path: Path) -> None:
    found = read_limits(proc=proc, cgroups=tmp_path).memory_bytes

    assert found is not None
    assert found > 100_000_000
