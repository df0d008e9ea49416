"""A broker that plays one script for each connection, and then is gone."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

from tests.stomp.peer import DEADLINE, Peer, receipt_of

Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def brokers(*scripts: Script) -> AsyncIterator[str]:
    """Play the scripts, one for each connection in order; yields the address.

    A connection ends with its script. The block is left when all scripts have ended, and what a script
    asserts fails the test; connections beyond the last are closed at once.
    """
    with anyio.fail_after(DEADLINE):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            left = list(scripts)
            played = anyio.Event()

            async def play(stream: SocketStream) -> None:
                async with stream:
                    if not left:
                        return
                    await left.pop(0)(Peer(stream))
                if not left:
                    played.set()

            tasks.start_soon(listener.serve, play)
            yield f"stomp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            await played.wait()
            tasks.cancel_scope.cancel()


async def welcome(peer: Peer, server: str = "nebula/0") -> str:
    """CONNECTED and an inbox; gives the inbox's name."""
    await peer.accept("1.2", f"server:{server}\n")
    return header(await peer.confirm(), "destination")


async def request(peer: Peer) -> str:
    """The next SEND, which is receipted as taken."""
    frame = await peer.hear()
    assert frame.startswith("SEND\n"), frame
    if "\nreceipt:" in frame:
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\ndisposition:accepted\n\n^@")
    return frame


def answer_to(frame: str, value: object, *, verb: str = "response") -> str:
    """The MESSAGE to the inbox, which is subscription 1, that answers a request."""
    body = json.dumps({"verb": verb, "parameters": value})
    return (
        "MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/inbox\ncontent-type:application/json\n"
        f"neb-in-reply-to:{header(frame, 'neb-reply-id')}\ncontent-length:{len(body)}\n\n{body}^@"
    )


def header(frame: str, name: str) -> str:
    """The value of a frame's header."""
    found = re.search(f"^{name}:(.*)$", frame, re.MULTILINE)
    assert found, frame
    return found[1]
