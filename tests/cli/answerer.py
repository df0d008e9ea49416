"""A client whose calls are answered in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio

from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.wire.replies import read_value, reading
from tests.cli.strangers import INSTANCE, Stranger


@dataclass
class Answerer:
    """A client whose calls are answered at once, by bytes that are read as those of a service."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    otherwise: Any = None
    stomp: Any = field(default_factory=lambda: SimpleNamespace(server="nebula/0"))

    async def call(self, _service: str, verb: str, *_: Any, **_more: Any) -> Any:
        body = Stranger.answer_to(cast(Stranger, self), verb).encode()
        return read_value(SimpleNamespace(headers={"content-type": "application/json"}, body=body), None)

    async def call_queue(self, _queue: str, verb: str, *_: Any, **_more: Any) -> Any:
        return await self.call("shop", verb)

    async def call_all(self, service: str, verb: str, *_: Any, **_more: Any) -> Any:
        value = await self.call(service, verb)
        one = SimpleNamespace(name=INSTANCE)
        return SimpleNamespace(
            answers=[SimpleNamespace(instance=one, seconds=0.1, value=value, error=None)], missing=[]
        )

    async def services(self, *_: Any, **_more: Any) -> list[Any]:
        return []

    async def start_on(self, _queue: str, service: str, verb: str, *_: Any) -> JobHandle:
        answer = await self.call(service, verb)
        with reading(f"the answer of {service} to {verb}"):
            return self.job(str(answer["job"]))

    @asynccontextmanager
    async def subscribe(self, *_: Any, **_more: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async def nothing() -> AsyncIterator[Any]:
            await anyio.sleep_forever()
            yield

        yield nothing()

    def with_options(self, **_options: Any) -> Answerer:
        return self

    def job(self, job: str) -> JobHandle:
        return JobHandle(cast(Any, self), job, ask_after=0.01)

    def ask(self, _url: str | None, question: Callable[[Any], Awaitable[Any]]) -> Any:
        """In place of `nebula.cli.asking.ask`."""

        async def main() -> Any:
            return await question(self)

        return anyio.run(main)
