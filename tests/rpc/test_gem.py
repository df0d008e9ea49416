"""The `nebulous_stomp` gem's own frames (PROTOCOL C.4, E.57), octet by octet, against a service of ours."""

from __future__ import annotations

import json
from uuid import uuid4

import anyio
import pytest
from anyio.abc import SocketStream

from nebula.rpc.responder import Responder
from nebula.stomp.addresses import parse_address
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

# The stomp gem puts both on every frame, also where there is no body.
_NO_BODY = "content-length:0\ncontent-type:text/plain; charset=UTF-8\n\n\0"
_THREE = {"verb": "addresponse", "parameters": 3}


class Gem:
    """What the gem's requester does, in its order: request, boo, SUBSCRIBE, ACK, UNSUBSCRIBE, DISCONNECT."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._held = b""

    async def say(self, frame: str) -> None:
        await self._stream.send(frame.encode())

    async def hear(self) -> tuple[str, dict[str, str], bytes]:
        while b"\0" not in self._held:
            self._held += await self._stream.receive()
        frame, _, self._held = self._held.lstrip(b"\n").partition(b"\0")
        head, _, body = frame.partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        # The gem reads 1.0: the first colon ends the name.
        return command, dict(line.split(":", 1) for line in lines), body

    async def ask(
        self, queue: str, replies: str, content_type: str, body: str
    ) -> tuple[dict[str, str], bytes]:
        await self.say(f"CONNECT\nlogin:guest\npasscode:guest\n{_NO_BODY}")
        command, connected, _ = await self.hear()
        assert command == "CONNECTED"
        reply_id = f"{connected['session']}_1795165882.3711545"
        await self.say(
            f"SEND\ncontent-type:{content_type}\nneb-reply-id:{reply_id}\nneb-reply-to:{replies}\n"
            f"destination:{queue}\ncontent-length:{len(body)}\n\n{body}\0"
        )
        await self.say(
            f"SEND\ndestination:{replies}\ncontent-length:3\ncontent-type:text/plain; charset=UTF-8\n\nboo\0"
        )
        await self.say(f"SUBSCRIBE\nack:client-individual\ndestination:{replies}\n{_NO_BODY}")
        while True:
            command, headers, answer = await self.hear()
            assert command == "MESSAGE", answer
            await self.say(f"ACK\nmessage-id:{headers['message-id']}\n{_NO_BODY}")
            if answer != b"boo":
                break
        assert headers["neb-in-reply-to"] == reply_id
        await self.say(f"UNSUBSCRIBE\ndestination:{replies}\n{_NO_BODY}")
        await self.say(f"DISCONNECT\n{_NO_BODY}")
        return headers, answer


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", '{"verb":"ping","parameters":{}}', {"verb": "success"}),
        (
            "application/json",
            '{"verb":"add","parameters":{"a":1,"b":2}}',
            {"verb": "addresponse", "parameters": 3},
        ),
        ("application/json", '{"verb":"add","params":[1,2]}', {"verb": "addresponse", "parameters": 3}),
        ("application/json", '{"verb":"nope"}', {"verb": "error"}),
        ("text/plain", "verb: ping\n\n", b"verb: success\nparameters: []\ndescription: \n\n"),
        ("text/plain", "verb: add\nparams: [1,2]\n\n", b"verb: addresponse\nparameters: 3\n\n"),
    ],
)
async def test_requester_of_the_gem_gets_its_answer(
    broker_url: str, serving: Serving, content_type: str, body: str, expected: dict[str, object] | bytes
) -> None:
    app = Responder(f"gem-{uuid4().hex}")

    @app.verb
    async def add(a: int, b: int) -> int:
        return a + b

    address = parse_address(broker_url)
    async with serving(app):
        with anyio.fail_after(5):
            async with await anyio.connect_tcp(address.host, address.port) as stream:
                headers, answer = await Gem(stream).ask(
                    f"/queue/{app.name}", f"/queue/out-{uuid4().hex}", content_type, body
                )

    assert headers["content-type"] == content_type
    if isinstance(expected, bytes):
        assert answer == expected
    else:
        assert expected.items() <= json.loads(answer).items()
