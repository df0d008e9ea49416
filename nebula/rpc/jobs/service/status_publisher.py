"""Status publisher: status messages of jobs, to watchers and to where a caller asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

import anyio

from nebula import headers as names
from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.rpc.jobs.model.identifiers import qualified
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.status import JobStatus, status_destination
from nebula.rpc.jobs.scheduler.order import WaitingState
from nebula.rpc.wire.brokers import LONGEST_HEADER, NEBULA, Brand
from nebula.rpc.wire.envelope import JSON_TYPE, dump_json

__all__ = ["Publish", "StatusPublisher", "publish_nothing", "waits_for"]

_log = get_logger(__name__)


Publish: TypeAlias = Callable[[str, bytes, Mapping[str, str]], None]
"""Sends a message to a destination at once: `StompClient.post`."""


def publish_nothing(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Publish nothing: the service does not run yet."""


@dataclass(slots=True)
class _Hold:
    """What is kept from a job's caller, by how many, and until when."""

    holders: int = 0
    messages: list[tuple[str, bytes, Mapping[str, str]]] = field(default_factory=list)
    is_over: anyio.Event = field(default_factory=anyio.Event)


# They have no verb, so a service that receives one does not reply to it. They do not have `neb-response`
# either: they are sent by the service's own rights, not by a right to reply.
_HEADERS: Final = {"content-type": JSON_TYPE}


class StatusPublisher:
    """Tells the statuses of one instance's jobs.

    Where the broker keeps last values, the status of an open job goes with the connection that told it: a
    watcher gets an empty message when the service is away. That of one that has ended stays until `forget`.

    Args:
        service: its name.
        via: the instance's own queue.
        publish: sends a message at once. Without a connection the telling is dropped: who watches asks.
        brand: of the broker.
    """

    def __init__(self, service: str, via: str, publish: Publish, brand: Brand = NEBULA) -> None:
        self._service, self._via, self._publish, self._brand = service, via, publish, brand
        self._holds: dict[str, _Hold] = {}

    def destination(self, ulid: str) -> str:
        """Where a job's statuses are told."""
        return status_destination(self._brand.job_prefix, self._service, ulid)

    def status(self, record: JobRecord, waiting: WaitingState) -> JobStatus:
        """A job's status."""
        # The reason to wait is not recorded, because it changes without the job: it is computed for each
        # status.
        note = "; ".join(filter(None, (record.note, waits_for(waiting, self._service))))
        return JobStatus(
            job=qualified(self._service, record.id),
            seq=record.seq,
            state=record.state,
            progress=record.progress,
            note=note,
            step=record.step,
            tasks=record.tasks,
            counters=record.counters,
            position=waiting.position,
            via=self._via,
            error=record.error,
        )

    def tell(self, record: JobRecord, waiting: WaitingState, *, is_new: bool = True) -> None:
        """Send a job's status to its watchers; a new one also to where its caller asked for."""
        body = dump_json(self.status(record, waiting).to_json())
        try:
            self._publish(self.destination(record.id), body, self._headers(record))
            # What is owed goes another way, on which it cannot be lost.
            # `notify` gets each recorded change once, but no new position, which only watchers ask for.
            if is_new and record.notify is not None and not record.is_owed:
                self._notify(record.id, record.notify, body, _notify_headers(record))
        except NebulaError as error:
            _log.info("job status not told", job=record.id, state=str(record.state), error=str(error))

    def hold(self, ulid: str) -> Callable[[], None]:
        """Keep a job's statuses from `notify` until what this returns is called, which has to be done once.

        Its caller may read statuses and replies from one queue, and has to hear first that there is a job.
        """
        # Counted: two requests for the same job, the first one and its repetition, may hold it at a time.
        self._holds.setdefault(ulid, _Hold()).holders += 1
        return partial(self._release, ulid)

    async def until_released(self, ulid: str) -> None:
        """Wait until no caller holds the statuses of a job."""
        while (hold := self._holds.get(ulid)) is not None:
            await hold.is_over.wait()

    def _release(self, ulid: str) -> None:
        hold = self._holds[ulid]
        hold.holders -= 1
        if hold.holders:
            return
        del self._holds[ulid]
        try:
            for message in hold.messages:
                self._publish(*message)
        except NebulaError as error:
            _log.info("job status not told", job=ulid, error=str(error))
        hold.is_over.set()

    def _notify(self, ulid: str, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        if (hold := self._holds.get(ulid)) is None:
            self._publish(destination, body, headers)
        else:
            hold.messages.append((destination, body, headers))

    def notice(self, record: JobRecord) -> tuple[str, bytes, Mapping[str, str]]:
        """The message that reports a job's end to its `notify`: destination, body, headers."""
        assert record.notify is not None
        return (
            record.notify,
            dump_json(self.status(record, WaitingState()).to_json()),
            _notify_headers(record),
        )

    def forget(self, ulids: Iterable[str]) -> None:
        """Delete the last statuses of forgotten jobs.

        Raises:
            NebulaError: there is no connection; some are still there.
        """
        # An empty message deletes a last value (D.27). Without last values it would only be noise for
        # subscribers.
        if self._brand.has_last_values:
            for ulid in ulids:
                self._publish(self.destination(ulid), b"", {})

    def _headers(self, record: JobRecord) -> Mapping[str, str]:
        headers = _headers_of(record)
        if not record.has_ended and self._brand.has_last_values:
            # G.ephemeral: the value ends with this connection, so no watcher reads `running` of a dead
            # service. An end is kept, because it stays true.
            headers[names.EPHEMERAL] = "true"
        return headers


def waits_for(waiting: WaitingState, service: str) -> str:
    """What a job waits for, for people. Without the exclusive key, which may have secret parameters."""
    if waiting.rival is not None:
        return f"waits for {qualified(service, waiting.rival)}, which has the same exclusive key"
    if waiting.not_before is not None:
        # Thirteen digits of milliseconds are always a date.
        return f"waits until {datetime.fromtimestamp(waiting.not_before, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return waiting.reason


def _headers_of(record: JobRecord) -> dict[str, str]:
    # No reply has the job's id: by it a reader of both tells a status from the reply to the same request.
    return {**_HEADERS, names.JOB_ID: record.id}


def _notify_headers(record: JobRecord) -> dict[str, str]:
    headers = _headers_of(record)
    # A header that is too long would end the connection, see `LONGEST_HEADER`.
    if record.reply_id is not None and len(record.reply_id) <= LONGEST_HEADER:
        headers[names.IN_REPLY_TO] = record.reply_id
    # At a queue each status outlives a restart of the broker; elsewhere only the end does.
    if record.has_ended or record.wants_notice:
        headers[names.PERSISTENT] = "true"
    return headers
