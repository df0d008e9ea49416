"""The client against a broker that breaks the protocol, or just breaks, in the middle of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from nebula.errors import ConnectionLost, NebulaError, ServerError
from nebula.stomp.client import AckMode, Receipt, StompClient
from nebula.stomp.frames import FrameLimits
from tests.stomp.faulty import LOOPS, SCHEMES, FaultyPeer, Waiters, check_ended, mad_broker, quiet
from tests.stomp.peer import receipt_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("scheme", SCHEMES)]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Their transports differ, so each gets its turn."""
    backend: tuple[str, dict[str, Any]] = request.param
    return backend


# --- faults that end the connection: everyone who waits is told, in words that say what was wrong ---

_MESSAGE = b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n"

FAULTS = [
    pytest.param(b"CONNECTED\nversion:1.2\n\n\0", "CONNECTED is not legal while connected", id="connected"),
    pytest.param(b"SEND\ndestination:/a\n\n\0", "unknown command 'SEND'", id="client-frame"),
    pytest.param(b"\xff\xfegarbage\n", "unknown command", id="garbage"),
    pytest.param(b"\n\n\0", "NUL", id="nul"),
    pytest.param(b"MESSAGE\0\n\n", "NUL", id="nul-in-command"),
    pytest.param(b"RECEIPT\n\n\0", "RECEIPT needs the header receipt-id", id="receipt-without-id"),
    pytest.param(b"RECEIPT\nreceipt-id:other\n\n\0", "RECEIPT for 'other'", id="receipt-never-asked"),
    pytest.param(b"RECEIPT\nreceipt-id:999\n\n\0", "RECEIPT for '999'", id="receipt-not-asked-yet"),
    pytest.param(b"RECEIPT\nreceipt-id:\n\n\0", "RECEIPT for ''", id="receipt-empty"),
    pytest.param(b"RECEIPT\nreceipt-id:3\n\nbody\0", "must not have a body", id="receipt-with-body"),
    pytest.param(
        b"MESSAGE\nsubscription:1\ndestination:/a\n\n\0", "needs the header message-id", id="no-message-id"
    ),
    pytest.param(
        b"MESSAGE\nsubscription:1\nmessage-id:1\n\n\0",
        "needs the header destination",
        id="message-without-destination",
    ),
    pytest.param(
        b"MESSAGE\nmessage-id:1\ndestination:/a\n\n\0", "needs the header subscription", id="no-subscription"
    ),
    pytest.param(_MESSAGE + b"content-length:2\n\nfour\0", "not NUL", id="length-too-small"),
    pytest.param(_MESSAGE + b"content-length:-1\n\nx\0", "'-1' is not a number", id="length-negative"),
    pytest.param(_MESSAGE + b"content-length:1e3\n\nx\0", "not a number", id="length-no-number"),
    pytest.param(_MESSAGE + b"content-length:\xd9\xa1\n\nx\0", "not a number", id="length-arabic"),
    pytest.param(_MESSAGE + b"content-length:9999999\n\nx", "exceeds 1000", id="length-beyond-limit"),
    pytest.param(_MESSAGE + b"content-length:" + b"9" * 60 + b"\n\nx", "exceeds 1000", id="length-absurd"),
    pytest.param(_MESSAGE + b"\n" + b"x" * 2000, "exceeds 1000", id="body-without-end"),
    pytest.param(b"MESSAGE\n" + b"x:y\n" * 40, "more than 20 headers", id="many-headers"),
    pytest.param(b"MESSAGE\nx:" + b"y" * 400, "a header line exceeds 200", id="long-header"),
    pytest.param(b"MESSAGE\nx:\xff\n\n\0", "not UTF-8", id="not-utf-8"),
    pytest.param(b"MESSAGE\nx:\\t\n\n\0", "undefined escape", id="undefined-escape"),
    pytest.param(b"MESSAGE\nx:a\\\n\n\0", "lone backslash", id="lone-backslash"),
    pytest.param(b"MESSAGE\nx:a\rb\n\n\0", "CR inside a header", id="cr"),
    pytest.param(b"MESSAGE\nno colon\n\n\0", "without a colon", id="no-colon"),
    pytest.param(b"MESSAGE\n:x\n\n\0", "without a name", id="no-name"),
]

LIMITS = FrameLimits(max_headers=20, max_header_line_bytes=200, max_body_bytes=1000)


async def hear_waiters(peer: FaultyPeer) -> list[str]:
    """A session in which everyone waits; returns the frames that asked for something."""
    await peer.accept()
    await peer.confirm()
    return [await peer.hear() for _ in range(Waiters.FRAMES - 1)]


