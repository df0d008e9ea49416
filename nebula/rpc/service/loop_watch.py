"""Detection of handlers that block the event loop."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager
from time import monotonic
from types import CodeType, FrameType
from typing import Final

from nebula.logs import get_logger
from nebula.loop_calls import CallSoon, call_soon_from_thread
from nebula.rpc.contract.context import Request

__all__ = ["LoopWatch"]

_log = get_logger(__name__)

# The interval between two requests for a sign of life, and the time limit for an answer.
_EVERY_SECONDS: Final = 0.5
_BLOCKED_SECONDS: Final = 1.0

# The shortest time between two warnings about one verb.
_QUIET_SECONDS: Final = 60.0

_HINT: Final = "a plain function, without async, runs in a thread"


class LoopWatch:
    """Warns of a handler that blocks the event loop for more than a second, and names its verb.

    A blocked loop cannot report itself, so a thread asks it for a sign of life twice a second. If none comes,
    the handler is on the stack of the loop's thread. Requests have no overhead. A block shorter than a
    second and a half may go unnoticed, and so does one in C code that holds the GIL.

    Args:
        service: the service whose handlers are watched.
        codes: code objects of functions whose local variable `request` is the request being handled.

    Attributes:
        signs: number of signs of life from the loop.
        blocks: number of blocks seen, logged or not.
    """

    def __init__(self, service: str, codes: Collection[CodeType]) -> None:
        self._service = service
        self._codes = frozenset(codes)
        self._told: dict[str, float] = {}
        self._alive = threading.Event()
        self._is_over = threading.Event()
        self.signs = 0
        self.blocks = 0

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch the running loop during the block."""
        arguments = (call_soon_from_thread(), threading.get_ident())
        threading.Thread(target=self._run, args=arguments, name="loop watch", daemon=True).start()
        try:
            yield
        finally:
            # No need to wait for the thread: it has nothing left to do.
            self._is_over.set()
            self._alive.set()

    def _run(self, soon: CallSoon, thread: int) -> None:
        while not self._is_over.wait(_EVERY_SECONDS):
            self._alive.clear()
            try:
                soon(self._alive.set)
            except RuntimeError:  # the loop has ended
                return
            if self._is_alive_within(_BLOCKED_SECONDS / 2):
                continue
            self._examine(thread)
            while not self._is_over.is_set() and not self._is_alive_within(_EVERY_SECONDS):
                pass

    def _examine(self, thread: int) -> None:
        """Warn about the handler that blocks the loop, if one does."""
        # Look twice: if the whole process waits for a CPU, the second request is rarely the same. Neither is
        # kept: a request or a frame may hold megabytes.
        suspect = self._look(thread)
        if self._is_alive_within(_BLOCKED_SECONDS / 2) or suspect is None:
            return
        found = self._look(thread)
        if found is not None and found[0] is suspect[0]:
            self._tell(*found)
            self.blocks += 1

    def _is_alive_within(self, seconds: float) -> bool:
        is_alive = self._alive.wait(seconds)
        self.signs += is_alive
        return is_alive

    def _look(self, thread: int) -> tuple[Request, FrameType] | None:
        """The request whose handler runs on a thread now, and the frame of its handler."""
        # The only way to see another thread's stack. That thread runs on unless it is blocked, so `_examine`
        # wants the same request twice.
        frame = sys._current_frames().get(thread)
        inner: list[FrameType] = []
        while frame is not None:
            if frame.f_code in self._codes:
                request = frame.f_locals.get("request")
                if isinstance(request, Request) and request.service == self._service:
                    # The frame next to Nebula's is the handler's; deeper ones belong to the libraries that it
                    # calls.
                    return request, next((one for one in reversed(inner) if not _is_ours(one)), frame)
            inner.append(frame)
            frame = frame.f_back
        return None

    def _tell(self, request: Request, frame: FrameType) -> None:
        now = monotonic()
        if now - self._told.get(request.verb, -math.inf) < _QUIET_SECONDS:
            return
        self._told[request.verb] = now
        _log.warning(
            "event loop blocked",
            service=self._service,
            verb=request.verb,
            at=f"{frame.f_code.co_filename}:{frame.f_lineno}",
            seconds=_BLOCKED_SECONDS,
            hint=_HINT,
        )


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "nebula"
