"""Waiting in tests until a function has handled a message."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio.to_thread

from nebula.rpc.service.message_receiver import WATCHERS

__all__ = ["handled"]


class handled:  # noqa: N801  # read as a verb, like contextlib's `suppress`
    """Wait at the end of the block until a function has handled a message that arrived during it:

        async with handled(put_away):
            await client.publish("/queue/deliveries", Delivery(item="hat", count=3))
        assert await client.call(left, "hat") == 3

    Raises what the function raised, or the `VerbError` of a body that fails validation. Whether the message
    is retried is not affected. Use `async with`, or plain `with` in a test without `await`.

    Args:
        function: declared with `app.on`, of a service in this process, as with `TestClient`.
        times: the number of messages. A retried message counts once per attempt; the first error is raised.
        timeout: seconds of real time to wait.

    Raises:
        TimeoutError: the function handled fewer messages, raised at the end of the block.
    """

    def __init__(self, function: Callable[..., Any], *, times: int = 1, timeout: float = 5.0) -> None:
        self._function, self._times, self._timeout = function, times, timeout
        self._watcher = (function, self._note)
        self._outcomes: list[BaseException | None] = []
        # A condition of `threading`, because services may run on another thread, or on trio.
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        # An object can be entered several times.
        self._outcomes.clear()
        # Found by the function and not by the service, which a fixture may have made.
        WATCHERS.append(self._watcher)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._wait()
        finally:
            WATCHERS.remove(self._watcher)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                # In a thread: the service may have another loop than the test.
                await anyio.to_thread.run_sync(self._wait, abandon_on_cancel=True)
        finally:
            WATCHERS.remove(self._watcher)

    def _note(self, error: BaseException | None) -> None:
        with self._news:
            self._outcomes.append(error)
            self._news.notify_all()

    def _wait(self) -> None:
        with self._news:
            is_enough = self._news.wait_for(lambda: len(self._outcomes) >= self._times, self._timeout)
            outcomes = self._outcomes[: self._times]
        # An error comes before a timeout, because it may be the reason for it.
        for error in outcomes:
            if error is not None:
                raise error
        if not is_enough:
            raise TimeoutError(
                f"{self._function.__qualname__} has handled {len(outcomes)} of {self._times} messages after"
                f" {self._timeout:g} s; does its service run here, and listen there?"
            )
