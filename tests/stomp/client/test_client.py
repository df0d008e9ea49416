"""The client against a scripted peer: connecting, sending, and every way to end."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nebula.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NebulaError,
    Rejected,
    ServerError,
)
from nebula.headers import RECEIPT_ON_REJECTION
from nebula.stomp.client import Receipt, StompClient
from nebula.stomp.client.link import Link
from nebula.stomp.client.network_links import AnyioLink
from tests.stomp.peer import DEADLINE, Peer, broker, receipt_of

pytestmark = pytest.mark.anyio


@pytest.fixture(
    params=[
        pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
        pytest.param(("trio", {}), id="trio"),
    ]
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


# --- connecting ---


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_client_knows_who_it_is_connected_to(version: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept(version, "session:s-1\nserver:nebula/0.1\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        assert (client.version, client.session, client.server) == (version, "s-1", "nebula/0.1")
        assert client.is_nebula


async def test_foreign_broker_is_not_taken_for_ours() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept("1.2", "server:RabbitMQ/3.12\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        assert not client.is_nebula


async def test_login_comes_from_the_address_unless_given() -> None:
    heard: list[str] = []

    async def script(peer: Peer) -> None:
        heard.append(await peer.accept())
        await peer.part()

    async with broker(script) as url:
        address = url.replace("//", "//me:secret@") + "/orders"
        async with StompClient(address, passcode="other"):
            pass

    assert "host:orders\n" in heard[0]
    assert "login:me\npasscode:other\n" in heard[0]


async def test_nobody_listening_is_a_failed_connect() -> None:
    with socket.socket() as unused, anyio.fail_after(DEADLINE):
        unused.bind(("127.0.0.1", 0))

        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1"):
            async with StompClient(f"stomp://127.0.0.1:{unused.getsockname()[1]}"):
                pass


async def test_broker_that_says_nothing_is_a_failed_connect_in_time() -> None:
    async def script(peer: Peer) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # it may give up before it has spoken
            await peer.hear()
        assert await peer.is_closed()

    async with broker(script) as url:
        with pytest.raises(ConnectFailed, match=r"no session within 0\.05 s"):
            async with StompClient(url, connect_timeout=0.05):
                pass


async def test_error_during_connect_is_told_with_the_brokers_words() -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say("ERROR\nmessage:Bad CONNECT\n\nAccess refused^@")
        assert await peer.is_closed()

    async with broker(script) as url:
        with pytest.raises(ConnectFailed, match="Bad CONNECT: Access refused") as caught:
            async with StompClient(url, passcode="secret"):
                pass

    assert isinstance(caught.value.__cause__, ServerError)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("ERROR\nversion:1.0,1.1\nmessage:version\n\nSupported are 1.0, 1.1^@", "Supported are 1.0, 1.1"),
        ("CONNECTED\nversion:1.1\n\n^@", "which we did not offer"),
        ("CONNECTED\n\n^@", "which we did not offer"),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "unknown command"),
        ("^@" * 100, "NUL"),
        ("RECEIPT\nreceipt-id:1\n\n^@", "RECEIPT is not legal while connecting"),
    ],
)
async def test_answer_that_is_no_session_is_a_failed_connect(answer: str, reason: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(answer)
        assert await peer.is_closed()

    async with broker(script) as url:
        with pytest.raises(ConnectFailed, match=reason):
            async with StompClient(url, versions=["1.2"]):
                pass


@pytest.mark.parametrize("said", ["", "CONN", "CONNECTED\nversion:1.2\n", "CONNECTED\nversion:1.2\n\n"])
async def test_connection_cut_before_connected_is_a_failed_connect(said: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.say(said or "\n")

    async with broker(script) as url:
        with pytest.raises(ConnectFailed, match="closed the connection"):
            async with StompClient(url):
                pass


async def test_peer_that_speaks_first_is_heard() -> None:
    async def script(peer: Peer) -> None:
        await peer.say("SSH-2.0-OpenSSH_9.2\r\n")
        while not await peer.is_closed():
            pass

    async with broker(script) as url:
        with pytest.raises(ConnectFailed, match="command"):
            async with StompClient(url):
                pass


async def test_cancelled_connect_closes_the_link() -> None:
    connecting = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.hear()
        connecting.set()
        assert await peer.is_closed()

    async def connect(url: str) -> None:
        async with StompClient(url):
            raise AssertionError

    async with broker(script) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(connect, url)
        await connecting.wait()
        tasks.cancel_scope.cancel()


async def test_client_connects_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.part()

    async with broker(script) as url:
        client = StompClient(url)
        async with client:
            pass
        with pytest.raises(LocalProtocolError, match="connects once"):
            async with client:
                pass


async def test_client_that_was_not_entered_says_so() -> None:
    with pytest.raises(LocalProtocolError, match="async with"):
        StompClient("stomp://broker").post("/queue/a", b"", {})


# --- sending ---


async def test_posts_and_sends_arrive_in_the_order_of_the_calls() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        bodies = [(await peer.hear()).partition("\n\n")[2] for _ in range(200)]
        assert bodies == [str(number) for number in range(200)]
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        for number in range(0, 200, 2):
            client.post("/queue/a", str(number).encode(), {})
            await client.send("/queue/a", str(number + 1))


async def test_text_goes_out_as_text_unless_the_headers_say_more() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert await peer.hear() == (
            "SEND\ndestination:/queue/a\ncontent-length:2\ncontent-type:text/plain\n\n\u00e9"
        )
        assert "content-type:application/json\n" in await peer.hear()
        assert "content-type" not in await peer.hear()
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        await client.send("/queue/a", "\u00e9")
        await client.send("/queue/a", "{}", {"content-type": "application/json"})
        await client.send("/queue/a", b"{}")


async def test_send_with_receipt_returns_the_brokers_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm("disposition:accepted\nconsumers:3\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        receipt = await client.send("/queue/a", b"", receipt=True, timeout=DEADLINE)

    assert receipt is not None
    assert receipt.headers["consumers"] == "3"


@pytest.mark.parametrize("header", ["disposition", "content-disposition"])
async def test_refused_send_raises_the_brokers_verdict(header: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm(f"{header}:rejected-full\n")
        await peer.confirm()
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(Rejected) as caught:
            await client.send("/queue/a", receipt=True)
        await client.send("/queue/a", receipt=True)

    assert (caught.value.verdict, caught.value.destination) == ("rejected-full", "/queue/a")


async def test_receipt_that_does_not_come_in_time_is_not_mistaken_for_a_later_one() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        late = receipt_of(await peer.hear())
        second = receipt_of(await peer.hear())
        await peer.say(f"RECEIPT\nreceipt-id:{late}\ndisposition:rejected-full\n\n^@")
        await peer.say(f"RECEIPT\nreceipt-id:{second}\n\n^@")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(TimeoutError):
            await client.send("/queue/a", receipt=True, timeout=0.01)
        await client.send("/queue/a", receipt=True)


async def test_post_with_receipt_calls_back_with_any_verdict_in_the_brokers_order() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm("disposition:rejected-full\n")
        await peer.confirm()
        await peer.part()

    receipts: list[Receipt] = []
    async with broker(script) as url, StompClient(url) as client:
        client.post_with_receipt("/queue/a", b"", {}, receipts.append)
        client.post_with_receipt("/queue/a", b"", {}, receipts.append)

    assert [receipt.verdict for receipt in receipts] == ["rejected-full", "accepted"]


async def test_receipt_that_is_wanted_on_rejection_calls_back_until_it_is_forgotten() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm("disposition:rejected-full\n")
        await peer.confirm("disposition:rejected-full\n")
        await peer.part()

    receipts: list[Receipt] = []
    on_rejection = {RECEIPT_ON_REJECTION: "true"}
    async with broker(script) as url, StompClient(url) as client:
        first = client.post_with_receipt("/queue/a", b"", on_rejection, receipts.append)
        client.forget(client.post_with_receipt("/queue/a", b"", on_rejection, receipts.append))
        client.forget("unknown")

        with pytest.raises(LocalProtocolError, match="waited for"):
            await client.send("/queue/a", headers=on_rejection, receipt=True)

    assert [receipt.headers["receipt-id"] for receipt in receipts] == [first]


async def test_drain_waits_for_a_peer_that_does_not_read() -> None:
    may_read = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await may_read.wait()
        while not await peer.is_closed():
            pass

    async with broker(script) as url, StompClient(url, disconnect_timeout=0.05) as client:
        # More than the kernel and a loop that reads ahead can take together.
        for _ in range(160):
            client.post("/queue/a", b"x" * 1024 * 1024, {})
        with anyio.move_on_after(0.05) as scope:
            await client.drain()
        assert scope.cancelled_caught

        may_read.set()
        await client.drain()


async def test_writer_that_drains_lets_other_tasks_run() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        while not await peer.is_closed():
            pass

    has_run = anyio.Event()

    async def run() -> None:
        has_run.set()

    async with (
        broker(script) as url,
        StompClient(url, disconnect_timeout=0.01) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run)
        for _ in range(100):
            client.post("/queue/a", b"x" * 1024, {})
            await client.drain()

        assert has_run.is_set()


async def test_drain_ends_with_the_connection() -> None:
    is_full = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept()
        await is_full.wait()

    async with broker(script) as url, StompClient(url) as client:
        for _ in range(64):
            client.post("/queue/a", b"x" * 1024 * 1024, {})
        is_full.set()
        with pytest.raises(ConnectionLost):
            await client.drain()


# --- the end ---


async def test_leaving_says_good_bye_and_waits_for_what_was_posted() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("SEND\n")
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        client.post("/queue/a", b"", {})


async def test_explicit_disconnect_ends_everything_and_leaving_repeats_nothing() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.part()

    async with broker(script) as url, StompClient(url) as client:
        await client.disconnect()
        await client.disconnect()

        with pytest.raises(ConnectionLost, match="disconnected"):
            client.post("/queue/a", b"", {})


async def test_broker_that_never_answers_disconnect_is_left_in_time() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("DISCONNECT\n")
        assert await peer.is_closed()

    async with broker(script) as url, StompClient(url, disconnect_timeout=0.01):
        pass


async def test_broker_that_closes_instead_of_confirming_disconnect_is_no_error() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()

    lost: list[NebulaError] = []
    async with broker(script) as url:
        client = StompClient(url)
        client.on_lost = lost.append
        async with client:
            pass

    assert lost == []


async def test_leaving_a_cancelled_scope_closes_without_a_word() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        assert await peer.is_closed()

    async with broker(script) as url:
        with anyio.CancelScope() as scope:
            async with StompClient(url):
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught


async def test_exception_of_the_block_comes_out_as_it_is() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.part()

    async with broker(script) as url:
        with pytest.raises(KeyError):
            async with StompClient(url):
                raise KeyError


async def test_connection_cut_while_a_receipt_is_awaited_is_told_to_who_waits() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(ConnectionLost):
            await client.send("/queue/a", receipt=True)
        with pytest.raises(ConnectionLost):
            client.post("/queue/a", b"", {})
        with pytest.raises(ConnectionLost):
            await client.send("/queue/a")


async def test_error_frame_is_told_to_everyone_who_waits_then_the_connection_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        for _ in range(3):
            await peer.hear()
        await peer.say("ERROR\nmessage:no\ncontent-length:4\n\nwhy?^@")
        assert await peer.is_closed()

    told: list[NebulaError] = []

    async def send(client: StompClient) -> None:
        with pytest.raises(ServerError) as caught:
            await client.send("/queue/a", receipt=True)
        told.append(caught.value)

    async with broker(script) as url, StompClient(url) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(send, client)
        with pytest.raises(ConnectionLost, match="no") as caught:
            client.post("/queue/a", b"", {})

    assert [(error.message, error.detail) for error in told if isinstance(error, ServerError)] == [
        ("no", "why?")
    ] * 3
    assert isinstance(caught.value.__cause__, ServerError)


async def test_garbage_in_a_session_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.hear()
        await peer.say("MESSAGE\nno colon\n\n^@")
        assert await peer.is_closed()

    async with broker(script) as url, StompClient(url) as client:
        with pytest.raises(ConnectionLost, match="broke the protocol"):
            await client.send("/queue/a", receipt=True)


@pytest.mark.parametrize(("said", "kind"), [("", ConnectionLost), ("ERROR\nmessage:no\n\n^@", ServerError)])
async def test_loss_is_told_once_to_the_hook_and_to_those_who_wait_for_it(
    said: str, kind: type[NebulaError]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.say(said or "\n")

    lost: list[NebulaError] = []
    async with broker(script) as url:
        client = StompClient(url)
        client.on_lost = lost.append
        async with client:
            error = await client.wait_lost()
            assert isinstance(await client.wait_lost(), ConnectionLost)

    assert isinstance(error, NebulaError)
    assert [type(each) for each in lost] == [kind]


# --- heart-beats ---


async def test_client_beats_while_it_has_nothing_to_say() -> None:
    has_beaten = anyio.Event()

    async def script(peer: Peer) -> None:
        await peer.accept("1.2", "heart-beat:0,20\n")
        await peer.hear_beat()
        await peer.hear_beat()
        has_beaten.set()
        await peer.part()

    async with broker(script) as url, StompClient(url, heart_beat=(0.02, 0)):
        await has_beaten.wait()


async def test_broker_that_falls_silent_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept("1.2", "heart-beat:20,0\n")
        await peer.hear()
        assert await peer.is_closed()

    async with broker(script) as url, StompClient(url, heart_beat=(0, 0.02)) as client:
        with pytest.raises(ConnectionLost, match=r"nothing for 0\.04 s"):
            await client.send("/queue/a", receipt=True)


async def test_broker_that_beats_is_not_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept("1.2", "heart-beat:200,0\n")
        asked = receipt_of(await peer.hear())
        # Longer than a silent broker would be given.
        for _ in range(12):
            await anyio.sleep(0.05)
            await peer.say("\n")
        await peer.say(f"RECEIPT\nreceipt-id:{asked}\n\n^@")
        await peer.part()

    async with broker(script) as url, StompClient(url, heart_beat=(0, 0.2)) as client:
        await client.send("/queue/a", receipt=True)


# --- links ---


async def test_any_byte_stream_of_anyio_carries_a_session() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.part()

    async with broker(script) as url:
        host, _, port = url.removeprefix("stomp://").partition(":")

        async def open_link() -> Link:
            return AnyioLink(await anyio.connect_tcp(host, int(port)))

        async with StompClient(url, link=open_link) as client:
            await client.send("/queue/a", receipt=True)
