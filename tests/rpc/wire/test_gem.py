"""The gem's own frames (C.4, E.57), byte by byte, against a service and a client of Nebula."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import anyio
import pytest
from anyio.abc import SocketStream

from nebula.errors import RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.service.responder import Responder
from nebula.stomp.client.addresses import parse_address
from tests.rpc import gem
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0
_JSON = "application/json"
_BOO = b"boo"
every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


class Wire:
    """A connection on which the gem's bytes go out."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._held = b""

    async def say(self, frame: str, **gaps: object) -> None:
        await self._stream.send(frame.format(**gaps).encode())

    async def hear(self, expected: str) -> tuple[dict[str, str], bytes]:
        while b"\0" not in self._held:
            self._held += await self._stream.receive()
        frame, _, self._held = self._held.lstrip(b"\n").partition(b"\0")
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        assert command == expected, frame
        # The gem reads 1.0: the first colon ends the name.
        return dict(line.split(":", 1) for line in lines), body


@asynccontextmanager
async def wire(broker_url: str) -> AsyncGenerator[Wire]:
    address = parse_address(broker_url)
    with anyio.fail_after(_DEADLINE):
        async with await anyio.connect_tcp(address.host, address.port) as stream:
            yield Wire(stream)


class Requester:
    """What the gem's requester does, in its order: request, boo, SUBSCRIBE, ACK, UNSUBSCRIBE, DISCONNECT.

    Args:
        version: which it asked for; 1.0 is its default.
    """

    def __init__(self, wire: Wire, version: str = "1.0") -> None:
        self._wire = wire
        self._version = version

    async def ask(
        self, queue: str, replies: str, content_type: str, body: str
    ) -> tuple[dict[str, str], bytes]:
        wire = self._wire
        is_old = self._version == "1.0"
        await wire.say(gem.CONNECT if is_old else gem.CONNECT_SINCE_1_1, version=self._version)
        session = (await wire.hear("CONNECTED"))[0]["session"]
        await wire.say(
            gem.REQUEST,
            content_type=content_type,
            session=session,
            replies=replies,
            queue=queue,
            length=len(body),
            body=body,
        )
        await wire.say(gem.BOO, queue=replies)
        await wire.say(gem.SUBSCRIBE if is_old else gem.SUBSCRIBE_SINCE_1_1, queue=replies, id=4711)
        answer = await self._find(gem.REPLY_ID.format(session=session))
        await wire.say(gem.UNSUBSCRIBE if is_old else gem.UNSUBSCRIBE_SINCE_1_1, queue=replies, id=4711)
        await wire.say(gem.DISCONNECT)
        return answer

    async def _find(self, reply_id: str) -> tuple[dict[str, str], bytes]:
        """Take messages until this requester's reply comes; others are left un-ACKed."""
        while True:
            headers, body = await self._wire.hear("MESSAGE")
            is_ours = headers.get("neb-in-reply-to") == reply_id
            if is_ours or body == _BOO:
                await self._wire.say(
                    {"1.0": gem.ACK, "1.1": gem.ACK_1_1, "1.2": gem.ACK_1_2}[self._version],
                    message_id=headers["message-id"],
                    id=4711,
                    ack=headers.get("ack"),
                )
            if is_ours:
                return headers, body


def shop() -> Responder:
    """A Nebula service."""
    app = Responder(f"gem-{uuid4().hex}")

    @app.verb
    async def add(a: int, b: int) -> int:
        return a + b

    return app


