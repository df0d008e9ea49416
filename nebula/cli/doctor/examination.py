"""The examination of a running set-up: all checks in order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nebula.broker.store.sqlite_schema import VERSION
from nebula.cli.doctor import local
from nebula.cli.doctor import machine_checks as machines
from nebula.cli.doctor import site_checks as sites
from nebula.cli.doctor.facts import LimitFacts
from nebula.cli.doctor.findings import Finding, Known, Outcome, Unknown, skipped
from nebula.cli.doctor.gathering import Machine, Site
from nebula.environment import BrokerEnvironment
from nebula.stomp.client.ambient import broker_address
from nebula.stomp.client.tls import TlsOptions

if TYPE_CHECKING:
    from nebula.stomp.client.addresses import Address

__all__ = ["Plan", "check_disk", "check_limits", "examine_broker", "own_files", "unreached"]

_NO_CA: Final = "no CA is named: those of this machine are trusted"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is examined.

    Attributes:
        url: of the broker, as for `Client`.
        data: the folder of the store; None: where the broker, or its settings, have it.
        config: a file of settings for a broker that does not run yet; None: as `nebula broker` finds it.
        services: that must have instances.
        seconds: that each question may take.
    """

    url: str | None
    data: Path | None
    config: Path | None
    services: Sequence[str]
    seconds: float


def examine_broker(plan: Plan, site: Site) -> Iterator[Finding]:
    """Judge what a running broker and its services have told, and what can be seen from here."""
    yield Finding("broker.connection", Outcome.OK, f"connected to {broker_address(plan.url).place}")
    yield from _status(site)
    yield from _versions(site)
    yield from _clocks(site)
    yield from _broker_disk(plan, site)
    yield from _broker_limits(site.machine)
    yield from _certificates(plan, site.machine)
    yield from _rights(site)
    yield from _queues(site)
    yield from _services(plan, site)
    if isinstance(site.settings, Unknown):
        yield skipped("settings.file", site.settings)
    else:
        yield sites.check_settings(site.settings)
    if isinstance(site.machine, Unknown):
        yield skipped("settings.files", site.machine)
    else:
        yield sites.check_stale_files(site.machine.stale_files)


def unreached(plan: Plan, why: str) -> Finding:
    """The finding that there is no connection.

    Args:
        plan: of the examination.
        why: the sentence of the error.
    """
    place = broker_address(plan.url).place
    cure = (
        f"start nebula broker at {place}, or name another broker with --broker; --offline checks this machine"
        " alone"
    )
    return Finding("broker.connection", Outcome.ERROR, why, cure)


# --- the parts of an examination ---


def _status(site: Site) -> Iterator[Finding]:
    if isinstance(site.status, Unknown):
        yield skipped("broker.alarms", site.status)
    else:
        yield sites.check_alarms(site.status)


def _versions(site: Site) -> Iterator[Finding]:
    builds = [local.our_build(), *site.builds]
    if isinstance(site.machine, Unknown):
        # An error has its own finding below; here the other versions still count.
        yield skipped("versions.broker", site.machine)
    else:
        builds.insert(1, site.machine.build)
    yield machines.check_versions(builds)
    yield machines.check_pythons(builds)
    yield machines.check_builds(builds)


def _clocks(site: Site) -> Iterator[Finding]:
    broker = [] if isinstance(site.machine, Unknown) else [site.machine.clock]
    clocks = [*broker, *site.clocks]
    if not clocks and isinstance(site.machine, Unknown):
        yield skipped("clocks", site.machine)
    else:
        yield machines.check_clocks(clocks)


def _broker_disk(plan: Plan, site: Site) -> Iterator[Finding]:
    machine = site.machine
    folder = _folder_here(plan, machine)
    if folder is not None:
        least = 0 if isinstance(machine, Unknown) or machine.disk is None else machine.disk.min_free_bytes
        yield from check_disk(folder, least)
        return
    names = ("versions.store", "disk.filesystem", "disk.space", "disk.sync")
    if isinstance(machine, Unknown):
        for name in names:
            yield skipped(name, machine)
    elif machine.disk is None:
        for name in names:
            yield skipped(name, Unknown("the broker keeps messages in memory only"))
    else:
        yield machines.check_schema(machine.disk, VERSION)
        yield machines.check_file_system(machine.disk)
        yield machines.check_free_space(machine.disk)
        if isinstance(site.status, Unknown):
            yield skipped("disk.sync", site.status)
        else:
            yield machines.check_commits(site.status.commit_seconds)


