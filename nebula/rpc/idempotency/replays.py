"""Idempotent replay: a request with a key is handled once, and its reply is sent again to its repetitions.

The owner of a key is found by a claim in the store, which all instances share as far as the store reaches:

1. Requests of one key in this process wait for each other in memory (`_Turn`); one of them asks the store.
2. The store grants the claim, or returns the kept reply, or says that another instance works on it: then this
   one asks again, at growing intervals.
3. The owner renews its claim at a third of the lease as long as the handler runs. A claim that is not renewed
   belongs to a dead process: the next one may have it, and the request is handled again.
4. The reply is kept before it is sent: after a crash in between, the request comes again and gets it. After a
   crash before it was kept, the request is handled again when the lease is over.

A handler in a thread outlives its cancellation: its claim is left to its lease, so that no other instance
begins while it may still run.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

import anyio
from pydantic_core import from_json

from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency.store import IdempotencyStore, Reach, StoreFailed, join_key
from nebula.rpc.wire.envelope import dump_json
from nebula.rpc.wire.reply_body import ReplyBody, failure

_log = get_logger(__name__)

# Long enough for a process that is only slow; a retry waits that long for one that died.
_LEASE: Final = 30.0

# How often one asks for what another instance works on: first, and at most.
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.25

# How long a slow store may hold up a reply.
_KEEPING: Final = 5.0

# How long a claim is taken back that may have been made.
_RELEASING: Final = 1.0

Run = Callable[[], Awaitable[ReplyBody | None]]
IsMeant = Callable[[VerbError], bool]


def _all_are(_error: VerbError) -> bool:
    return True


# Two levels, because each alone is not enough. In memory alone, instances would not know of each other.
# In the store alone, ten simultaneous retries to one instance would poll the store ten times; so within a
# process only the first one asks, and the others wait for its event.
class _Turn:
    """One key that this instance works on."""

    __slots__ = ("fingerprint", "is_over", "owner")

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.owner = uuid4().hex
        self.is_over = anyio.Event()


class Replays:
    """Handles a request once for its key, and replies to the others like it with the same reply.

    A key belongs to its sender and verb: another principal's is another key. With other parameters it is
    refused. While the first request is handled the next ones wait; then they get what was kept. Kept are
    values, and errors that asking again does not mend; after any other failure (`retryable`, `internal`,
    cancelled) nothing is kept, and the next request is handled anew.

    Args:
        service: whose keys these are.
        store: what remembers.
        window: seconds that a reply is kept.
        lease: seconds after which a claim is a dead process's.
        max_bytes: of a reply that can be sent. Of a longer one it is kept that it was too long.
    """

    def __init__(
        self,
        service: str,
        store: IdempotencyStore,
        window: float,
        *,
        lease: float = _LEASE,
        max_bytes: int = 8 * 1024 * 1024,
    ) -> None:
        self._max_bytes = max_bytes
        self.store = store
        self._service = service
        self._window = window
        self._lease = lease
        self._turns: dict[str, _Turn] = {}

    async def run(self) -> None:
        """Keep the claims of long requests, until cancelled; then let go of the store."""
        try:
            while True:
                await anyio.sleep(self._lease / 3)
                await self._renew()
        finally:
            with anyio.move_on_after(_KEEPING, shield=True):
                await self.store.close()

    async def _renew(self) -> None:
        if not self._turns:
            return
        try:
            await self.store.renew([(key, turn.owner) for key, turn in self._turns.items()], self._lease)
        except StoreFailed:
            _log.exception("idempotency claims not renewed", service=self._service)

    async def reply(
        self, key: str, request: Request, run: Run, *, is_meant: IsMeant = _all_are, outlives: bool = False
    ) -> ReplyBody | None:
        """The kept reply for this key, else that of `run`.

        Args:
            key: as in the request.
            request: with that key.
            run: handles it. None is not kept: there is no reply.
            is_meant: whether an error is for the caller; no other is kept.
            outlives: what `run` began may go on after its cancellation, as a thread does. The claim is left
                then, so that no other instance begins it too within the lease.

        Raises:
            VerbError: `bad-request`: the key was used with other parameters; `busy`: the store cannot be
                asked, so nothing was run; or what `run` raised.
        """
        # The principal is in the key itself: no other principal can fetch a reply by guessing its key.
        sender = [self._service, request.principal]
        own_key = join_key(_digest(sender), _digest([*sender, request.verb, key]))
        fingerprint = _digest(request.parameters)
        # A loop: when the first one has ended without a kept reply, one of those that wait becomes the
        # next owner, and the others wait for that one.
        while (turn := self._turns.get(own_key)) is not None:
            _require_same(turn.fingerprint, fingerprint)
            await turn.is_over.wait()
        # No `await` since the look: no other task can have taken the key in between.
        turn = self._turns[own_key] = _Turn(fingerprint)
        try:
            kept = await self._claim(own_key, turn)
            if kept is not None:
                return kept
            return await self._run(own_key, turn, run, is_meant, outlives=outlives)
        finally:
            del self._turns[own_key]
            turn.is_over.set()

    async def _claim(self, key: str, turn: _Turn) -> ReplyBody | None:
        """Take the key, or wait for the reply of its owner."""
        pause = _FIRST_PAUSE
        while True:
            try:
                claim = await self.store.claim(key, turn.fingerprint, turn.owner, self._lease)
            except StoreFailed as error:
                _log.exception("idempotency key not looked up", service=self._service)
                with anyio.move_on_after(_RELEASING):
                    # It may be ours, if only the store's reply was lost.
                    await self._settle(key, turn, None)
                raise VerbError("busy", "keys cannot be looked up now; try again later") from error
            if claim.is_mine:
                return None
            _require_same(claim.fingerprint, turn.fingerprint)
            if claim.reply is not None:
                return _read(claim.reply)
            # Jitter: several instances that wait for one owner do not ask in step.
            await anyio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - guessing it gains nothing
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run(
        self, key: str, turn: _Turn, run: Run, is_meant: IsMeant, *, outlives: bool
    ) -> ReplyBody | None:
        kept: ReplyBody | None = None
        is_over = True
        try:
            reply = kept = await run()
        except VerbError as error:
            # Kept are outcomes that a repetition cannot change. `internal` may be a bug that is mended by
            # then, or a database that was away: its retry deserves a run.
            is_final = not error.retryable and error.code != "internal" and is_meant(error)
            kept = failure(error) if is_final else None
            raise
        except anyio.get_cancelled_exc_class():
            # A thread cannot be stopped. To release the claim now would let another instance begin the
            # same work next to it.
            is_over = not outlives
            raise
        finally:
            # The handler is done, whether or not its caller still waits.
            if is_over:
                with anyio.move_on_after(_KEEPING, shield=True):
                    await self._settle(key, turn, kept)
        return reply

    async def _settle(self, key: str, turn: _Turn, reply: ReplyBody | None) -> None:
        try:
            if reply is None:
                await self.store.release(key, turn.owner)
            else:
                await self.store.keep(key, turn.owner, _write(self._as_sent(reply)), self._window)
        except StoreFailed:
            # The reply still goes out: the request was handled. A retry may handle it again.
            _log.exception("reply not kept for its key", service=self._service)

    def _as_sent(self, reply: ReplyBody) -> ReplyBody:
        """What is kept of a reply: of one that is too long to be sent, that it is."""
        size = len(reply.parameters or b"")
        if size <= self._max_bytes:
            return reply
        return failure(VerbError("result-too-large", f"the reply has {size} bytes"))

    @property
    def reach(self) -> Reach:
        """Which instances know a key."""
        return self.store.reach


def _require_same(known: str, fingerprint: str) -> None:
    if known != fingerprint:
        raise VerbError(
            "bad-request", "neb-idempotency-key was sent with other parameters before; use a new one"
        )


def _digest(value: Any) -> str:
    # Sorted: the order of an object's fields says nothing.
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()


def _write(reply: ReplyBody) -> bytes:
    parameters = None if reply.parameters is None else reply.parameters.decode("ascii")
    return dump_json([reply.verb, parameters, reply.description, reply.code, reply.retryable])


def _read(data: bytes) -> ReplyBody:
    verb, parameters, description, code, retryable = from_json(data)
    return ReplyBody(verb, None if parameters is None else parameters.encode(), description, code, retryable)
