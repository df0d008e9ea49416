"""Authentication of one connection: who the peer is, and when that is known.

There are three moments. A certificate, or a listener where all peers are anonymous, settles it when the
connection is made. A CONNECT without a login settles it where peers may be anonymous. Otherwise the login is
verified in a task, because a passcode's hash takes long; frames that arrive meanwhile are held back by the
protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nebula.broker.server.identity import Identity
from nebula.broker.server.listener import Listener
from nebula.broker.server.peer import Peer


class Login:
    """The authentication of one connection.

    Args:
        listener: has the rules.
        principal: who the peer is, if that is known beforehand, as in the broker's own process.

    Attributes:
        identity: of the peer, once `identify` has found it.
        has_begun: whether a login is being verified, or was.
    """

    def __init__(self, listener: Listener, principal: str | None) -> None:
        self._listener = listener
        self._task: asyncio.Task[None] | None = None
        self.identity = None if principal is None else Identity(principal)

    @property
    def has_begun(self) -> bool:
        # The task stays after it is done, so that a second CONNECT cannot start a second check.
        return self._task is not None

    def identify(self, peer: Peer, wall: float) -> None:
        """Find out who the peer is, if that can be known before it speaks.

        Args:
            wall: seconds since 1970.

        Raises:
            Refused: its certificate is not good enough.
        """
        if self.identity is None:
            self.identity = peer.identify(wall)

    def verify(
        self,
        credentials: tuple[str | None, str | None],
        place: str,
        done: Callable[[Identity | None], None],
    ) -> Identity | None:
        """Verify the login and passcode of a CONNECT.

        Args:
            place: where the peer comes from.
            done: called later with the result, unless it is known at once or `cancel` comes before; None:
                refused.

        Returns:
            The identity, if it is known at once; `done` is not called then.
        """
        authenticator = self._listener.authenticator
        assert authenticator is not None, "without one the peer is known before it speaks"
        login, passcode = credentials
        # Without a task, because a broker without users needs none for its connections.
        identity = authenticator.admit_at_once(login)
        if identity is not None:
            return identity

        async def verify() -> None:
            done(await authenticator.verify(login, passcode, place))

        self._task = asyncio.get_running_loop().create_task(verify())
        return None

    def cancel(self) -> None:
        """The connection is closed: stop waiting."""
        if self._task is not None:
            # The check itself may be shared with others; this only ends the wait (`Authenticator._wait_for`).
            self._task.cancel()