@every_version
@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (_JSON, '{"verb":"ping","parameters":{}}', {"verb": "success"}),
        (_JSON, '{"verb":"add","parameters":{"a":1,"b":2}}', {"verb": "addresponse", "parameters": 3}),
        (_JSON, '{"verb":"add","params":[1,2]}', {"verb": "addresponse", "parameters": 3}),
        (_JSON, '{"verb":"nope"}', {"verb": "error"}),
        ("text/plain", "verb: ping\n\n", b"verb: success\nparameters: []\ndescription: \n\n"),
        ("text/plain", "verb: add\nparams: [1,2]\n\n", b"verb: addresponse\nparameters: 3\n\n"),
    ],
)
async def test_requester_of_the_gem_gets_its_answer(
    broker_url: str,
    serving: Serving,
    version: str,
    content_type: str,
    body: str,
    expected: dict[str, object] | bytes,
) -> None:
    app = shop()
    async with serving(app), wire(broker_url) as one:
        headers, answer = await Requester(one, version).ask(
            f"/queue/{app.name}", f"/queue/out-{uuid4().hex}", content_type, body
        )

    assert headers["content-type"] == content_type
    if isinstance(expected, bytes):
        assert answer == expected
    else:
        assert expected.items() <= json.loads(answer).items()


async def test_strangers_answer_on_the_shared_queue_is_left_to_its_owner(
    broker_url: str, serving: Serving
) -> None:
    app, replies = shop(), f"/queue/out-{uuid4().hex}"
    body = '{"verb":"add","parameters":[1,2]}'
    async with serving(app), wire(broker_url) as stranger, wire(broker_url) as one:
        # The stranger's answer is first on the queue, and it comes for it later.
        await stranger.say(gem.CONNECT)
        await stranger.hear("CONNECTED")
        gaps = {"content_type": _JSON, "replies": replies, "queue": f"/queue/{app.name}"}
        await stranger.say(gem.REQUEST, session="S", length=len(body), body=body, **gaps)
        await Requester(one).ask(f"/queue/{app.name}", replies, _JSON, '{"verb":"ping"}')
        await stranger.say(gem.SUBSCRIBE, queue=replies)
        headers, answer = await stranger.hear("MESSAGE")

    assert headers["neb-in-reply-to"] == gem.REPLY_ID.format(session="S")
    assert json.loads(answer) == {"verb": "addresponse", "parameters": 3}


async def _serve(one: Wire, answer: str) -> None:
    """What the gem's listener does with a request, which it ACKs before it does anything about it."""
    message, _ = await one.hear("MESSAGE")
    await one.say(gem.ACK, message_id=message["message-id"])
    await one.say(
        gem.REPLY,
        content_type=message["content-type"],
        reply_id=message["neb-reply-id"],
        reply_to=message["neb-reply-to"],
        length=len(answer),
        body=answer,
    )


@asynccontextmanager
async def listening(broker_url: str, answer: str) -> AsyncGenerator[str]:
    """The gem's listener, on a queue of its own."""
    queue = f"/queue/in-{uuid4().hex}"
    async with wire(broker_url) as one, anyio.create_task_group() as tasks:
        await one.say(gem.CONNECT)
        await one.hear("CONNECTED")
        await one.say(gem.BOO, queue=queue)
        await one.say(gem.SUBSCRIBE, queue=queue)
        # 1.0 has no other way to see that the SUBSCRIBE has come than what it delivers.
        headers, _ = await one.hear("MESSAGE")
        await one.say(gem.ACK, message_id=headers["message-id"])
        tasks.start_soon(_serve, one, answer)
        yield queue


async def test_client_of_ours_understands_what_the_gem_answers(broker_url: str) -> None:
    answer = '{"verb":"pingresponse","parameters":["a","b"],"description":""}'
    async with listening(broker_url, answer) as queue, Client(broker_url) as client:
        assert await client.call(queue, "ping", timeout=_DEADLINE) == ["a", "b"]


async def test_success_of_the_gem_is_nothing_to_report(broker_url: str) -> None:
    answer = '{"verb":"success","parameters":[],"description":""}'
    async with listening(broker_url, answer) as queue, Client(broker_url) as client:
        assert await client.call(queue, "ping", timeout=_DEADLINE) is None


async def test_error_of_the_gem_is_raised_with_its_text(broker_url: str) -> None:
    answer = '{"verb":"error","parameters":["a","b"],"description":"oops"}'
    async with listening(broker_url, answer) as queue, Client(broker_url) as client:
        with pytest.raises(RemoteError, match="oops") as caught:
            await client.call(queue, "ping", timeout=_DEADLINE)

    assert caught.value.code == "error"