def _folder_here(plan: Plan, machine: Known[Machine]) -> Path | None:
    """The broker's store, if it is on this machine; None: it is not, or not known where."""
    if plan.data is not None:
        return plan.data
    if isinstance(machine, Unknown) or machine.disk is None:
        return None
    # The broker tells no path; but where it is usual, its lock names the addresses of the broker.
    usual = BrokerEnvironment.read().state_root / "broker"
    return usual if local.is_store_of(usual, [each.url for each in machine.listeners]) else None


def check_disk(folder: Path, min_free_bytes: int) -> Iterator[Finding]:
    """Check and measure the disk of a store on this machine."""
    disk = local.disk_of(folder, min_free_bytes)
    yield machines.check_schema(disk, VERSION)
    yield machines.check_file_system(disk)
    yield machines.check_free_space(disk)
    times = local.sync_times(folder)
    yield skipped("disk.sync", times) if isinstance(times, Unknown) else machines.check_sync(times)


def _broker_limits(machine: Known[Machine]) -> Iterator[Finding]:
    if isinstance(machine, Unknown):
        for name in ("limits.files", "limits.memory", "limits.backlog", "limits.ports"):
            yield skipped(name, machine)
    else:
        yield from check_limits(machine.limits)


def check_limits(limits: LimitFacts) -> Iterator[Finding]:
    """Check what the system allows a broker."""
    yield machines.check_files(limits)
    yield machines.check_memory(limits)
    yield machines.check_backlog(limits)
    yield machines.check_ports(limits)


def own_files(plan: Plan) -> Iterator[Finding]:
    """Check the certificates that a client uses and is shown, with or without a connection."""
    address, options = broker_address(plan.url), local.tls_options()
    if isinstance(options, Unknown):
        for name in ("certificates.presented", "certificates.client", "certificates.ca"):
            yield skipped(name, options)
        return
    yield _presented(address, options, plan.seconds)
    own = local.own_certificates(options)
    if isinstance(own, Unknown):
        yield skipped("certificates.client", own)
        return
    ours, trusted = own
    now = time.time()
    yield sites.check_certificates("certificates.client", ours, now, "this client has no certificate")
    yield sites.check_certificates("certificates.ca", trusted, now, _NO_CA)


def _presented(address: Address, options: TlsOptions, seconds: float) -> Finding:
    shown = local.presented(address, options, seconds)
    if isinstance(shown, Unknown):
        return skipped("certificates.presented", shown)
    none = "the connection is not encrypted"
    return sites.check_certificates("certificates.presented", shown, time.time(), none)


def _certificates(plan: Plan, machine: Known[Machine]) -> Iterator[Finding]:
    yield from own_files(plan)
    if isinstance(machine, Unknown):
        yield skipped("certificates.broker", machine)
        return
    now = time.time()
    both = [*machine.certificates, *machine.client_cas]
    yield sites.check_certificates("certificates.broker", both, now, "no listener has TLS")


def _rights(site: Site) -> Iterator[Finding]:
    rights = None if isinstance(site.rights, Unknown) else site.rights
    if isinstance(site.machine, Unknown):
        yield skipped("rights.anonymous", site.machine)
    else:
        yield sites.check_anonymous(rights, site.machine.listeners)
    if isinstance(site.rights, Unknown):
        for name in ("rights.configured", "rights.capabilities", "rights.principals", "rights.grants"):
            yield skipped(name, site.rights)
        return
    listeners = () if isinstance(site.machine, Unknown) else site.machine.listeners
    yield sites.check_openness(site.rights, listeners)
    if not site.rights.is_open:
        yield sites.check_capabilities(site.rights)
        yield sites.check_principals(site.rights)
        yield sites.check_grants(site.rights)


def _queues(site: Site) -> Iterator[Finding]:
    if isinstance(site.queues, Unknown):
        yield skipped("queues.consumers", site.queues)
    else:
        dead_letter = "/queue/DLQ" if isinstance(site.machine, Unknown) else site.machine.dead_letter
        yield sites.check_consumers(site.queues, dead_letter)
    if isinstance(site.status, Unknown):
        yield skipped("queues.dead", site.status)
    else:
        yield sites.check_dead_letters(site.status)


def _services(plan: Plan, site: Site) -> Iterator[Finding]:
    if isinstance(site.instances, Unknown):
        for name in ("services.instances", "services.ping", "services.health", "services.versions"):
            yield skipped(name, site.instances)
        return
    yield sites.check_instances(site.instances, plan.services)
    yield sites.check_pings(site.instances)
    yield sites.check_health(site.instances)
    yield sites.check_service_versions(site.instances)
