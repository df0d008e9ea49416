"""Verdicts of brokers on requests to one instance: only a missing listener means that it is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from nebula.errors import Rejected
from nebula.rpc.client.client import Client
from nebula.rpc.discovery import Instance
from tests.rpc.scripted import answer_to, brokers, header, request, welcome
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio

ONE = Instance("shop", "one", queue="/queue/shop.one")


def told(subscription: str, body: str) -> str:
    return (
        f"MESSAGE\nsubscription:{subscription}\nmessage-id:1\nsnapshot:end\n"
        f"destination:{ONE.destination}\n\n{body}^@"
    )


async def reject(peer: Peer, verdict: str) -> None:
    """Refuse the next SEND."""
    frame = await peer.hear()
    assert header(frame, "destination") == ONE.queue
    await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\ndisposition:{verdict}\n\n^@")


def knowing_one(then: Callable[[Peer, str], Awaitable[None]]) -> Callable[[Peer], Awaitable[None]]:
    """A broker that knows one instance. `then` gets the subscription that learned of it."""

    async def script(peer: Peer) -> None:
        await welcome(peer)
        subscription = header(await peer.confirm(), "id")
        await peer.say(told(subscription, ONE.to_json().decode()))
        await then(peer, subscription)
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    return script


async def test_instance_whose_queue_is_full_is_missing() -> None:
    async def full(peer: Peer, _: str) -> None:
        await reject(peer, "rejected-full")

    async with brokers(knowing_one(full)) as url, Client(url) as client:
        found = await client.call_all("shop", "price")

    assert (found.answers, found.missing) == ([], [ONE])


async def test_request_that_is_not_allowed_is_an_error_and_no_missing_instance() -> None:
    async def forbidding(peer: Peer, _: str) -> None:
        await reject(peer, "rejected-unauthorised")

    async with brokers(knowing_one(forbidding)) as url, Client(url) as client:
        with pytest.raises(Rejected, match="unauthorised"):
            await client.call_all("shop", "price")


async def test_leaving_instance_whose_queue_is_full_may_still_answer() -> None:
    async def leaving(peer: Peer, subscription: str) -> None:
        asked = await request(peer)
        await peer.say(told(subscription, ""))
        await reject(peer, "rejected-full")
        await request(peer)  # it looks again
        await peer.say(answer_to(asked, 5))

    async with brokers(knowing_one(leaving)) as url, Client(url) as client:
        found = await client.call_all("shop", "price")

    assert found.values == {"one": 5}


async def test_leaving_instance_that_listens_no_longer_is_missing() -> None:
    async def leaving(peer: Peer, subscription: str) -> None:
        await request(peer)
        await peer.say(told(subscription, ""))
        await reject(peer, "rejected-no-consumer")
        withdrawn = await peer.hear()
        assert header(withdrawn, "destination") == "/topic/nebula.cancel.shop"

    async with brokers(knowing_one(leaving)) as url, Client(url) as client:
        found = await client.call_all("shop", "price")

    assert (found.answers, found.missing) == ([], [ONE])
