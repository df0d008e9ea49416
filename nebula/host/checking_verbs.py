"""Verbs that `nebula doctor` asks: what the broker runs on, and grants that look like mistakes."""

from __future__ import annotations

import platform
import time
from contextlib import suppress

from nebula.broker.assembly import Assembly, files_wanted
from nebula.broker.operations.machine import file_system_of, read_limits
from nebula.broker.operations.rights_review import review
from nebula.broker.operations.views import DiskView, ListenerView, MachineView, RightsView
from nebula.broker.server.listener import Listener, is_loopback
from nebula.broker.store.sqlite_schema import VERSION
from nebula.compiled import build_name
from nebula.host.operator_verbs import Desk, MayCall
from nebula.rpc.contract.context import Request
from nebula.rpc.service.responder import Responder
from nebula.version import __version__


def add_checking_verbs(responder: Responder, assembly: Assembly, may_call: MayCall) -> None:
    """Declare the verbs. They report facts; the command judges them, see docs/decisions/0075.

    Args:
        responder: the broker's.
        assembly: the broker; started when the first request comes.
        may_call: raises where a request's principal may not call a verb.
    """
    desk = Desk(assembly.server)

    @responder.verb(name="broker.machine")
    def machine(request: Request) -> MachineView:
        """The machine and process that the broker runs in: versions, clock, limits, disk, certificates."""
        may_call(request, "broker.machine")
        return _machine(assembly)

    @responder.verb(name="rights.check")
    def check_rights(request: Request) -> RightsView:
        """Grants that are probably mistakes: capabilities of no principal, globs that match nothing."""
        may_call(request, "rights.check")
        verbs = [name for name in responder.verb_names if name not in _OF_EVERY_SERVICE]
        logins = {
            login
            for _, listener in assembly.server.places
            if listener.authenticator is not None
            for login in listener.authenticator.logins
        }
        return desk.walk(lambda: review(assembly.server.broker, assembly.access, logins, verbs))


# They need no right.
_OF_EVERY_SERVICE = frozenset({"ping", "describe", "stats"})


def _machine(assembly: Assembly) -> MachineView:
    limits, settings = read_limits(), assembly.settings
    first_port, last_port = limits.ports or (None, None)
    return MachineView(
        nebula=__version__,
        python=platform.python_version(),
        build=build_name(),
        time=time.time(),
        open_files_limit=limits.open_files,
        wanted_files=files_wanted(settings),
        memory_limit_bytes=limits.memory_bytes,
        counted_bytes=settings.limits.max_memory_bytes + settings.limits.max_transit_bytes,
        backlog=limits.backlog,
        first_port=first_port,
        last_port=last_port,
        stale_files=assembly.stale_files,
        dead_letter=settings.dead_letter,
        store=_disk(assembly),
        listeners=[_listener(url, listener) for url, listener in assembly.server.places],
    )


def _disk(assembly: Assembly) -> DiskView | None:
    store = assembly.store
    if store is None:
        return None
    free_bytes = None
    with suppress(OSError):
        free_bytes = store.free_bytes()
    least = assembly.settings.limits.min_free_disk_bytes
    # Older stores are upgraded at the start, so the version is that of the program.
    return DiskView(VERSION, file_system_of(store.folder), free_bytes, least)


def _listener(url: str, listener: Listener) -> ListenerView:
    tls = listener.tls
    return ListenerView(
        url=url,
        is_loopback=is_loopback(listener.host),
        is_anonymous=listener.is_anonymous,
        certificate_ends_at=None if tls is None else tls.certificate_ends_at,
        client_ca_ends_at=None if tls is None else tls.client_ca_ends_at,
    )
