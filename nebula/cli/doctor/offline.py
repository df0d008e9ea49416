"""The examination of a machine on which no broker runs yet: settings, disk, limits, certificates, rights."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nebula.broker.assembly import files_wanted, store_folder
from nebula.broker.server.rights_files import load_grants
from nebula.broker.settings import BrokerSettings, SettingsSource
from nebula.cli.doctor import local
from nebula.cli.doctor.examination import Plan, check_disk, check_limits
from nebula.cli.doctor.facts import Certificate
from nebula.cli.doctor.findings import Finding, Outcome, Unknown, skipped
from nebula.cli.doctor.site_checks import check_certificates
from nebula.errors import SettingsError
from nebula.settings import WrongSettings

__all__ = ["examine_machine"]

_WOULD_NOT_START = "correct the file: the broker would not start with it"


def examine_machine(plan: Plan) -> Iterator[Finding]:
    """Check this machine for a broker that does not run, or is not reached."""
    settings: BrokerSettings | None = None
    try:
        source = SettingsSource(plan.config, {"data": plan.data})
        settings = source.read().value
        named = "the defaults" if source.file is None else str(source.file)
        yield Finding("settings.file", Outcome.OK, f"{named} can be used")
    except WrongSettings as error:
        lines = "; ".join(str(error).splitlines())
        yield Finding("settings.file", Outcome.ERROR, lines, _WOULD_NOT_START)
    yield Finding("versions.nebula", Outcome.OK, _own_versions())
    used = settings or BrokerSettings()
    if used.store == "memory":
        yield skipped("disk.sync", Unknown("messages are kept in memory only"))
    else:
        folder = plan.data or store_folder(used)
        yield from check_disk(folder, used.limits.min_free_disk_bytes)
    counted = used.limits.max_memory_bytes + used.limits.max_transit_bytes
    ports = [each.port for each in used.listener if each.port]
    yield from check_limits(local.limits_here(files_wanted(used), counted, ports))
    yield _files_of_listeners(used)
    yield _rights_files(used)


def _own_versions() -> str:
    ours = local.our_build()
    return f"Nebula {ours.nebula} ({ours.build}), Python {ours.python}"


def _files_of_listeners(settings: BrokerSettings) -> Finding:
    found: list[Certificate] = []
    for each in settings.listener:
        for file in (each.tls_cert, each.client_ca):
            if file is None:
                continue
            read = local.certificates_in(file, str(file))
            if isinstance(read, Unknown):
                return skipped("certificates.broker", read)
            found += read
    return check_certificates("certificates.broker", found, time.time(), "no listener has TLS")


def _rights_files(settings: BrokerSettings) -> Finding:
    if settings.rights is None:
        return Finding(
            "rights.configured",
            Outcome.OK,
            "no rights are configured: every principal may do almost everything",
        )
    try:
        grants = load_grants(settings.rights)
    except SettingsError as error:
        lines = "; ".join(str(error).splitlines())
        return Finding("rights.configured", Outcome.ERROR, lines, _WOULD_NOT_START)
    what = f"{len(grants.capabilities)} capabilities, {len(grants.identities)} identities"
    return Finding("rights.configured", Outcome.OK, what)
