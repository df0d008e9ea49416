"""A running broker for one case, and its world, over each kind of socket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from nebula.broker.core.access import ANONYMOUS, Grants
from nebula.broker.server.listener import Listener
from nebula.broker.server.server import Server
from tests.conformance.cases import Case
from tests.conformance.wires import TcpOctets, WebSocketOctets, Wire
from tests.conformance.worlds import OverSockets

_TIMEOUT = 10.0


def over_tcp(case: Case) -> contextlib.AbstractContextManager[OverSockets]:
    """A world where everybody is anonymous."""
    listener = Listener(port=0, profile=case.profile("standard"))
    return over(case, listener, lambda _who, port: Wire(TcpOctets(port)), _nobody)


def over_websocket(case: Case) -> contextlib.AbstractContextManager[OverSockets]:
    """The same over HTTP."""
    url = "ws://127.0.0.1:{}/stomp"
    listener = Listener(port=0, profile=case.profile("standard"), http=True)
    return over(case, listener, lambda _who, port: Wire(WebSocketOctets(url.format(port))), _nobody)


def _nobody(_who: str) -> str:
    return ANONYMOUS


@contextlib.contextmanager
def over(
    case: Case,
    listener: Listener,
    open_: Callable[[str, int], Wire],
    principal_of: Callable[[str], str],
) -> Iterator[OverSockets]:
    """Run a broker with one listener, and close everything in the end.

    Args:
        case: what is to be played; it says how the broker is set up.
        listener: where peers come.
        open_: opens a connection of somebody to a port.
        principal_of: who somebody is to the broker.
    """
    with start_blocking_portal("asyncio", {"use_uvloop": True}) as portal:
        server = Server([listener], limits=case.limits, policies=case.policies, key_of=case.key_of)
        portal.call(server.start)
        port = int(server.urls[0].rpartition(":")[2])
        world = OverSockets(
            _Running(portal, server), listener.profile.name, lambda who: open_(who, port), principal_of
        )
        try:
            yield world
        finally:
            world.close()
            portal.call(server.stop)


class _Running:
    """What a world asks of its broker beside bytes."""

    def __init__(self, portal: BlockingPortal, server: Server) -> None:
        self._portal = portal
        self._server = server

    def reload(self, grants: Grants) -> None:
        self._portal.call(partial(self._server.reload, lambda: grants))

    def see_one_go(self, go: Callable[[], None]) -> None:
        count = self._portal.call(self._count)
        go()
        self._portal.call(self._wait_for_fewer_than, count)

    async def _count(self) -> int:
        return len(self._server.broker.sessions)

    async def _wait_for_fewer_than(self, count: int) -> None:
        with anyio.fail_after(_TIMEOUT):
            while len(self._server.broker.sessions) >= count:
                await anyio.sleep(0)
