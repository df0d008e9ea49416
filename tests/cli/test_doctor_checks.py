"""What `nebula doctor` concludes from facts, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nebula.cli.doctor import machine_checks as machines
from nebula.cli.doctor import site_checks as sites
from nebula.cli.doctor.facts import (
    Build,
    Certificate,
    Clock,
    DiskFacts,
    InstanceFacts,
    LimitFacts,
    ListenerFacts,
    QueueFacts,
    RightsFacts,
    SettingsFacts,
    StatusFacts,
    SyncTimes,
)
from nebula.cli.doctor.findings import Finding, Outcome, Problem, found, listed, worst

GB = 1_000_000_000
DAY = 86_400.0
NOW = 1_800_000_000.0

DISK = DiskFacts("ext4", 10 * GB, GB, 4)
LIMITS = LimitFacts(
    open_files=16_384,
    wanted_files=10_200,
    memory_bytes=4 * GB,
    counted_bytes=2 * GB,
    backlog=4_096,
    ports=(32_768, 60_999),
    listening=(61_613,),
)
RIGHTS = RightsFacts(
    is_open=False,
    capabilities=2,
    identities=3,
    unused_capabilities=(),
    without_rights=(),
    unknown_verbs=(),
    unmatched=(),
    anonymous_verbs=(),
)
OPEN = replace(RIGHTS, is_open=True, anonymous_verbs=("queue.purge",))
INSTANCE = InstanceFacts("prices", "i1", "1.0", "abc", 0.01, ())
STATUS = StatusFacts(None, 0, 0, {"memory": (0.1, 0)}, 0.001)
LOOPBACK = ListenerFacts("stomp://127.0.0.1:61613", is_loopback=True, is_anonymous=True)
WORLD = ListenerFacts("stomp://0.0.0.0:61613", is_loopback=False, is_anonymous=True)
CLOSED = replace(WORLD, is_anonymous=False)


def build(who: str, nebula: str = "0.2.0", python: str = "3.11.7", kind: str = "compiled") -> Build:
    return Build(who, nebula, python, kind)


def clock(ahead: float, uncertainty: float = 0.1) -> Clock:
    return Clock("the broker", ahead, uncertainty)


def certificates(*ends_at: float) -> Finding:
    own = [Certificate(f"certificate {number}", each) for number, each in enumerate(ends_at)]
    return sites.check_certificates("certificates.broker", own, NOW, "none")


def queue(name: str, depth: int, consumers: int) -> QueueFacts:
    return QueueFacts(name, depth, 0, consumers)


# Each: what is found fine, something that is a warning, and something that is an error; None: no such thing.
Case = tuple[Callable[[], Finding], Callable[[], Finding] | None, Callable[[], Finding] | None]
CASES: dict[str, Case] = {
    "versions.nebula": (
        lambda: machines.check_versions([build("a"), build("b")]),
        lambda: machines.check_versions([build("a"), build("b", nebula="0.1.0")]),
        None,
    ),
    "versions.python": (
        lambda: machines.check_pythons([build("a"), build("b", python="3.11.2")]),
        lambda: machines.check_pythons([build("a"), build("b", python="3.13.1")]),
        None,
    ),
    "versions.build": (
        lambda: machines.check_builds([build("a"), build("b", kind="interpreted")]),
        None,
        None,
    ),
    "versions.store": (
        lambda: machines.check_schema(DISK, 4),
        lambda: machines.check_schema(DISK, 5),
        lambda: machines.check_schema(DISK, 3),
    ),
    "clocks": (
        lambda: machines.check_clocks([clock(-0.5)]),
        lambda: machines.check_clocks([clock(0), clock(-3.0)]),
        lambda: machines.check_clocks([clock(600)]),
    ),
    "disk.sync": (
        lambda: machines.check_sync(SyncTimes(0.002, 5.0, 100)),
        lambda: machines.check_sync(SyncTimes(0.03, 0.04, 30)),
        lambda: machines.check_commits(0.5),
    ),
    "disk.space": (
        lambda: machines.check_free_space(DISK),
        lambda: machines.check_free_space(replace(DISK, free_bytes=2 * GB)),
        lambda: machines.check_free_space(replace(DISK, free_bytes=GB - 1)),
    ),
    "disk.filesystem": (
        lambda: machines.check_file_system(DISK),
        None,
        lambda: machines.check_file_system(replace(DISK, file_system="nfs4")),
    ),
    "limits.files": (
        lambda: machines.check_files(LIMITS),
        lambda: machines.check_files(replace(LIMITS, open_files=1_024)),
        None,
    ),
    "limits.memory": (
        lambda: machines.check_memory(LIMITS),
        lambda: machines.check_memory(replace(LIMITS, memory_bytes=2_500_000_000)),
        lambda: machines.check_memory(replace(LIMITS, memory_bytes=GB)),
    ),
    "limits.backlog": (
        lambda: machines.check_backlog(LIMITS),
        lambda: machines.check_backlog(replace(LIMITS, backlog=128)),
        None,
    ),
    "limits.ports": (
        lambda: machines.check_ports(LIMITS),
        lambda: machines.check_ports(replace(LIMITS, listening=(40_000,))),
        None,
    ),
    "certificates.broker": (
        lambda: certificates(NOW + 90 * DAY),
        lambda: certificates(NOW + 90 * DAY, NOW + 29 * DAY),
        lambda: certificates(NOW + 90 * DAY, NOW - 1),
    ),
    "rights.configured": (
        lambda: sites.check_openness(RIGHTS, [WORLD]),
        lambda: sites.check_openness(OPEN, [LOOPBACK, WORLD]),
        None,
    ),
    "rights.anonymous": (
        lambda: sites.check_anonymous(OPEN, [LOOPBACK, CLOSED]),
        lambda: sites.check_anonymous(RIGHTS, [LOOPBACK, WORLD]),
        lambda: sites.check_anonymous(OPEN, [WORLD]),
    ),
    "rights.capabilities": (
        lambda: sites.check_capabilities(RIGHTS),
        lambda: sites.check_capabilities(replace(RIGHTS, unused_capabilities=("Audit",))),
        None,
    ),
    "rights.principals": (
        lambda: sites.check_principals(RIGHTS),
        lambda: sites.check_principals(replace(RIGHTS, without_rights=("till-7",))),
        None,
    ),
    "rights.grants": (
        lambda: sites.check_grants(replace(RIGHTS, unmatched=("Read: /queue/later",))),
        lambda: sites.check_grants(replace(RIGHTS, unknown_verbs=("Operate: dlq.lsit",))),
        None,
    ),
    "queues.consumers": (
        lambda: sites.check_consumers(
            [queue("/queue/a", 3, 1), queue("/queue/b", 0, 0), queue("/queue/DLQ", 2, 0)], "/queue/DLQ"
        ),
        None,
        lambda: sites.check_consumers([queue("/queue/a", 3, 0)], "/queue/DLQ"),
    ),
    "queues.dead": (
        lambda: sites.check_dead_letters(STATUS),
        lambda: sites.check_dead_letters(replace(STATUS, dead_letters=3)),
        None,
    ),
    "broker.alarms": (
        lambda: sites.check_alarms(STATUS),
        lambda: sites.check_alarms(replace(STATUS, pools={"memory": (0.9, 0), "disk": (0.1, 4)})),
        lambda: sites.check_alarms(replace(STATUS, not_ready="the disk is nearly full")),
    ),
    "services.instances": (
        lambda: sites.check_instances([INSTANCE], ["prices"]),
        None,
        lambda: sites.check_instances([INSTANCE], ["orders", "prices"]),
    ),
    "services.ping": (
        lambda: sites.check_pings([INSTANCE]),
        lambda: sites.check_pings([replace(INSTANCE, seconds=3.0)]),
        lambda: sites.check_pings([INSTANCE, replace(INSTANCE, name="i2", seconds=None)]),
    ),
    "services.health": (
        lambda: sites.check_health([INSTANCE, replace(INSTANCE, failing=None)]),
        None,
        lambda: sites.check_health([replace(INSTANCE, failing=("database",))]),
    ),
    "services.versions": (
        lambda: sites.check_service_versions([INSTANCE, replace(INSTANCE, service="orders", version="2")]),
        lambda: sites.check_service_versions([INSTANCE, replace(INSTANCE, name="i2", version="1.1")]),
        None,
    ),
    "settings.file": (
        lambda: sites.check_settings(SettingsFacts((), (), ())),
        lambda: sites.check_settings(SettingsFacts((), ("data",), ())),
        lambda: sites.check_settings(SettingsFacts(("log_level",), (), ("top level: unknown setting",))),
    ),
    "settings.files": (
        lambda: sites.check_stale_files(()),
        lambda: sites.check_stale_files(("[identity] users",)),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_fine_is_ok_and_asks_for_nothing(name: str) -> None:
    finding = CASES[name][0]()

    assert (finding.check, finding.outcome, finding.to_do) == (name, Outcome.OK, "")
    assert finding.found


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1]])
def test_what_will_go_wrong_is_a_warning_with_a_cure(name: str) -> None:
    make = CASES[name][1]
    assert make is not None
    finding = make()

    assert (finding.check, finding.outcome) == (name, Outcome.WARNING)
    assert finding.found
    assert finding.to_do


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_what_is_wrong_is_an_error_with_a_cure(name: str) -> None:
    make = CASES[name][2]
    assert make is not None
    finding = make()

    assert (finding.check, finding.outcome) == (name, Outcome.ERROR)
    assert finding.found
    assert finding.to_do


# --- single judgements ---


def test_clock_is_not_blamed_for_a_slow_answer() -> None:
    # It may be right: the answer may have been made at the end of those 8 seconds.
    assert machines.check_clocks([clock(4.0, 4.0)]).outcome is Outcome.OK
    assert machines.check_clocks([clock(4.0, 1.0)]).outcome is Outcome.WARNING


def test_clock_says_which_way_it_is_wrong() -> None:
    ahead, behind = machines.check_clocks([clock(60)]), machines.check_clocks([clock(-60)])

    assert "the clock of the broker is 1 m 0 s ahead of our clock" in ahead.found
    assert "1 m 0 s behind our clock" in behind.found


@pytest.mark.parametrize(("kind", "word"), [("tmpfs", "memory"), ("overlay", "container"), ("cifs", "locks")])
def test_file_system_is_refused_with_its_reason(kind: str, word: str) -> None:
    finding = machines.check_file_system(replace(DISK, file_system=kind))

    assert finding.outcome is Outcome.ERROR
    assert word in finding.found


@pytest.mark.parametrize(
    "finding",
    [
        machines.check_file_system(replace(DISK, file_system=None)),
        machines.check_free_space(replace(DISK, free_bytes=None)),
        machines.check_memory(replace(LIMITS, memory_bytes=None)),
        machines.check_backlog(replace(LIMITS, backlog=None)),
        machines.check_ports(replace(LIMITS, ports=None)),
        machines.check_clocks([]),
    ],
    ids=lambda finding: str(finding.check),
)
def test_fact_that_the_system_does_not_tell_is_skipped(finding: Finding) -> None:
    assert finding.outcome is Outcome.SKIPPED
    assert finding.found


def test_machine_without_limits_is_fine() -> None:
    assert machines.check_files(replace(LIMITS, open_files=None)).outcome is Outcome.OK
    assert machines.check_schema(replace(DISK, schema=None), 4).outcome is Outcome.OK
    assert machines.check_commits(None).outcome is Outcome.OK


def test_few_ports_for_outgoing_connections_are_a_warning() -> None:
    assert machines.check_ports(replace(LIMITS, ports=(50_000, 55_000))).outcome is Outcome.WARNING


def test_broker_without_rights_on_loopback_is_fine() -> None:
    assert sites.check_openness(OPEN, [LOOPBACK]).outcome is Outcome.OK


def test_anonymous_peers_of_this_machine_that_may_operate_are_a_warning_where_rights_are_configured() -> None:
    granted = replace(RIGHTS, anonymous_verbs=("queue.purge",))

    assert sites.check_anonymous(granted, [LOOPBACK]).outcome is Outcome.WARNING
    assert sites.check_anonymous(None, [LOOPBACK]).outcome is Outcome.OK
    assert "queue.purge" in sites.check_anonymous(granted, [WORLD]).found


def test_certificates_tell_the_first_that_ends() -> None:
    assert certificates(NOW + 90 * DAY, NOW + 40 * DAY).found == "valid for 40 days (certificate 1)"
    assert certificates().found == "none"


def test_instances_with_other_contracts_are_unlike() -> None:
    other = replace(INSTANCE, name="i2", contracts="def")

    finding = sites.check_service_versions([INSTANCE, other])
    assert (finding.outcome, finding.found) == (Outcome.WARNING, "prices has different contracts")
    # Without a hash nothing is known of it.
    unknown = replace(INSTANCE, name="i2", contracts="")
    assert sites.check_service_versions([INSTANCE, unknown]).outcome is Outcome.OK


def test_many_unread_queues_are_counted() -> None:
    finding = sites.check_consumers([queue(f"/queue/{number}", 1, 0) for number in range(8)], "/queue/DLQ")

    assert finding.found.endswith("/queue/4 (1) and 3 more")


# --- findings ---


def test_finding_is_as_bad_as_its_worst_problem_and_names_each_cure_once() -> None:
    problems = [
        Problem(Outcome.WARNING, "a", "restart"),
        Problem(Outcome.ERROR, "b", "restart"),
        Problem(Outcome.WARNING, "c", "reload"),
    ]

    assert found("x", "fine", problems) == Finding("x", Outcome.ERROR, "a; b; c", "restart; reload")
    assert found("x", "fine", []) == Finding("x", Outcome.OK, "fine")


def test_worst_of_nothing_is_skipped() -> None:
    assert worst([]) is Outcome.SKIPPED
    assert worst([Outcome.OK, Outcome.SKIPPED]) is Outcome.OK


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