@pytest.mark.parametrize(("octets", "said"), FAULTS)
async def test_fault_of_the_broker_is_told_to_everyone_who_waits(
    scheme: str, octets: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await hear_waiters(peer)
        await peer.say(octets)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url, limits=LIMITS) as client:
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ConnectionLost, "the broker broke the protocol: ")
    assert said in str(waiters.lost[0])


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        pytest.param(b"ERROR\nmessage:no\ncontent-length:4\n\nwhy?\0", "no: why?", id="words"),
        pytest.param(b"ERROR\n\n\0", "ERROR", id="no-words"),
        pytest.param(b"ERROR\nmessage:no\n\n\xff\xfe\0", "no: \ufffd\ufffd", id="not-utf-8"),
        pytest.param(b"ERROR\nmessage:no\n\n\0RECEIPT\nreceipt-id:3\n\n\0", "no", id="receipt-behind-it"),
        pytest.param(b"ERROR\nmessage:no\n\n\0\xff\xff\0", "no", id="garbage-behind-it"),
    ],
)
async def test_error_is_told_to_everyone_who_waits(
    scheme: str, octets: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await hear_waiters(peer)
        await peer.say(octets)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ServerError, said)


@pytest.mark.parametrize(
    "half", [b"", b"RECEIPT\nreceipt-id:", _MESSAGE + b"content-length:9\n\nx", _MESSAGE + b"\nx"]
)
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_end_in_the_middle_of_a_frame_is_told_to_everyone_who_waits(
    scheme: str, half: bytes, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await hear_waiters(peer)
        if half:
            await peer.say(half)
        if then == "reset":
            peer.beneath.reset()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ConnectionLost, "the ")
    assert str(waiters.lost[0]).strip().removesuffix("broke:") == str(waiters.lost[0])


@pytest.mark.parametrize("half", [b"RECEIPT\nreceipt-id:", _MESSAGE + b"content-length:9999\n\nx"])
async def test_silence_in_the_middle_of_a_frame_is_death_where_beats_were_promised(
    scheme: str, half: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept("1.2", "heart-beat:250,0\n")
        await peer.confirm()
        await peer.say(half)
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url, heart_beat=(0, 0.25)) as client:
            waiters = Waiters(client)
            await waiters.wait()
            check_ended(client)

    waiters.check(ConnectionLost, "the broker sent nothing for 0.5 s")


async def test_message_that_can_never_be_acked_is_a_fault(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        # STOMP 1.2, "MESSAGE": in the client modes it MUST have an `ack` header.
        await peer.say(_MESSAGE + b"\n\0")
        await peer.wait_closed()

    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url) as client,
            client.subscribe("/queue/a", ack=AckMode.CLIENT) as messages,
        ):
            with pytest.raises(ConnectionLost, match="broke the protocol: MESSAGE without ack"):
                await anext(messages)


# --- oddities that hurt nobody ---


async def test_odd_frames_and_bodies_leave_the_session_whole(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        asked = receipt_of(await peer.hear())
        await peer.say(b"\n\r\n\n" * 1000)
        # For subscriptions that there never were: RabbitMQ does that for temporary queues.
        await peer.say(_MESSAGE.replace(b"subscription:1", b"subscription:/temp-queue/x") + b"\nx\0")
        await peer.say(_MESSAGE.replace(b"subscription:1", b"subscription:77") + b"\nx\0")
        await peer.say(_MESSAGE + b"content-length:3\n\n\xff\0\xfe\0")
        await peer.say(_MESSAGE + b"content-length:0\n\n\0")
        # Twice, octet by octet.
        await peer.drip(f"RECEIPT\nreceipt-id:{asked}\ndisposition:accepted\n\n^@")
        await peer.say(f"RECEIPT\nreceipt-id:{asked}\ndisposition:rejected-full\n\n^@")
        await peer.confirm()
        assert (await peer.hear()).startswith("UNSUBSCRIBE\n")
        await peer.part()

    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url) as client,
            client.subscribe("/queue/a") as messages,
        ):
            receipt = await client.send("/queue/a", receipt=True)
            await client.send("/queue/a", receipt=True)
            bodies = [(await anext(messages)).body for _ in range(2)]

    assert receipt is not None
    assert receipt.verdict == "accepted"
    assert bodies == [b"\xff\0\xfe", b""]


