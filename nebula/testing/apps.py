"""Services and fakes that run in the test's own loop, for a block."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import anyio

from nebula.host.apps import App
from nebula.stomp.client.confinement import confined
from nebula.stomp.client.tls import TlsOptions
from nebula.testing.fakes import Fake, faked_services
from nebula.testing.own_task import OwnTask

# Seconds that a service may take until it listens, and that its requests have at the end.
_START_SECONDS = 10.0
_GRACE = 0.05

_HINT = (
    "allow_outside=True, or their addresses in a list, as an argument of TestClient, nebula_serve or serving;"
    " or let the fixture nebula_allow_outside return it"
)


class Serve(Protocol):
    """The type of the fixture `nebula_serve`: `serving` with the fixture's broker."""

    def __call__(
        self, *apps: App | Fake, grace: float = ..., allow_outside: bool | Sequence[str] = ...
    ) -> AbstractAsyncContextManager[None]:
        """Serve `apps` for the block, see `serving`."""
        ...


@asynccontextmanager
async def serving(
    url: str,
    *apps: App | Fake,
    tls: TlsOptions | None = None,
    grace: float = _GRACE,
    allow_outside: bool | Sequence[str] = False,
) -> AsyncGenerator[None]:
    """Serve `apps` for the block, which begins when all of them take requests.

    They run in the loop of the test, so a handler and the test may share objects. At the end of the block,
    requests under way have `grace` seconds. An app that fails ends the block with its error, which is raised
    as it is and not in a group, like an error of the block itself.

    As long as the block lasts, `Client()` without an address means the broker at `url`, whatever
    `NEBULA_BROKER` says. A client with the address of another broker raises `OutsideBroker`, unless that
    broker is allowed or runs in this process. This holds for the test, the services, and all else in the
    process. Jobs are kept in a temporary folder that is removed with the block, or with the block around it,
    unless their responder names a place with `state=` or `jobs=`.

    Args:
        url: of the broker.
        apps: responders, and fakes (see `fake`): all fakes of a service are one responder.
        tls: for `stomps://`, see `TlsOptions`.
        grace: seconds.
        allow_outside: True allows connections to all other brokers; or their addresses.

    Raises:
        NebulaError: as `Responder.run`, of an app.
        TimeoutError: an app does not listen within ten seconds.
    """
    fakes = [each for each in apps if isinstance(each, Fake)]
    real = [each for each in apps if not isinstance(each, Fake)]
    options = {"grace": grace} | ({} if tls is None else {"tls": tls})
    with (
        # It encloses the services, so that a handler's `Client()` finds this broker. `process=True`, because
        # executors and loops of other frameworks inherit no context (docs/decisions/0039).
        confined(url, hint=_HINT, tls=tls, allow_outside=allow_outside, process=True),
        _folder_for_jobs(fakes) as state,
    ):
        async with OwnTask(_running(url, [*real, *faked_services(fakes, state)], options)):
            yield


@asynccontextmanager
async def _running(url: str, apps: Sequence[App], options: dict[str, Any]) -> AsyncGenerator[None]:
    running = _Running(url, options)
    await running.start(apps)
    try:
        yield
    except BaseException as error:
        await running.stop(error)
        raise
    await running.stop(None)


@contextmanager
def _folder_for_jobs(fakes: Sequence[Fake]) -> Iterator[Path | None]:
    if not any(one.is_job for one in fakes):
        yield None
        return
    with TemporaryDirectory(prefix="nebula-fakes-") as folder:
        yield Path(folder)


class _Running:
    """Apps in a task group that has no part in the block's own errors: it would only wrap them."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._options = options
        self._tasks = anyio.create_task_group()
        self._failure: Exception | None = None

    async def start(self, apps: Sequence[App]) -> None:
        await self._tasks.__aenter__()
        try:
            with anyio.fail_after(_START_SECONDS):
                # One after the other, so that a later service may call an earlier one while it starts.
                for app in apps:
                    started = anyio.Event()
                    self._tasks.start_soon(partial(self._run, app, started), name=f"app {app.name}")
                    # If the service fails first, `_run` cancels this, and `stop` raises the service's error
                    # instead.
                    await started.wait()
        except BaseException as error:
            await self.stop(error)
            raise

    async def _run(self, app: App, started: anyio.Event) -> None:
        try:
            await app.run(self._url, started=started, **self._options)
        except Exception as error:
            # The block cannot go on without it: its cancellation is ours, and `stop` says why.
            self._failure = error
            self._tasks.cancel_scope.cancel()

    async def stop(self, error: BaseException | None) -> None:
        self._tasks.cancel_scope.cancel()
        # The task group must see the cancellation that it caused, or the surrounding task is cancelled.
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._tasks.__aexit__(None, None, None)
        if self._failure is not None:
            raise self._failure
