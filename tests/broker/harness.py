"""The broker without sockets, loop and clock: peers that say and hear frames, time that moves by a call.

`BrokerHarness` drives the same `Pump` as the server, synchronously. After every step it checks all
invariants, and everything that was said and heard is kept as a transcript, which a failure prints:
paste it into tests/conformance as a new test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from nebula.broker.core.access import AccessPolicy, Grants
from nebula.broker.core.account import Account
from nebula.broker.core.broker import Broker
from nebula.broker.core.context import CoreContext
from nebula.broker.core.journal import Batch, Journal
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Numbers
from nebula.broker.core.policies import DestinationPolicy, PolicyTable
from nebula.broker.core.profiles import STANDARD, Profile
from nebula.broker.core.shares import Share
from nebula.broker.core.storage import PageRequest
from nebula.broker.core.tables import Write
from nebula.broker.protocol.server_protocol import ServerProtocol
from nebula.broker.server.pump import Pump
from nebula.broker.store.restoring import restore
from nebula.broker.store.store import Store
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import SERVER_COMMANDS
from tests.broker import invariants
from tests.broker.invariants import destinations
from tests.broker.script import Received, octets, shown, written

# The harness's clock begins at 0; this is what the wall clock shows then.
WALL_OFFSET = 1_700_000_000.0

# The shell lets time pass for the core this often.
_ADVANCE_SECONDS = 0.25

# An input that sets more in motion than this never comes to rest.
_MOST_ROUNDS = 10_000
_MOST_STEPS = 1_000_000


class Peer:
    """One connection, seen from its client's end. Made by `BrokerHarness.accept` and `connect`.

    Attributes:
        octets: everything that was ever written to it; `last_write` the last piece of it.
        is_closed: the broker ended the connection, or it was lost.
    """

    def __init__(
        self, harness: BrokerHarness, name: str, principal: str, profile: Profile = STANDARD
    ) -> None:
        self.name = name
        self.octets = b""
        self.last_write = b""
        self.is_closed = False
        self.is_blocked = False
        self.harness = harness
        self._in_the_kernel = b""
        self._parser = FrameParser(SERVER_COMMANDS)
        self._inbox: list[Received] = []
        self.session = harness.broker.open_session(
            f"session-{name}", principal, profile=profile, connection=self
        )
        self.protocol = ServerProtocol(harness.broker, self.session, server="nebula/test", now=harness.now)

    @property
    def is_held_back(self) -> bool:
        """The broker does not read it for now."""
        return self.protocol.is_held_back

    def send(self, octets: str | bytes) -> None:
        """Octets as they go over the wire, any number of frames or a part of one."""
        data = octets.encode() if isinstance(octets, str) else octets
        self.harness.record(f"{self.name}>> {data.decode('latin-1').encode('unicode_escape').decode()}")
        self.feed(data)

    def feed(self, data: bytes) -> None:
        """Like `send`, without a line in the transcript. What is not read waits in the kernel."""
        if self.is_held_back or self.is_closed:
            self._in_the_kernel += data
        else:
            self.protocol.receive_data(data, self.harness.now)
        self.harness.settle()

    def say(self, *lines: str) -> None:
        """Frames, each written as a line: `SEND destination:/queue/a; receipt:r1 | body`."""
        for line in lines:
            self.harness.record(f"{self.name}> {line}")
        self.feed(b"".join(octets(line) for line in lines))

    def subscribe(self, destination: str, *headers: str, id: str = "s") -> None:  # noqa: A002
        """SUBSCRIBE with these further `name:value` headers."""
        self.say("; ".join((f"SUBSCRIBE id:{id}; destination:{destination}", *headers)))

    def publish(self, destination: str, *bodies: str, headers: Sequence[str] = ()) -> None:
        """SEND each of these bodies."""
        start = "; ".join((f"SEND destination:{destination}", *headers))
        self.say(*(f"{start} | {body}" for body in bodies))

    def ack(self, message: Received, *headers: str, command: str = "ACK") -> None:
        """ACK (or NACK) a MESSAGE in the form of the version that was negotiated."""
        fields = message[1]
        by_version = {
            "1.2": f"id:{fields.get('ack')}",
            "1.1": f"subscription:{fields.get('subscription')}; message-id:{fields['message-id']}",
            "1.0": f"message-id:{fields['message-id']}",
        }
        self.say("; ".join((f"{command} {by_version[self.protocol.version or '1.0']}", *headers)))

    def nack(self, message: Received, *headers: str) -> None:
        """NACK a MESSAGE."""
        self.ack(message, *headers, command="NACK")

    def received(self) -> list[Received]:
        """The frames that came since the last call, beats left out."""
        frames, self._inbox = self._inbox, []
        for frame in frames:
            self.harness.record(f"{self.name}< {written(frame)}")
        if not frames:
            self.harness.record(f"{self.name}< nothing")
        return frames

    def message(self) -> tuple[dict[str, str], str]:
        """Headers and body of the one MESSAGE that came since the last call."""
        (frame,) = self.received()
        command, headers, *body = frame
        assert command == "MESSAGE", frame
        return headers, "".join(body)

    def bodies(self) -> list[str]:
        """The bodies of all that came since the last call: all of it was messages."""
        frames = self.received()
        assert {frame[0] for frame in frames} <= {"MESSAGE"}, frames
        return [frame[2] if len(frame) == 3 else "" for frame in frames]

    def disconnect(self) -> None:
        """DISCONNECT, and see the broker close."""
        self.say("DISCONNECT")
        assert self.is_closed

    def lose(self) -> None:
        """The connection breaks, or the client goes without a word."""
        self.harness.record(f"lose {self.name}")
        self.protocol.receive_eof(self.harness.now)
        self.is_closed = True
        self.harness.settle()

    def block(self) -> None:
        """The socket takes no more: its reader is slow."""
        self.harness.record(f"block {self.name}")
        self.is_blocked = self.session.is_throttled = True
        self.harness.settle()

    def unblock(self) -> None:
        """The socket takes octets again."""
        self.harness.record(f"unblock {self.name}")
        self.is_blocked = False
        self.flush(self.harness.now)
        self.harness.settle()

    # What the shell's `Connection` does

    def flush(self, now: float) -> None:
        """Write what the session was told, unless the socket takes no more."""
        self.harness.count_step()
        if self.session.ending is not None and not self.protocol.is_finished:
            self.session.take_outbox()
            self.protocol.fail(self.session.ending, now)
        if self.is_closed or (self.is_blocked and not self.protocol.is_finished):
            return
        if self.session.outbox:
            self._read(b"".join(self.protocol.take_output(now)))
        self.is_closed = self.protocol.may_close

    def go_on(self, now: float, *, in_vain: bool) -> None:
        """The broker reads on."""
        self.harness.count_step()
        self.protocol.go_on(now, in_vain=in_vain)
        if not self.is_held_back and self._in_the_kernel and not self.is_closed:
            data, self._in_the_kernel = self._in_the_kernel, b""
            self.protocol.receive_data(data, now)

    def crash(self) -> None:
        """A bug ends the test."""
        raise  # noqa: PLE0704  # the pump calls it in its `except`

    def tick(self) -> None:
        """Let the connection's timer fire."""
        deadline = self.protocol.tick(self.harness.now)
        assert deadline > self.harness.now or self.protocol.is_finished, "a timer that never rests"

    def _read(self, data: bytes) -> None:
        self.octets += data
        self.last_write = data
        while frames := self._parser.feed(data):
            for frame in frames:
                if frame.command == "CONNECTED":
                    self._parser.begin(self._dialect(frame.headers.get("version", "1.0")))
                self._inbox.append(shown(frame))
            data = b""
        assert self._parser.failure is None, self._parser.failure

    def _dialect(self, version: str) -> Dialect:
        return next(each for each in self.session.profile.dialects if each.version == version)


