"""Subscriptions, listeners and transactions of the client against a scripted peer."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from nebula.errors import ConnectionLost, LocalProtocolError, Refused, Rejected, ServerError
from nebula.headers import RECEIPT_ON_REJECTION
from nebula.stomp.client import AckMode, Message, StompClient, Subscription
from nebula.stomp.client.link import Link, Receiver
from tests.own_logs import all_logs
from tests.stomp.peer import Peer, broker, receipt_of

pytestmark = pytest.mark.anyio

MESSAGE_BYTES = 10_000


def message(number: int | str, subscription: str = "1", body: str = "") -> str:
    return (
        f"MESSAGE\nsubscription:{subscription}\nmessage-id:m{number}\nack:a{number}\n"
        f"destination:/queue/a\n\n{body or number}^@"
    )


async def take(subscription: Subscription, count: int) -> list[str]:
    return [(await anext(subscription)).body.decode() for _ in range(count)]


# --- SUBSCRIBE and UNSUBSCRIBE ---


async def test_subscription_gives_messages_in_the_brokers_order_and_unsubscribes() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        subscribe = await peer.confirm()
        assert subscribe.startswith("SUBSCRIBE\nprefetch-count:5\nid:1\ndestination:/queue/a\nack:auto\n")
        await peer.say("".join(message(number) for number in range(200)))
        assert await peer.hear() == "UNSUBSCRIBE\nid:1\n\n"
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        async with client.subscribe("/queue/a", headers={"prefetch-count": "5"}) as subscription:
            assert await take(subscription, 200) == [str(number) for number in range(200)]
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)


async def test_message_tells_its_headers_destination_and_id() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say("MESSAGE\nsubscription:1\nmessage-id:m1\ndestination:/queue/b\nx:y\n\nhello^@")
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/*") as subscription,
    ):
        received = await anext(subscription)

    assert (received.destination, received.id, received.body) == ("/queue/b", "m1", b"hello")
    assert received.headers["x"] == "y"
    assert received.subscription.destination == "/queue/*"


async def test_ignored_subscribe_is_refused_and_not_unsubscribed() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm("result:ignored\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(Refused, match="/queue/a") as caught:
            async with client.subscribe("/queue/a"):
                pass

    assert caught.value.code == "ignored"


async def test_unanswered_subscribe_is_refused_and_unsubscribed() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        assert await peer.hear() == "UNSUBSCRIBE\nid:1\n\n"
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(Refused) as caught:
            async with client.subscribe("/queue/a", timeout=0.01):
                pass

    assert caught.value.code == "unanswered"


@pytest.mark.parametrize("said", ["\n", "ERROR\nmessage:no\n\n^@"])
async def test_connection_that_ends_during_subscribe_is_told(said: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        await peer.say(said)

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises((ConnectionLost, ServerError)):
            async with client.subscribe("/queue/a"):
                pass


async def test_what_came_before_the_end_of_the_connection_is_still_handed_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1) + message(2))

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT) as subscription,
    ):
        await client.wait_lost()

        assert await take(subscription, 2) == ["1", "2"]
        with pytest.raises(ConnectionLost):
            await anext(subscription)


async def test_error_frame_reaches_a_loop_that_waits_for_messages() -> None:
    is_waiting = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await is_waiting.wait()
        await peer.say("ERROR\nmessage:no\n\n^@")

    async def consume(subscription: Subscription) -> None:
        with pytest.raises(ServerError, match="no"):
            await anext(subscription)

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a") as subscription,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(consume, subscription)
        await anyio.wait_all_tasks_blocked()
        is_waiting.set()


async def test_message_that_crosses_an_unsubscribe_is_dropped() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.hear()
        await peer.say(message(1))
        await peer.confirm()
        await peer.part()

    received: list[Message] = []
    async with broker(script) as url, StompClient(url) as client:
        listener = await client.listen("/queue/a", received.append)
        listener.close()
        listener.close()
        await client.send("/queue/a", receipt=True)

    assert received == []


async def test_message_of_a_1_0_broker_finds_its_subscription_by_destination() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept("1.0", "session:s\n")
        await peer.confirm()
        await peer.say("MESSAGE\nmessage-id:m1\ndestination:/queue/a\n\nhello^@")
        assert await peer.hear() == "ACK\nmessage-id:m1\n\n"
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT) as subscription,
    ):
        (await anext(subscription)).ack()


async def test_listener_that_fails_does_not_take_messages_from_others() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.confirm()
        await peer.say(message(1, "1") + message(2, "3"))
        await peer.confirm()
        await peer.part()

    received: list[Message] = []

    def fail(message: Message) -> None:
        raise KeyError(message.id)

    with all_logs() as logs:
        async with broker(script) as url, StompClient(url) as client:
            await client.listen("/queue/a", fail)
            await client.listen("/queue/a", received.append)
            await client.send("/queue/b", receipt=True)

    assert [each.id for each in received] == ["m2"]
    assert "subscriber failed" in [entry["event"] for entry in logs]


# --- tasks that share a subscription ---


async def test_each_message_goes_to_one_of_the_tasks_that_wait() -> None:
    are_waiting = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await are_waiting.wait()
        await peer.say("".join(message(number) for number in range(3)))
        await peer.hear()
        await peer.part()

    taken: list[str] = []

    async def consume(subscription: Subscription) -> None:
        taken.extend(await take(subscription, 1))

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a") as subscription,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(3):
            tasks.start_soon(consume, subscription)
        await anyio.wait_all_tasks_blocked()
        are_waiting.set()

    assert sorted(taken) == ["0", "1", "2"]


@pytest.mark.parametrize("is_cancelled_first", [True, False])
async def test_message_for_a_task_that_is_cancelled_at_that_moment_is_not_lost(
    *, is_cancelled_first: bool
) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.hear()
        await peer.part()

    taken: list[str] = []
    first = anyio.CancelScope()

    async def consume(subscription: Subscription, scope: anyio.CancelScope) -> None:
        with scope:
            taken.extend(await take(subscription, 1))

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a") as subscription,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(consume, subscription, first)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(consume, subscription, anyio.CancelScope())
        await anyio.wait_all_tasks_blocked()
        if is_cancelled_first:
            first.cancel()
        listener = subscription.push
        listener.on_message(Message({"message-id": "m1"}, b"one", listener))
        first.cancel()
        await anyio.wait_all_tasks_blocked()

        assert taken == ["one"]
        tasks.cancel_scope.cancel()


# --- ACK and NACK ---


async def test_messages_are_acked_and_nacked_by_the_brokers_ack_id() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert "\nack:client-individual\n" in await peer.confirm()
        await peer.say(message(1) + message(2))
        assert await peer.hear() == "ACK\nid:a1\n\n"
        assert await peer.hear() == "NACK\nrequeue:false\nid:a2\n\n"
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT_INDIVIDUAL) as subscription,
    ):
        (await anext(subscription)).ack()
        (await anext(subscription)).nack(requeue="false")


async def test_ack_with_a_receipt_tells_when_the_broker_has_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1) + message(2))
        assert await peer.hear() == "ACK\nid:a1\n\n"
        ack = await peer.confirm()
        assert ack.startswith("ACK\n")
        assert "\nid:a2\n" in ack
        await peer.hear()
        await peer.part()

    told = anyio.Event()
    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT_INDIVIDUAL) as subscription,
    ):
        (await anext(subscription)).ack()
        (await anext(subscription)).ack(lambda _receipt: told.set())
        await told.wait()


async def test_auto_subscription_has_nothing_to_ack() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1))
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a") as subscription,
    ):
        received = await anext(subscription)
        with pytest.raises(LocalProtocolError, match="auto"):
            received.ack()
        with pytest.raises(LocalProtocolError, match="auto"):
            received.nack()


async def test_ack_after_the_unsubscribe_is_not_written() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1))
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        # RabbitMQ answers the ACK of a message that it took back by an ERROR.
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        async with client.subscribe("/queue/a", ack=AckMode.CLIENT) as subscription:
            received = await anext(subscription)
        received.ack()
        received.nack()


async def test_ack_on_a_lost_connection_says_so() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1))

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT) as subscription,
    ):
        received = await anext(subscription)
        await client.wait_lost()
        with pytest.raises(ConnectionLost):
            received.ack()


# --- back-pressure ---


class FakeLink:
    """A link whose other end is the test: says whether it is read, lets the test deliver."""

    def __init__(self) -> None:
        self._is_read = True
        self.receiver: Receiver | None = None
        self.written: list[str] = []

    def is_read(self) -> bool:
        return self._is_read

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        self.receiver = receiver

    def write(self, data: bytes) -> None:
        self.written.append(data.decode())
        if data.startswith(b"CONNECT\n"):
            self.deliver("CONNECTED\nversion:1.2\n\n^@")
        elif data.startswith((b"SUBSCRIBE\n", b"DISCONNECT\n")):
            self.confirm()

    async def drain(self) -> None:
        pass

    def pause_reading(self) -> None:
        self._is_read = False

    def resume_reading(self) -> None:
        self._is_read = True

    def close(self) -> None:
        assert self.receiver is not None
        self.receiver.connection_lost(None)

    def deliver(self, octets: str) -> None:
        assert self.receiver is not None
        self.receiver.data_received(octets.replace("^@", "\0").encode())

    def confirm(self) -> None:
        self.deliver(f"RECEIPT\nreceipt-id:{receipt_of(self.written[-1])}\n\n^@")


def client_on(link: FakeLink) -> StompClient:
    async def open_link() -> Link:
        return link

    return StompClient("stomp://fake", link=open_link, max_buffered_bytes=5 * MESSAGE_BYTES)


def deliver_large(link: FakeLink, count: int) -> None:
    for number in range(count):
        link.deliver(message(number, body="x" * MESSAGE_BYTES))


async def test_link_is_not_read_while_too_much_waits_and_read_again_at_half() -> None:
    link = FakeLink()
    async with client_on(link) as client, client.subscribe("/queue/a") as subscription:
        deliver_large(link, 4)
        assert link.is_read()

        deliver_large(link, 1)
        assert not link.is_read()

        await take(subscription, 2)
        assert not link.is_read()

        await take(subscription, 1)
        assert link.is_read()


async def test_closing_a_full_subscription_lets_the_others_be_read() -> None:
    link = FakeLink()
    async with client_on(link) as client:
        async with client.subscribe("/queue/a"):
            deliver_large(link, 6)
            assert not link.is_read()
        assert link.is_read()


async def test_receipt_behind_a_flood_is_still_read() -> None:
    link = FakeLink()
    async with client_on(link) as client, client.subscribe("/queue/a"):
        deliver_large(link, 6)
        assert not link.is_read()

        client.post_with_receipt("/queue/b", b"", {}, lambda _: None)
        assert link.is_read()
        deliver_large(link, 6)
        assert link.is_read()

        link.confirm()
        deliver_large(link, 1)
        assert not link.is_read()


@pytest.mark.parametrize("is_told_of_rejections", [True, False])
async def test_answer_behind_a_flood_is_still_read(*, is_told_of_rejections: bool) -> None:
    link = FakeLink()
    async with client_on(link) as client, client.subscribe("/queue/a"):
        deliver_large(link, 6)
        assert not link.is_read()

        if is_told_of_rejections:
            headers = {RECEIPT_ON_REJECTION: "true"}
            awaited = client.post_with_receipt("/queue/b", b"", headers, lambda _: None)
        else:
            awaited = client.keep_reading()
        assert link.is_read()
        deliver_large(link, 6)
        assert link.is_read()

        client.forget(awaited)
        deliver_large(link, 1)
        assert not link.is_read()


async def test_flood_before_an_answer_is_read_up_to_four_times_as_far() -> None:
    link = FakeLink()
    async with client_on(link) as client, client.subscribe("/queue/a") as subscription:
        client.keep_reading()
        deliver_large(link, 18)
        assert link.is_read()

        deliver_large(link, 1)
        assert not link.is_read()

        await take(subscription, 10)
        assert link.is_read()


async def test_consumer_slower_than_its_broker_gets_every_message() -> None:
    count = 500

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say("".join(message(number, body="x" * MESSAGE_BYTES) for number in range(count)))
        await peer.confirm()
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url, max_buffered_bytes=50_000) as client,
        client.subscribe("/queue/a") as subscription,
    ):
        assert len(await take(subscription, count)) == count
        await client.send("/queue/b", receipt=True)


# --- transactions ---


@pytest.mark.parametrize("verdict", ["", "disposition:accepted\n"])
async def test_transaction_commits_when_the_block_ends_well(verdict: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(message(1) + message(2))
        heard = [(await peer.hear()).split("\n", 1) for _ in range(4)]
        assert [command for command, _ in heard] == ["BEGIN", "SEND", "ACK", "NACK"]
        assert all("transaction:3\n" in headers for _, headers in heard)
        assert (await peer.confirm(verdict)).startswith("COMMIT\ntransaction:3\n")
        await peer.hear()
        await peer.part()

    async with (
        broker(script) as url,
        StompClient(url) as client,
        client.subscribe("/queue/a", ack=AckMode.CLIENT_INDIVIDUAL) as subscription,
    ):
        async with client.transaction() as transaction:
            await transaction.send("/queue/b", "text")
            transaction.ack(await anext(subscription))
            transaction.nack(await anext(subscription))
        with pytest.raises(LocalProtocolError, match="has ended"):
            await transaction.send("/queue/b")


async def test_transaction_is_aborted_when_the_block_raises() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert await peer.hear() == "BEGIN\ntransaction:1\n\n"
        assert await peer.hear() == "ABORT\ntransaction:1\n\n"
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(KeyError):
            async with client.transaction():
                raise KeyError


async def test_refused_commit_raises_the_brokers_verdict() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        await peer.confirm("disposition:rejected-full\nfailed-receipt:1\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(Rejected, match="rejected-full"):
            async with client.transaction():
                pass


@pytest.mark.parametrize("said", ["\n", "ERROR\nmessage:no transactions\n\n^@"])
async def test_transaction_whose_connection_ends_does_not_end_well(said: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        await peer.hear()
        await peer.say(said)

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises((ConnectionLost, ServerError)):
            async with client.transaction():
                pass


async def test_unanswered_commit_times_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        await peer.hear()
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(TimeoutError):
            async with client.transaction(timeout=0.01):
                pass
