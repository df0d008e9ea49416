"""Subscriptions whose connection is lost again while they are being restored."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from nebula.rpc.client.client import Client
from nebula.stomp.client.messages import AckMode
from tests.rpc.scripted import Script, brokers, header, welcome
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio


def message(text: str, subscribing: str, destination: str) -> str:
    return (
        f"MESSAGE\nsubscription:{header(subscribing, 'id')}\nmessage-id:{text}\nack:{text}\n"
        f"destination:{destination}\n\n{text}^@"
    )


class Confirming:
    """A broker that confirms one subscription, and is gone when `cut` is set."""

    def __init__(self) -> None:
        self.cut = anyio.Event()

    async def __call__(self, peer: Peer) -> None:
        await welcome(peer)
        await peer.confirm()
        await self.cut.wait()


def stopping(behind_the_answer: str = "") -> Script:
    """A broker that confirms one subscription and ends the connection in the same write."""

    async def script(peer: Peer) -> None:
        await welcome(peer)
        frame = await peer.hear()
        more = message(behind_the_answer, frame, header(frame, "destination")) if behind_the_answer else ""
        answer = f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@"
        await peer.say(f"{answer}{more}ERROR\nmessage:stopping\n\n^@")

    return script


async def telling(peer: Peer) -> None:
    """A broker that confirms one subscription and has one message for it."""
    await welcome(peer)
    subscribing = await peer.confirm()
    await peer.say(message("news", subscribing, header(subscribing, "destination")))
    while not (await peer.hear()).startswith("UNSUBSCRIBE\n"):
        pass
    await peer.part()


async def test_subscription_that_is_lost_again_behind_its_answer_is_made_again() -> None:
    first = Confirming()
    async with (
        brokers(first, stopping(), stopping(), telling) as url,
        Client(url) as client,
        client.subscribe("/topic/news") as news,
    ):
        first.cut.set()
        assert (await anext(news)).body == b"news"


async def test_message_of_the_second_lost_connection_comes_again_and_its_ack_does_nothing() -> None:
    first = Confirming()
    async with (
        brokers(first, stopping("lost"), telling) as url,
        Client(url) as client,
        client.subscribe("/queue/work", ack=AckMode.CLIENT_INDIVIDUAL) as work,
    ):
        first.cut.set()
        taken = await anext(work)
        assert taken.body == b"news"
        taken.ack()


async def test_topic_that_is_lost_again_gives_what_came_and_its_ack_does_nothing() -> None:
    first = Confirming()
    async with (
        brokers(first, stopping("lost"), telling) as url,
        Client(url) as client,
        client.subscribe("/topic/news", ack=AckMode.CLIENT_INDIVIDUAL) as news,
    ):
        first.cut.set()
        for expected in (b"lost", b"news"):
            taken = await anext(news)
            assert taken.body == expected
            taken.ack()


async def test_reader_that_waits_for_a_status_is_not_told_that_it_has_left() -> None:
    # Nothing waits for a message as the connection is lost: it comes for the next one afterwards.
    states: list[str] = []
    first = Confirming()
    async with (
        brokers(first, stopping(), telling) as url,
        Client(url, on_state=states.append) as client,
        client.subscribe("/topic/news") as news,
    ):
        first.cut.set()
        while states.count("lost") < 2:
            await anyio.lowlevel.checkpoint()
        assert [(await anext(news)).body] == [b"news"]


async def test_subscription_that_is_left_before_it_is_lost_again_stays_so() -> None:
    asked, is_left = anyio.Event(), anyio.Event()

    async def second(peer: Peer) -> None:
        await welcome(peer)
        frame = await peer.hear()
        asked.set()
        await is_left.wait()
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@ERROR\nmessage:stopping\n\n^@")

    async def third(peer: Peer) -> None:
        await welcome(peer)
        await peer.part()

    states: list[str] = []
    first = Confirming()
    async with brokers(first, second, third) as url, Client(url, on_state=states.append) as client:
        async with client.subscribe("/topic/news"):
            first.cut.set()
            await asked.wait()
        is_left.set()
        while states.count("connected") < 2:
            await anyio.lowlevel.checkpoint()