async def test_receipt_that_comes_too_late_hurts_nobody(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    has_given_up = anyio.Event()

    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        late = receipt_of(await peer.hear())
        await has_given_up.wait()
        await peer.say(f"RECEIPT\nreceipt-id:{late}\n\n^@")
        await peer.confirm()
        await peer.part()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            with pytest.raises(TimeoutError):
                await client.send("/queue/a", receipt=True, timeout=0.01)
            has_given_up.set()
            await client.send("/queue/a", receipt=True)


async def test_message_with_the_name_of_a_receipt_answers_nobody(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        asked = receipt_of(await peer.hear())
        await peer.say(
            f"MESSAGE\nreceipt-id:{asked}\nsubscription:x\nmessage-id:1\ndestination:/queue/a\n\n^@"
        )
        await peer.wait_closed()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url, disconnect_timeout=0.05) as client:
            with pytest.raises(TimeoutError):
                await client.send("/queue/a", receipt=True, timeout=0.05)


# --- what is in doubt ---


async def test_error_among_pipelined_sends_leaves_those_in_doubt_that_have_no_receipt(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        asked = [receipt_of(await peer.hear()) for _ in range(6)]
        said = [f"RECEIPT\nreceipt-id:{each}\n\n^@" for each in asked[:3]]
        # In one piece: what stands before the ERROR counts.
        await peer.say("".join(said) + "ERROR\nmessage:too much\n\n^@")
        await peer.wait_closed()

    answered: list[int] = []
    in_doubt: list[int] = []
    lost: list[NebulaError] = []
    posted: list[Receipt] = []

    async def send(client: StompClient, number: int) -> None:
        try:
            await client.send("/queue/a", str(number), receipt=True)
        except ServerError:
            in_doubt.append(number)
        else:
            answered.append(number)

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            client.on_lost = lost.append
            client.post_with_receipt("/queue/a", b"", {}, posted.append)
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(send, client, number)
                await anyio.wait_all_tasks_blocked()
                client.post_with_receipt("/queue/a", b"", {}, posted.append)

    assert len(posted) == 1
    assert sorted(in_doubt + answered) == [0, 1, 2, 3]
    assert len(answered) == 2
    assert [type(error) for error in lost] == [ServerError]


async def test_messages_before_a_fault_are_still_handed_out(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say(_MESSAGE + b"\nfirst\0" + _MESSAGE + b"\nsecond\0" + b"\0")
        await peer.wait_closed()

    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url) as client,
            client.subscribe("/queue/a") as messages,
        ):
            bodies = [(await anext(messages)).body for _ in range(2)]
            with pytest.raises(ConnectionLost, match="NUL"):
                await anext(messages)

    assert bodies == [b"first", b"second"]


# --- at the end of a session ---


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"\0", id="fault"),
        pytest.param(b"ERROR\nmessage:no\n\n\0", id="error"),
        pytest.param(b"RECEIPT\nreceipt-id:other\n\n\0", id="receipt-never-asked"),
        pytest.param(b"RECEIPT\nreceipt-id:", id="half-a-receipt"),
        pytest.param(b"CONNECTED\nversion:1.2\n\n\0", id="connected"),
        pytest.param(b"", id="nothing"),
    ],
)
@pytest.mark.parametrize("then", ["silence", "close", "reset"])
async def test_whatever_answers_disconnect_leaving_neither_fails_nor_hangs(
    scheme: str, answer: bytes, then: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("DISCONNECT\n")
        if answer:
            await peer.say(answer)
        if then == "silence":
            await peer.wait_closed()
        elif then == "reset":
            peer.beneath.reset()

    lost: list[NebulaError] = []
    with quiet(caplog):
        async with mad_broker(script, scheme) as url:
            client = StompClient(url, disconnect_timeout=0.1)
            client.on_lost = lost.append
            async with client:
                pass

    assert lost == []
    check_ended(client)


async def _fail_after(client: StompClient, event: Callable[[], Awaitable[object]]) -> None:
    """A transaction whose block raises an error of its own."""
    async with client.transaction():
        await event()
        raise KeyError


async def test_end_of_the_connection_during_a_transaction_hides_no_error_of_the_block(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        await peer.hear()

    with quiet(caplog):
        async with mad_broker(script, scheme) as url, StompClient(url) as client:
            with pytest.raises(KeyError):
                await _fail_after(client, client.wait_lost)


async def test_transaction_that_fails_while_another_task_says_good_bye_ends_by_its_own_error(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_leaving = anyio.Event()

    async def script(peer: FaultyPeer) -> None:
        await peer.accept()
        assert (await peer.hear()).startswith("BEGIN\n")
        assert (await peer.hear()).startswith("DISCONNECT\n")
        is_leaving.set()
        await peer.wait_closed()

    async def disconnect() -> None:
        await client.disconnect()
        has_left.set()

    has_left = anyio.Event()
    with quiet(caplog):
        async with (
            mad_broker(script, scheme) as url,
            StompClient(url, disconnect_timeout=0.1) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(disconnect)
            with pytest.raises(KeyError):
                await _fail_after(client, is_leaving.wait)
            await has_left.wait()
