"""The ambient broker: the one that `Client()` without an address connects to.

A block (`nebula.testing`, `nebula.embedded`) may set it for all code that the block starts, together with the
folder in which services of the block keep their jobs.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from nebula.environment import ClientEnvironment
from nebula.stomp.client.addresses import DEFAULT_URL, Address, parse_address
from nebula.stomp.client.tls import TlsOptions

__all__ = [
    "AmbientBroker",
    "BlockState",
    "Place",
    "ambient",
    "ambient_broker",
    "broker_address",
    "carried",
]

Place = tuple[str, int]
"""Host and port, in a form in which two can be compared; see `nebula.stomp.client.confinement`."""


class BlockState:
    """A temporary folder that nested blocks share: created on first use, removed with the last block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blocks = 0
        self._folder: Path | None = None
        self._remove: Callable[[], object] = lambda: None

    def folder(self) -> Path:
        """The folder. It exists.

        Raises:
            OSError: the folder cannot be created.
        """
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="nebula-state-"))
                # If it is created after the last block, it is removed with this object.
                self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            return self._folder

    @contextmanager
    def used(self) -> Generator[None]:
        """Keep it for the block."""
        with self._lock:
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._remove()
                    self._folder = None


@dataclass(slots=True, eq=False)
class AmbientBroker:
    """The broker of a block.

    Attributes:
        url: its address.
        tls: TLS options for it; None: those of the environment.
        allowed: other brokers that may be reached; None: all.
        hint: how to allow others, for the text of a refusal.
        state: where services of the block keep their jobs, unless they choose a folder themselves.
        refusals: the texts of refusals, in order.
        is_open: the block has not ended.
    """

    url: str
    tls: TlsOptions | None
    allowed: frozenset[Place] | None
    hint: str
    state: BlockState = field(default_factory=BlockState)
    refusals: list[str] = field(default_factory=list)
    is_open: bool = True


# Tasks inherit it, and threads that anyio starts for them.
_of_context: ContextVar[AmbientBroker | None] = ContextVar("nebula_ambient_broker", default=None)

# For threads that inherit nothing (executors, other frameworks' loops): the blocks of tests that are open
# anywhere in the process. Used from several threads: each access is one operation of a list, which is atomic.
_of_process: list[AmbientBroker] = []


def ambient_broker() -> AmbientBroker | None:
    """The broker of the block that this code runs in; None outside of all blocks.

    The context's own broker comes first, then that of the test that was opened last. A task that outlives its
    block still gets the broker of the block, which is closed: it must not find another one by accident.
    """
    own = _of_context.get()
    if own is not None and own.is_open:
        return own
    return _of_process[-1] if _of_process else own


def broker_address(url: str | None = None) -> Address:
    """Read a broker's address, or find the default one.

    Args:
        url: an address; None means the ambient broker, else the environment's `NEBULA_BROKER`, else
            `stomp://127.0.0.1:61613`.

    Raises:
        SettingsError: it is not an address. The text never shows a passcode.
    """
    if url is None:
        broker = ambient_broker()
        url = (ClientEnvironment.read().broker or DEFAULT_URL) if broker is None else broker.url
    return parse_address(url)


@contextmanager
def ambient(broker: AmbientBroker, *, context: bool = True, process: bool = False) -> Generator[None]:
    """Make it the ambient broker for the block.

    Args:
        broker: of this block alone.
        context: for this task or thread, and the tasks that it starts.
        process: for all code of the process whose context has none.
    """
    before = _of_context.get()
    if context:
        _of_context.set(broker)
    if process:
        _of_process.append(broker)
    try:
        with broker.state.used():
            yield
    finally:
        broker.is_open = False
        if process:
            _of_process.remove(broker)
        # Fixtures may be left in another context than they were entered in: that one has its own.
        if context and _of_context.get() is broker:
            _of_context.set(before)


@contextmanager
def carried(broker: AmbientBroker | None) -> Generator[None]:
    """Use another thread's ambient broker for the block: a plain thread inherits none."""
    token = _of_context.set(broker)
    try:
        yield
    finally:
        _of_context.reset(token)
