"""Handles on a service that is asked directly, over topics of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from nebula.errors import NebulaError, RemoteError
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.jobs.service.service import JobService
from nebula.stomp.client import AckMode
from tests.rpc.jobs.harness import House, ask


@dataclass
class FakeMessage:
    body: bytes

    def ack(self) -> None:
        pass


class FakeStomp:
    """Topics: what is published reaches those that subscribed before."""

    server = "nebula/test"

    def __init__(self, at: Callable[[str], Any]) -> None:
        self._at = at
        self._listeners: list[tuple[str, Any]] = []
        self.is_deaf = False

    def publish(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        for where, stream in self._listeners:
            if where == destination and not self.is_deaf:
                stream.send_nowait(FakeMessage(body))

    @asynccontextmanager
    async def subscribe(
        self,
        destination: str,
        *,
        ack: AckMode = AckMode.AUTO,
        eager: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[FakeMessage]]:
        assert timeout
        assert eager
        assert ack is AckMode.CLIENT_INDIVIDUAL
        await self._at("subscribing")
        send, receive = anyio.create_memory_object_stream[FakeMessage](1000)
        self._listeners.append((destination, send))
        await self._at("subscribed")
        with send, receive:
            yield aiter(receive)
        self._listeners.remove((destination, send))


class FakeClient:
    """Asks services directly, by the names of their queues; `at` is called at each step."""

    def __init__(self, *services: JobService) -> None:
        self.queues = {service.via: service for service in services}
        self.queues["/queue/counting"] = services[0]
        self.stomp = FakeStomp(self.step)
        self.subscribe = self.stomp.subscribe
        self.at: dict[str, Callable[[], Any]] = {}
        self.asked: list[str] = []
        self.away: dict[str, NebulaError] = {}

    async def start_on(
        self, queue: str, service: str, verb: str, parameters: Any, options: StartOptions
    ) -> JobHandle:
        self.started = (queue, service, verb, parameters, options)
        return JobHandle(self, f"{service}/{'0' * 26}", via=queue)

    async def call_queue(
        self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
    ) -> Any:
        await self.step("asking")
        self.asked.append(f"{queue} {verb}")
        if (error := self.away.get(queue)) is not None:
            raise error
        try:
            answer = await ask(self.queues[queue], verb, parameters)
        except VerbError as failure:
            raise RemoteError(failure.code, failure.message, details=failure.details) from None
        await self.step("answered")
        # As over a wire.
        return json.loads(json.dumps(answer))

    async def step(self, name: str) -> None:
        if (action := self.at.pop(name, None)) is not None:
            await action()


@dataclass
class Watched:
    """A running job, its service, and a client whose topics are the service's."""

    house: House
    service: JobService
    client: FakeClient
    handle: JobHandle
    key: tuple[str, int]

    async def end(self) -> None:
        """Let it end, and wait until the end is written and published."""
        self.house.runner.listener.on_done(*self.key, JobOutput(value=[1, 2, 3]))
        await self.house.published.until(self.handle.id, "done")


@asynccontextmanager
async def watching(tmp_path: Path, ask_after: float = 10.0) -> AsyncIterator[Watched]:
    house = House(tmp_path)
    async with house.living() as service:
        client = FakeClient(service)
        house.published.then = client.stomp.publish
        job = (await house.accept(service, neb_job_progress_every="100"))["job"]
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        await house.published.until(job, "running")
        handle = JobHandle(client, job, ask_after=ask_after)
        yield Watched(house, service, client, handle, (task.job, 1))
