"""Jobs started by stomp.py, with the headers of The Nebulous Protocol and without Nebula's."""

from __future__ import annotations

import json
import queue as queues
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
import stomp  # type: ignore[import-untyped] # it has no types

from nebula import headers as names
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.reply_body import ReplyBody
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0


class _Peer(stomp.ConnectionListener):  # type: ignore[misc] # it has no types
    """A client that uses its session's id as reply id, as the protocol proposes, for all its requests."""

    def __init__(self, connection: Any) -> None:
        self.replies = f"/queue/replies-{uuid4().hex}"
        self._connection, self.session = connection, ""
        self._messages: queues.Queue[Any] = queues.Queue()

    def on_connected(self, frame: Any) -> None:
        self.session = frame.headers["session"]

    def on_message(self, frame: Any) -> None:
        self._messages.put(frame)

    def ask(self, service: str, verb: str, parameters: Any = None, **headers: str) -> None:
        body = json.dumps({"verb": verb, "parameters": parameters})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"neb-reply-to": self.replies, "neb-reply-id": self.session}
        self._connection.send(f"/queue/{service}", body, "application/json", headers=named)

    def ask_in_text(self, service: str, verb: str, parameters: str) -> None:
        named = {"neb-reply-to": self.replies, "neb-reply-id": self.session}
        body = f"verb: {verb}\nparameters: {parameters}\n\n"
        self._connection.send(f"/queue/{service}", body, "text/plain", headers=named)

    def next_in_text(self) -> str:
        """Body of the next message."""
        return str(self._messages.get(timeout=_DEADLINE).body)

    def next(self) -> tuple[dict[str, str], Any]:
        """Headers and body of the next message."""
        frame = self._messages.get(timeout=_DEADLINE)
        return frame.headers, json.loads(frame.body)


@contextmanager
def _connected(url: str) -> Iterator[_Peer]:
    address = urlsplit(url)
    connection = stomp.StompConnection12([(address.hostname, address.port)], auto_content_length=False)
    peer = _Peer(connection)
    connection.set_listener("test", peer)
    connection.connect(wait=True)
    connection.subscribe(peer.replies, id="1")
    try:
        yield peer
    finally:
        connection.disconnect()


@pytest.mark.parametrize("differ", [True, False])
async def test_ten_jobs_with_one_reply_id_all_run(
    broker_url: str, serving: Serving, tmp_path: Path, differ: bool
) -> None:
    app = Responder(f"reports-{uuid4().hex}", state=tmp_path)
    ran: list[int] = []

    @app.job(engine=None)
    async def report(ctx: Job, month: int) -> None:
        ran.append(month)

    months = [number if differ else 0 for number in range(10)]

    def start() -> list[Any]:
        with _connected(broker_url) as peer:
            for month in months:
                peer.ask(app.name, "report", {"month": month})
            return [peer.next()[1] for _ in months]

    async with serving(app):
        answers = await anyio.to_thread.run_sync(start)
        with anyio.fail_after(_DEADLINE):
            while len(ran) < len(months):
                await anyio.sleep(0.01)

    assert {answer["verb"] for answer in answers} == {"success"}
    assert len({answer["parameters"]["job"] for answer in answers}) == 10
    assert sorted(ran) == months


async def test_job_in_text_has_its_parameters_checked_before_it_is_accepted(
    broker_url: str, serving: Serving, tmp_path: Path
) -> None:
    app = Responder(f"reports-{uuid4().hex}", state=tmp_path)

    def is_there(path: str) -> str | None:
        return None if Path(path).is_dir() else f"no such folder: {path}"

    @app.job(engine=None, check=is_there)
    async def load(path: str) -> None: ...

    requests = [f'{{"path":"{tmp_path}"}}', '{"path":"/no/such"}', f'{{"pth":"{tmp_path}"}}', str(tmp_path)]

    def start() -> list[str]:
        with _connected(broker_url) as peer:
            answers = []
            for request in requests:
                peer.ask_in_text(app.name, "load", request)
                answers.append(peer.next_in_text())
            job = json.loads(answers[0].splitlines()[1].partition(": ")[2])["job"]
            peer.ask_in_text(app.name, "job.status", json.dumps({"job": job}))
            return [*answers, peer.next_in_text()]

    async with serving(app):
        answers = await anyio.to_thread.run_sync(start)

    assert [one.partition("\n")[0] for one in answers] == [
        "verb: success", "verb: error", "verb: error", "verb: success", "verb: job.statusresponse",
    ]  # fmt: skip
    assert "no such folder: /no/such" in answers[1]
    assert "pth" in answers[2]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_success_comes_before_the_first_status_and_statuses_are_marked(
    broker_url: str, serving: Serving, tmp_path: Path, is_slow: bool
) -> None:
    async def linger(request: Request, call_next: Callable[[Request], Awaitable[ReplyBody]]) -> ReplyBody:
        try:
            return await call_next(request)
        finally:
            # Long enough for the job to begin and end meanwhile.
            await anyio.sleep(0.2)

    app = Responder(f"reports-{uuid4().hex}", state=tmp_path, middleware=[linger] if is_slow else [])

    @app.job(engine=None)
    async def report() -> None: ...

    def start() -> list[tuple[dict[str, str], Any]]:
        with _connected(broker_url) as peer:
            peer.ask(app.name, "report", neb_job_notify=peer.replies)
            heard = [peer.next()]
            while heard[-1][1].get("state") != "done":
                heard.append(peer.next())
            return heard

    async with serving(app):
        (headers, reply), *statuses = await anyio.to_thread.run_sync(start)

    assert (reply["verb"], headers["neb-response"], headers.get(names.JOB_ID)) == ("success", "true", None)
    assert [body["state"] for _, body in statuses][:1] == ["queued"]
    assert {one["neb-in-reply-to"] for one, _ in statuses} == {headers["neb-in-reply-to"]}
    ulid = reply["parameters"]["job"].rpartition("/")[2]
    assert {(one.get(names.JOB_ID), "verb" in body) for one, body in statuses} == {(ulid, False)}
