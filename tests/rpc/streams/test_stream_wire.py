"""Streams on the wire (G.stream), to and from foreign peers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula.rpc.client.client import Client
from nebula.rpc.errors import StreamBroken
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.messages import Message
from tests.rpc.conftest import Serving
from tests.rpc.streams.market import impatient, read, wait, watch

pytestmark = pytest.mark.anyio


class Raw:
    """A reader without our client: it sees what goes over the wire."""

    def __init__(self, stomp: StompClient, service: str) -> None:
        self.stomp = stomp
        self.service = service
        self.inbox = f"/queue/nebula.inbox.{uuid4()}"
        self.id = uuid4().hex
        self._send, self._receive = anyio.create_memory_object_stream[Message](1000)

    async def open(self) -> None:
        headers = {"exclusive": "true", "auto-delete": "true"}
        await self.stomp.listen(self.inbox, self._send.send_nowait, ack=AckMode.AUTO, headers=headers)

    def ask(self, verb: str, parameters: Any = None, **headers: str) -> None:
        fields = {"content-type": "application/json", "neb-reply-to": self.inbox, "neb-reply-id": self.id}
        fields |= {"neb-" + name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps({"verb": verb, "parameters": parameters}).encode()
        self.stomp.post(f"/queue/{self.service}", body, fields)

    def give(self, message: Message, more: int) -> None:
        headers = {"neb-in-reply-to": self.id, "neb-credit": str(more)}
        self.stomp.post(message.headers["neb-reply-to"], b"", headers)

    async def next(self) -> Message:
        with anyio.fail_after(10):
            return await self._receive.receive()


@pytest.fixture
async def raw(broker_url: str, prices: str) -> AsyncGenerator[Raw]:
    async with StompClient(broker_url) as stomp:
        reader = Raw(stomp, prices)
        await reader.open()
        yield reader


def shown(message: Message) -> tuple[list[Any], dict[str, str]]:
    names = ("neb-stream", "neb-stream-seq", "neb-stream-end", "neb-in-reply-to", "neb-response")
    return json.loads(message.body)["parameters"], {
        n: message.headers[n] for n in names if n in message.headers
    }


async def test_stream_on_the_wire(raw: Raw) -> None:
    raw.ask("failing", [3], stream="true", credit="2")
    first = await raw.next()
    # Without credit the handler is not asked whether there is more.
    raw.give(first, 2)
    second = await raw.next()
    error = await raw.next()

    part = {"neb-stream": "true", "neb-in-reply-to": raw.id, "neb-response": "true"}
    assert shown(first) == ([0, 1], part | {"neb-stream-seq": "0"})
    assert shown(second) == ([2], part | {"neb-stream-seq": "2"})
    assert first.headers["neb-reply-to"].startswith(f"/queue/{raw.service}.")
    assert json.loads(error.body)["verb"] == "error"
    assert "neb-stream" not in error.headers


async def test_last_items_bear_the_end(raw: Raw) -> None:
    raw.ask("plain_failing", [0], stream="true")
    assert json.loads((await raw.next()).body)["verb"] == "error"

    raw.ask("ticks", ["A", 1], stream="true")
    part = {"neb-stream": "true", "neb-in-reply-to": raw.id, "neb-response": "true"}
    end = {"neb-stream-seq": "0", "neb-stream-end": "true"}
    assert shown(await raw.next()) == ([{"symbol": "A", "cents": 0}], part | end)


async def test_credit_of_none_holds_all_items_back(raw: Raw) -> None:
    raw.ask("ticks", ["A", 0], stream="true", credit="0")

    assert shown(await raw.next())[0] == []


async def test_credit_that_is_no_number_is_a_bad_request(raw: Raw) -> None:
    raw.ask("ticks", ["A", 1], stream="true", credit="many")

    assert (await raw.next()).headers["neb-error-code"] == "bad-request"


async def test_second_stream_of_one_id_is_refused(raw: Raw) -> None:
    raw.ask("endless", stream="true", credit="1")
    await raw.next()
    raw.ask("endless", stream="true", credit="1")

    assert (await raw.next()).headers["neb-error-code"] == "bad-request"


async def test_text_request_gets_a_stream_in_text(raw: Raw) -> None:
    headers = {
        "content-type": "text/plain",
        "neb-reply-to": raw.inbox,
        "neb-reply-id": raw.id,
        "neb-stream": "true",
    }
    raw.stomp.post(f"/queue/{raw.service}", b'verb: ticks\nparameters: ["A", 1]\n\n', headers)

    body = (await raw.next()).body.decode()
    assert 'parameters: [{"symbol":"A","cents":0}]' in body


async def test_stranger_gives_no_credit(broker_url: str, raw: Raw) -> None:
    raw.ask("endless", stream="true", credit="1")
    first = await raw.next()
    headers = {"neb-in-reply-to": "another", "neb-credit": "5"}
    raw.stomp.post(first.headers["neb-reply-to"], b"", headers)
    raw.stomp.post(first.headers["neb-reply-to"], b"", {"neb-in-reply-to": raw.id, "neb-credit": "x"})
    raw.give(first, 1)

    assert shown(await raw.next())[0] == [1]


async def test_reader_that_is_gone_closes_the_handler(broker_url: str, raw: Raw) -> None:
    async with StompClient(broker_url) as stomp:
        gone = Raw(stomp, raw.service)
        await gone.open()
        # It has to have something to send when its reader has gone, however long the broker takes for that.
        gone.ask("endless_and_slow", stream="true", credit="100000")
        await gone.next()

    await wait(watch.closed)


async def test_reader_that_is_silent_closes_the_handler(broker_url: str, serving: Serving) -> None:
    async with serving(impatient), StompClient(broker_url) as stomp:
        silent = Raw(stomp, impatient.name)
        await silent.open()
        silent.ask("endless_watched", stream="true", credit="1")
        first = await silent.next()
        while not shown(first)[0]:  # a sign of life
            first = await silent.next()
        assert shown(first)[0] == [0]
        await wait(watch.closed)


async def test_idle_stream_gets_parts_without_items(broker_url: str, serving: Serving) -> None:
    async with serving(impatient), StompClient(broker_url) as stomp:
        raw = Raw(stomp, impatient.name)
        await raw.open()
        raw.ask("quiet_for_ever", stream="true")
        for _ in range(3):
            items, headers = shown(await raw.next())
            assert items == []
            assert "neb-stream-seq" not in headers


async def test_service_that_never_says_anything_of_use_breaks_the_stream(broker_url: str) -> None:
    queue = f"/queue/{uuid4().hex}"
    async with StompClient(broker_url) as rogue, Client(broker_url, timeout=5) as client:

        def answer(message: Message) -> None:
            headers = {"neb-stream": "true", "neb-in-reply-to": message.headers["neb-reply-id"]}
            body = b'{"verb":"x","parameters":[0]}'
            for seq in ("0", "2"):
                rogue.post(message.headers["neb-reply-to"], body, headers | {"neb-stream-seq": seq})

        await rogue.listen(queue, answer, ack=AckMode.AUTO)
        found: list[Any] = []
        with pytest.raises(StreamBroken, match="1 to 1"):
            await read(client.stream(queue, "ticks"), into=found)

    assert found == [0]
