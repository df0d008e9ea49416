"""Sessions, durable subscriptions and snapshots from the client's side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import anyio
import pytest

from nebula.broker.core.profiles import MAXAM
from nebula.broker.server.server import Listener
from nebula.errors import LocalProtocolError, Refused
from nebula.stomp.client import AckMode, Message, StompClient, Subscription
from tests.rpc.conftest import RunningBroker
from tests.stomp.peer import DEADLINE, Peer, broker

pytestmark = pytest.mark.anyio


class Brokers(RunningBroker):
    """A broker of ours with a listener of each profile."""

    def __init__(self) -> None:
        silent = replace(MAXAM, needs_certificate=False)
        super().__init__(Listener(port=0), Listener(port=0, profile=silent))
        self.standard = self.url
        self.maxam = f"{self.urls[1]}/MAXVAPI"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    running = Brokers()
    yield running
    running.stop()


@pytest.fixture(params=["standard", "maxam"])
def url(brokers: Brokers, request: pytest.FixtureRequest) -> str:
    return brokers.standard if request.param == "standard" else brokers.maxam


@pytest.fixture
def subject() -> str:
    """Last-value destinations of this test begin so."""
    return f"X/test.{uuid4().hex}"


async def put(client: StompClient, destination: str, body: bytes) -> None:
    await client.send(destination, body, receipt=True)


async def take(subscription: Subscription, count: int) -> list[tuple[str, bytes]]:
    taken = []
    for _ in range(count):
        message = await anext(subscription)
        message.ack()
        taken.append((message.destination.rpartition(".")[2], message.body))
    return taken


# --- the session ---


async def test_client_id_is_the_session(url: str) -> None:
    name = uuid4().hex
    with anyio.fail_after(DEADLINE):
        async with StompClient(url, client_id=name) as client:
            assert client.session == name


async def test_client_id_with_a_line_end_is_not_sent(brokers: Brokers) -> None:
    with anyio.fail_after(DEADLINE), pytest.raises(LocalProtocolError, match="client-id"):
        async with StompClient(brokers.standard, client_id="a\nlogin:b"):
            pass


async def test_second_client_of_the_same_id_ends_the_first(url: str) -> None:
    name = uuid4().hex
    with anyio.fail_after(DEADLINE):
        async with StompClient(url, client_id=name) as first, StompClient(url, client_id=name) as second:
            assert "session taken over" in str(await first.wait_lost())
            assert second.session == name


# --- durable subscriptions ---


async def test_durable_subscription_goes_on_where_it_left(url: str, subject: str) -> None:
    session = ""
    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as other:
            async with StompClient(url) as client:
                session = client.session or ""
                async with client.subscribe(f"{subject}.*", ack=AckMode.CLIENT_INDIVIDUAL, durable="mine"):
                    pass
            for body in (b"1", b"2"):
                await put(other, f"{subject}.a", body)

            async with (
                StompClient(url, client_id=session) as client,
                client.subscribe(f"{subject}.*", ack=AckMode.CLIENT_INDIVIDUAL, durable="mine") as again,
            ):
                assert await take(again, 1) == [("a", b"2")]
                await put(other, f"{subject}.b", b"3")
                assert await take(again, 1) == [("b", b"3")]


async def test_paused_subscription_is_kept_and_a_removed_one_is_not(url: str, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client:
            for end in (Subscription.pause, Subscription.remove):
                async with client.subscribe(subject, ack=AckMode.CLIENT, durable="mine") as subscription:
                    await end(subscription)
                    assert [message async for message in subscription] == []
                await put(client, subject, end.__name__.encode())
                async with client.subscribe(subject, ack=AckMode.CLIENT, durable="mine") as subscription:
                    await put(client, subject, b"later")
                    assert (await anext(subscription)).body == (
                        b"pause" if end is Subscription.pause else b"later"
                    )
                    await subscription.remove()


async def test_paused_subscription_can_be_removed(url: str, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client, client.subscribe(subject, durable="mine") as subscription:
            await subscription.pause()
            await subscription.pause()
            await subscription.remove()

            with pytest.raises(Refused, match="ignored"):
                await subscription.remove()


async def test_only_durable_subscriptions_can_be_paused(brokers: Brokers, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(brokers.standard) as client, client.subscribe(subject) as subscription:
            for end in (subscription.pause, subscription.remove):
                with pytest.raises(LocalProtocolError, match="not durable"):
                    await end()
            await put(client, subject, b"still here")

            assert (await anext(subscription)).body == b"still here"


async def test_durable_name_is_no_number_and_open_once(brokers: Brokers, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(brokers.standard) as client, client.subscribe(subject, durable="mine"):
            for name in ("", "7", "mine"):
                with pytest.raises(LocalProtocolError):
                    async with client.subscribe(subject, durable=name):
                        pass


async def test_misspelt_option_is_refused(brokers: Brokers, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(brokers.standard) as client:
            with pytest.raises(TypeError, match="durabel"):
                await client.listen(subject, print, durabel="mine")  # type: ignore[call-arg]


async def test_subscribe_that_is_silently_ignored_is_refused_in_time(brokers: Brokers, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(brokers.maxam) as client:
            with pytest.raises(Refused, match="unanswered"):
                async with client.subscribe("/queue/nebula.secret", timeout=0.2):
                    pass

            async with client.subscribe(subject) as subscription:
                await put(client, subject, b"alive")
                assert (await anext(subscription)).body == b"alive"


# --- snapshots ---


@pytest.mark.parametrize("ack", AckMode)
async def test_snapshot_is_what_is_there_and_changes_follow(url: str, subject: str, ack: AckMode) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client:
            for key in "abc":
                await put(client, f"{subject}.{key}", key.encode())
            await put(client, f"{subject}.b", b"")
            async with client.subscribe(f"{subject}.*", ack=ack, eager=True) as subscription:
                seen = {message.body async for message in subscription.snapshot()}
                await put(client, f"{subject}.d", b"d")
                change = await anext(subscription)

                assert seen == {b"a", b"c"}
                assert (change.body, change.is_deletion, change.ends_snapshot) == (b"d", False, False)
                assert [message async for message in subscription.snapshot()] == []


async def test_empty_snapshot_ends_and_shows_nothing(url: str, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with (
            StompClient(url) as client,
            client.subscribe(subject, ack=AckMode.CLIENT, eager=True) as subscription,
        ):
            assert [message async for message in subscription.snapshot()] == []
            await put(client, subject, b"value")
            await take(subscription, 1)
            await put(client, subject, b"")

            assert (await anext(subscription)).is_deletion


async def test_end_of_a_snapshot_wakes_who_waits_for_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert "eager:true" in (subscribe := await peer.confirm())
        assert "snapshot:true" in subscribe
        await peer.say("MESSAGE\nsubscription:1\nmessage-id:m\ndestination:X/a\nsnapshot:end\n\n^@")
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with (
        broker(script) as where,
        StompClient(where) as client,
        client.subscribe("X/a", eager=True, receipt=True) as subscription,
    ):
        assert [message async for message in subscription.snapshot()] == []


async def test_snapshot_wants_an_eager_subscription(brokers: Brokers, subject: str) -> None:
    with anyio.fail_after(DEADLINE):
        async with StompClient(brokers.standard) as client, client.subscribe(subject) as subscription:
            with pytest.raises(LocalProtocolError, match="not eager"):
                await anext(subscription.snapshot())


@pytest.mark.parametrize("count", [0, 3])
async def test_listener_is_told_when_it_has_the_snapshot(url: str, subject: str, count: int) -> None:
    seen: list[Message] = []
    at_the_end: list[int] = []
    has_all = anyio.Event()

    def on_snapshot() -> None:
        at_the_end.append(len(seen))
        has_all.set()

    with anyio.fail_after(DEADLINE):
        async with StompClient(url) as client:
            for key in range(count):
                await put(client, f"{subject}.{key}", b"v")
            await client.listen(f"{subject}.*", seen.append, eager=True, on_snapshot=on_snapshot)
            await has_all.wait()
            await put(client, f"{subject}.0", b"more")

    assert at_the_end == [count]
    assert len(seen) == count + 1


def _marked(name: str, headers: str, body: str) -> str:
    return f"MESSAGE\nsubscription:1\nmessage-id:{name}\nack:{name}\ndestination:X/*\n{headers}\n{body}^@"


@pytest.mark.parametrize(
    ("mode", "acks_first", "acks"),
    [
        # One ACK for one message.
        (AckMode.CLIENT_INDIVIDUAL, False, ["end", "v"]),
        # An ACK of the marker would ack the value too, which is not done with.
        (AckMode.CLIENT, False, ["v", "end"]),
        (AckMode.CLIENT, True, ["v", "end"]),
    ],
)
async def test_end_of_a_snapshot_is_acked_and_acks_nothing_else(
    mode: AckMode, acks_first: bool, acks: list[str]
) -> None:
    heard: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(_marked("v", "", "value"))
        if acks_first:
            heard.append(await peer.hear())
        await peer.say(_marked("end", "snapshot:end\n", ""))
        while len(heard) < 2:
            heard.append(await peer.hear())
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    async with (
        broker(script) as where,
        StompClient(where) as client,
        client.subscribe("X/*", ack=mode, eager=True) as subscription,
    ):
        snapshot = subscription.snapshot()
        value = await anext(snapshot)
        if acks_first:
            value.ack()
        assert [message async for message in snapshot] == []
        if not acks_first:
            value.ack()

    assert [frame.partition("id:")[2].strip() for frame in heard] == acks
