"""Status messages: what watchers of a job see (PROTOCOL G, "Job status")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from nebula import headers as names
from nebula.errors import NebulaError
from nebula.logs import get_logger
from nebula.rpc.brokers import LONGEST_HEADER, NEBULA, Brand
from nebula.rpc.envelope import JSON_TYPE, dump_json
from nebula.rpc.jobs.identifiers import qualified
from nebula.rpc.jobs.record import JobRecord
from nebula.rpc.jobs.states import JobStatus
from nebula.rpc.jobs.waiting import Standing

__all__ = ["Publish", "Teller", "nobody_listens", "status_destination"]

_log = get_logger(__name__)


class Publish(Protocol):
    """Sends a message at once: `StompClient.post`."""

    def __call__(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None: ...


def nobody_listens(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Publish nothing: the service does not run yet."""


def status_destination(service: str, ulid: str, brand: Brand) -> str:
    """Where the statuses of a job are published on a broker of this brand."""
    return f"{brand.job_prefix}{service}.{ulid}"


# They have no verb, so a service that receives one does not answer it. They do not have `neb-response`
# either: they are sent by the service's own rights, not by a right to answer.
_HEADERS: Final = {"content-type": JSON_TYPE}


class Teller:
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

    def destination(self, ulid: str) -> str:
        """Where a job's statuses are told."""
        return status_destination(self._service, ulid, self._brand)

    def status(self, record: JobRecord, standing: Standing) -> JobStatus:
        """What is told of a job."""
        waits_for = standing.note(self._service)
        return JobStatus(
            job=qualified(self._service, record.id),
            seq=record.seq,
            state=record.state,
            progress=record.progress,
            note="; ".join(filter(None, (record.note, waits_for))),
            step=record.step,
            tasks=record.tasks,
            counters=record.counters,
            position=standing.position,
            via=self._via,
            error=record.error,
        )

    def tell(self, record: JobRecord, standing: Standing, *, is_new: bool = True) -> None:
        """Send a job's status to its watchers; a new one also to where its caller asked for."""
        body = dump_json(self.status(record, standing).to_json())
        try:
            self._publish(self.destination(record.id), body, self._headers(record))
            # What is owed goes another way, on which it cannot be lost.
            if is_new and record.notify is not None and not record.is_owed:
                self._publish(record.notify, body, _notify_headers(record))
        except NebulaError as error:
            _log.info("job status not told", job=record.id, state=str(record.state), error=str(error))

    def notice(self, record: JobRecord) -> tuple[str, bytes, Mapping[str, str]]:
        """What tells of a job's end where its caller asked for it: destination, body, headers."""
        assert record.notify is not None
        return record.notify, dump_json(self.status(record, Standing()).to_json()), _notify_headers(record)

    def forget(self, ulids: Iterable[str]) -> None:
        """Delete the last statuses of jobs that nobody remembers any longer.

        Raises:
            NebulaError: there is no connection; some are still there.
        """
        if self._brand.has_last_values:
            for ulid in ulids:
                self._publish(self.destination(ulid), b"", {})

    def _headers(self, record: JobRecord) -> Mapping[str, str]:
        if record.has_ended or not self._brand.has_last_values:
            return _HEADERS
        return {**_HEADERS, names.EPHEMERAL: "true"}


def _notify_headers(record: JobRecord) -> dict[str, str]:
    headers = dict(_HEADERS)
    if record.reply_id is not None and len(record.reply_id) <= LONGEST_HEADER:
        headers[names.IN_REPLY_TO] = record.reply_id
    if record.has_ended or record.wants_notice:
        headers[names.PERSISTENT] = "true"
    return headers
