"""A broker that is told to stop brings to its end what it has accepted, and says good-bye after that."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from nebula.broker.core.journal import Batch
from nebula.broker.core.limits import Limits
from nebula.broker.core.receipts import Receipt
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.listener import Listener
from nebula.broker.server.tls import ServerTls, TlsFiles
from tests.cli.programs import running
from tests.faults.served import Wire, serve, wait_until
from tests.faults.sinks import Deaf, Sink, attach
from tests.faults.slow_store import SlowStore, peer_of

_PERSISTENT = "SEND destination:/queue/a; persistent:true; receipt:{number} | {number} " + "x" * 5000


def test_receipt_that_waits_for_the_store_is_said_before_the_error() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:sent\n\nbody\0")
            await asyncio.to_thread(store.has_begun.wait, 10)
            stopping = asyncio.create_task(peer.server.stop())
            await asyncio.sleep(0)  # its first step: from now on nothing is read
            assert peer.server.runtime.is_stopping
            store.is_quick.set()

            assert b"disposition:accepted" in await peer.hear(b"receipt-id:sent\n") + await peer.hear(b"\0")
            assert (await peer.hear(b"\0")).lstrip().startswith(b"ERROR\nmessage:the broker is shutting down")
            await stopping

    asyncio.run(main())


def test_slow_reader_gets_all_that_it_was_told_before_the_error() -> None:
    with serve(Limits(max_outbox_bytes=64 << 20)) as broker:
        slow, quick = broker.connect(receive_buffer_bytes=4096), broker.connect()
        slow.say("SUBSCRIBE id:s; destination:/topic/t")
        assert slow.is_in_order()
        quick.say(*["SEND destination:/topic/t | " + "x" * 100_000] * 100)
        assert quick.is_in_order()
        stopping = threading.Thread(target=broker.stop)

        stopping.start()
        wait_until(broker, lambda: broker.server.runtime.is_stopping)
        frames = slow.rest()
        stopping.join()

    assert [frame[0] for frame in frames] == ["MESSAGE"] * 100 + ["ERROR"]


def test_peer_that_reads_nothing_holds_up_the_end_for_a_while_only() -> None:
    # Its own time limit would show a stop that waits for ever.
    with serve(Limits(drain_seconds=0.1, max_outbox_bytes=64 << 20)) as broker:
        deaf, quick = broker.connect(receive_buffer_bytes=4096), broker.connect()
        deaf.say("SUBSCRIBE id:s; destination:/topic/t")
        assert deaf.is_in_order()
        quick.say(*["SEND destination:/topic/t | " + "x" * 100_000] * 100)
        assert quick.is_in_order()

        broker.stop()

        assert quick.rest()[-1][1]["message"] == "the broker is shutting down"
        assert not broker.ask(lambda: broker.connections)


def test_what_comes_after_the_begin_of_the_end_is_not_read() -> None:
    store = SlowStore()

    async def main() -> None:
        async with peer_of(store) as peer:
            peer.say(b"SEND\ndestination:/queue/a\npersistent:true\n\nbody\0")
            await asyncio.to_thread(store.has_begun.wait, 10)
            session = next(iter(peer.server.broker.sessions.values()))
            peer.server.broker.receipts.say(session, Receipt(b""), Batch(1))
            stopping = asyncio.create_task(peer.server.stop())
            await asyncio.sleep(0)
            peer.say(b"SEND\ndestination:/queue/late\n\nbody\0")
            store.is_quick.set()

            await stopping
            assert "/queue/late" not in peer.server.broker.queues.by_name

    asyncio.run(main())


def test_queue_keeps_what_its_consumer_has_not_been_told_yet() -> None:
    slow = Deaf()
    with serve() as broker:

        def begin() -> None:
            attach(broker, slow, "SUBSCRIBE id:s; destination:/queue/a")
            attach(broker, Sink(), *["SEND destination:/queue/a | " + "x" * 100_000] * 20)

        def read() -> int:
            told = slow.octets.count(b"MESSAGE")
            del slow.pieces[1:]
            slow.connection.resume_writing()
            return told

        broker.ask(begin)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        wait_until(broker, lambda: broker.server.runtime.is_stopping)
        told = broker.ask(read)
        stopping.join()

        assert 0 < told < 20
        assert b"ERROR" in slow.octets
        assert (
            slow.octets.count(b"MESSAGE") + told + broker.server.broker.queues.by_name["/queue/a"].store.depth
            == 20
        )
        assert slow.octets.count(b"MESSAGE") <= 1  # it waited behind the others already


def flood(wire: Wire, receipted: list[str], is_over: threading.Event) -> None:
    """Send persistent messages without a pause, and note the RECEIPTs."""

    def send() -> None:
        with suppress(OSError):
            for number in range(1_000_000):
                if is_over.is_set():
                    return
                wire.say(_PERSISTENT.format(number=number))

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    frames = wire.rest()
    is_over.set()
    wire.socket.shutdown(socket.SHUT_RDWR)
    sending.join()
    receipted += [frame[1]["receipt-id"] for frame in frames if frame[1].get("disposition") == "accepted"]
    assert [frame[0] for frame in frames if frame[0] != "RECEIPT"] == ["ERROR"]
    assert frames[-1][1]["message"] == "the broker is shutting down"


@pytest.mark.timeout(60)
def test_program_under_load_ends_well_and_has_all_that_it_receipted(tmp_path: Path) -> None:
    receipted: list[str] = []
    with running("broker", "--port", "0", "--data", str(tmp_path)) as (process, line):
        wire = Wire(int(line["url"].rpartition(":")[2]))
        wire.connect("1.2")
        flooding = threading.Thread(target=flood, args=[wire, receipted, threading.Event()])
        flooding.start()
        witness = Wire(int(line["url"].rpartition(":")[2]))
        witness.connect("1.2")
        for number in range(10):
            witness.say(f"SEND destination:/queue/b; persistent:true; receipt:{number} | x")
            assert witness.next()

        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=20) == 0
        flooding.join()

    with running("broker", "--port", "0", "--data", str(tmp_path)) as (_, line):
        reader = Wire(int(line["url"].rpartition(":")[2]))
        reader.connect("1.2")
        reader.say("SUBSCRIBE id:s; destination:/queue/a")
        messages = [reader.next() for _ in receipted]
    assert receipted
    assert [frame[2].partition(" ")[0] for frame in messages if frame and len(frame) == 3] == receipted


def listens(port: int) -> bool:
    try:
        Wire(port).close()
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_program_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with running("broker", "--port", "0", "--data", str(tmp_path)) as (process, line):
        deaf = Wire(int(line["url"].rpartition(":")[2]), receive_buffer_bytes=4096)
        deaf.connect("1.2")
        deaf.say("SUBSCRIBE id:s; destination:/topic/t")
        quick = Wire(deaf.socket.getpeername()[1])
        quick.connect("1.2")
        quick.say(*["SEND destination:/topic/t | " + "x" * 100_000] * 100)
        assert quick.is_in_order()

        process.send_signal(number)
        # It listens no more: the first one was heard.
        while listens(deaf.socket.getpeername()[1]):
            time.sleep(0.01)
        process.send_signal(number)

        assert process.wait(timeout=20) == -number


def test_who_has_still_to_finish_its_handshake_is_not_let_in(tmp_path: Path) -> None:
    certificate, key = (
        make_authority("here", days=1).issue_server(["127.0.0.1"], days=1).write(tmp_path, "me")
    )
    listener = Listener("127.0.0.1", 0, tls=ServerTls(TlsFiles(Path(certificate), Path(key))))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    tls = context.wrap_bio(incoming, outgoing)
    with (
        serve(listeners=[listener]) as broker,
        socket.create_connection(("127.0.0.1", broker.port), 10) as late,
    ):
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        late.sendall(outgoing.read())
        late.recv(1)  # so it was accepted before the stop

        broker.stop()
        assert not broker.ask(lambda: broker.server._open_listeners.have_handshakes)
        assert broker.ask(lambda: len(broker.server.runtime.admission)) == 0
        with suppress(ConnectionError):
            while late.recv(1 << 16):
                pass