class BrokerHarness:
    """A broker and its peers, in a world where nothing waits.

    Args:
        shares: of principals, by pattern, beside what the limits say of all of them; None: everybody may use
            everything.

    Attributes:
        broker: the core.
        now: seconds; it begins at 0 and moves by `advance` only.
        transcript: every step so far, in the language of tests/conformance. Two words are of the harness
            alone: `begin commit`, the store begins to write a batch, and `commit`, it has what it was told.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        policies: Sequence[DestinationPolicy] = (),
        *,
        grants: Grants | None = None,
        store: Store | None = None,
        key_of: Callable[[str], str] | None = None,
        shares: Sequence[Share] | None = None,
        note_flow: Callable[[str, str], None] | None = None,
    ) -> None:
        limits = limits or Limits()
        if shares is None:
            # Most tests have one principal, and press a limit to its end.
            limits = replace(limits, principal_share=1.0, operator_reserve=1e-9)
        kept = None if store is None else store.load()
        self.store = store
        context = CoreContext(
            limits=limits,
            policies=PolicyTable(policies),
            access=AccessPolicy(grants),
            account=Account(limits, shares or ()),
            journal=None if store is None else Journal(WALL_OFFSET),
            numbers=Numbers(1 if kept is None else kept.first_number),
            wall_offset=WALL_OFFSET,
            key_of=key_of,
            note_flow=note_flow,
            incarnation="m" if kept is None else kept.incarnation,
        )
        self.broker = Broker(context)
        self.now = 0.0
        if kept is not None:
            restore(self.broker, kept, self.now)
        self.pump = Pump(
            self.broker,
            read_page=self._read_page,
            write=lambda _journal: None,  # `commit` does, when the test says so
            defers=lambda _connection, _flushed_bytes: False,
        )
        self.transcript: list[str] = []
        self.peers: list[Peer] = []
        self._asked: list[PageRequest] = []
        self._in_writing: tuple[Batch, list[Write]] | None = None
        self._steps = 0
        self._accepted = 0

    def accept(self, name: str = "", *, principal: str = "anonymous", profile: Profile = STANDARD) -> Peer:
        """A peer that has said nothing yet."""
        self._accepted += 1
        peer = Peer(self, name or f"peer{self._accepted}", principal, profile)
        self.peers.append(peer)
        return peer

    def connect(
        self,
        version: str = "1.2",
        *,
        name: str = "",
        principal: str = "anonymous",
        profile: Profile = STANDARD,
        heart_beat: str = "0,0",
        client_id: str = "",
    ) -> Peer:
        """A peer that has connected; its CONNECTED is taken already."""
        peer = self.accept(name, principal=principal, profile=profile)
        self.record(f"connect {peer.name} {version}")
        host = profile.virtual_host or "h"
        offer = (
            "" if version == "1.0" else f"accept-version:{version}\nhost:{host}\nheart-beat:{heart_beat}\n"
        )
        offer += f"client-id:{client_id}\n" if client_id else ""
        peer.feed(f"CONNECT\n{offer}\n\0".encode())
        assert [frame[0] for frame in peer._inbox] == ["CONNECTED"]
        peer._inbox.clear()
        return peer

    @property
    def destinations(self) -> dict[str, Any]:
        """All destinations of the broker, by name."""
        return destinations(self.broker)

    def begin_commit(self) -> None:
        """Let the store take a batch; what is said from now on waits for the next one."""
        assert self.broker.journal is not None
        assert self._in_writing is None, "one batch at a time"
        self.record("begin commit")
        self._in_writing = self.broker.journal.take()

    def commit(self) -> None:
        """Let the store have its batch, or take all that it is to keep, and say what waited for that."""
        assert self.broker.journal is not None
        assert self.store is not None
        self.record("commit")
        batch, writes = self._in_writing or self.broker.journal.take()
        self._in_writing = None
        self.store.apply(writes)
        self.pump.committed(batch, self.now)
        self.settle()

    def fetch(self, page: PageRequest) -> None:
        """Read a page of a deep queue, at once: override this to be late."""
        assert self.store is not None
        self.pump.page_read(page, self.store.page(page), self.now)

    def stop(self) -> None:
        """Stop as the shell does: everybody is ended, and what is pending is kept."""
        assert self.store is not None
        assert self.broker.journal is not None
        assert self._in_writing is None, "the store has a batch"
        for peer in list(self.peers):
            peer.lose()
        self.broker.durable_sessions.close()
        self.store.apply(self.broker.journal.take()[1])
        self.store.close()

    def advance(self, seconds: float) -> None:
        """Let time pass, with the timers of the shell."""
        self.record(f"advance {seconds:g}")
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + _ADVANCE_SECONDS, end)
            self.broker.advance(self.now)
            for peer in self.peers:
                peer.tick()
            self.settle()

    def settle(self) -> None:
        """Do all that the core decided, then check that everything is in order."""
        try:
            self._work()
            self.peers = [peer for peer in self.peers if not peer.is_closed]
            open_ = [peer.session for peer in self.peers]
            invariants.check(self.broker, open_, [peer.session for peer in self.peers if peer.is_blocked])
        except AssertionError as error:
            error.add_note("\n".join(("the transcript so far:", *self.transcript)))
            raise

    def record(self, line: str) -> None:
        """Add a line to the transcript."""
        self.transcript.append(line)

    def count_step(self) -> None:
        """The pump has called a peer."""
        self._steps += 1
        assert self._steps < _MOST_STEPS, "the broker never comes to rest"

    def _read_page(self, page: PageRequest) -> None:
        self._asked.append(page)

    def _work(self) -> None:
        """Do what one input brings: the pump, then what the loop of the server calls in later turns."""
        self._steps = 0
        for _ in range(_MOST_ROUNDS):
            self.pump.work(self.now)
            if self._asked:
                asked, self._asked = self._asked, []
                for page in asked:
                    self.fetch(page)
                continue
            resting = [each for each in self.peers if each.protocol.is_resting]
            for peer in resting:
                peer.go_on(self.now, in_vain=False)
            if resting:
                continue
            throttled = [each for each in self.peers if each.session.is_throttled and not each.is_blocked]
            if not throttled:
                return
            for peer in throttled:
                self.broker.resume(peer.session, self.now)
        raise AssertionError("the broker never comes to rest")
