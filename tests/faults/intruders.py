"""A broker with rights, users and little of everything; who works there, and who intrudes."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import argon2

from nebula.broker.assembly import Assembly
from nebula.broker.core.shares import Usage
from nebula.broker.settings import BrokerSettings, IdentitySettings, LimitsSettings, ListenerSettings
from nebula.headers import INBOX_PREFIX
from nebula.host.apps import AppThread
from nebula.host.broker_verbs import broker_responder
from nebula.host.embedding import BrokerThread
from nebula.sync import Client
from tests.broker.script import Received
from tests.faults.served import Served, Wire

# Where intruders come from; the others come from 127.0.0.1.
ELSEWHERE: Final = "127.0.0.2"
# Six times the size of SQLite's log, which grows to 4 MB and is in nobody's share. On a disk of 8 MB, its
# growth alone could make space low.
DISK_BYTES: Final = 24_000_000

PRINCIPALS: Final = ("worker", "intruder", "stranger", "operator", "auditor")
RIGHTS = """\
[capability.Work]
publish = ["/queue/work.**", "/topic/work.**", "X/work.**", "/queue/sums"]
subscribe = ["/queue/work.**", "/topic/work.**", "X/work.**", "/queue/sums"]
[capability.OwnPlaces]
publish = ["/queue/intruder.**", "/topic/intruder.**", "X/intruder.**"]
subscribe = ["/queue/intruder.**", "/topic/intruder.**", "X/intruder.**"]
[capability.Operate]
call = ["**"]
[capability.Sweep]
publish = ["X/**"]
[identity]
worker = ["Work"]
intruder = ["OwnPlaces"]
operator = ["Operate", "Sweep"]
auditor = ["Operate"]
"""

LIMITS: Final[dict[str, Any]] = {
    "max_body_bytes": 100_000,
    "max_outbox_bytes": 400_000,
    "max_transit_bytes": 4_000_000,
    "max_memory_bytes": 6_000_000,
    "max_queue_bytes": 20_000_000,
    "queue_window_bytes": 100_000,
    "max_queue_memory_bytes": 1_500_000,
    "max_pause_seconds": 0.2,
    "max_connections": 80,
    "max_subscriptions_in_all": 400,
    "max_globs": 200,
    "max_destinations": 300,
    "max_durable_sessions": 60,
    "max_durable_subscriptions": 200,
    "max_delayed_messages": 200,
    "max_dedup_ids": 400,
    "max_own_requests": 100,
    "min_free_disk_bytes": 1_000,
}


class Figures(NamedTuple):
    """How often a principal's share was used up, what it holds, and how many connections the broker ended."""

    refusals: int
    memory_bytes: int
    cut_off: int


class Broker(Served):
    """A broker as its settings describe it, on a thread of its own, with its own service."""

    def __init__(self, assembly: Assembly, loop: Any) -> None:
        super().__init__(assembly.server, loop)

    def log_in(
        self, principal: str, *headers: str, source: str = "", passcode: str = "", **more: Any
    ) -> Wire:
        """A client that says who it is. It may be refused: its first frame tells."""
        wire = Wire(self.port, source=source, **more)
        passcode = passcode or principal
        words = ("accept-version:1.2", "host:h", f"login:{principal}", f"passcode:{passcode}", *headers)
        wire.say(f"CONNECT {'; '.join(words)}")
        return wire

    def enter(self, principal: str, *headers: str, source: str = "", **more: Any) -> Wire:
        """One that came in."""
        wire = self.log_in(principal, *headers, source=source, **more)
        frame = wire.next()
        assert frame is not None
        assert frame[0] == "CONNECTED", frame
        return wire

    def client(self, principal: str) -> Client:
        """One that calls verbs."""
        return Client(f"stomp://{principal}:{principal}@127.0.0.1:{self.port}")

    def usage_of(self, principal: str) -> Usage | None:
        """What a principal uses."""
        usages = self.ask(lambda: self.server.broker.account.usages.all)
        return next((usage for usage in usages if usage.name == principal), None)

    def figures_of(self, principal: str) -> Figures:
        """What an intruder wants to know of itself."""
        cut_off = int(self.ask(lambda: self.server.runtime.ended.total()))
        if (usage := self.usage_of(principal)) is None:
            return Figures(0, 0, cut_off)
        return Figures(usage.refusals, usage.memory_bytes, cut_off)


def users_of(folder: Path) -> Path:
    """A file of all principals; each has its name for a passcode."""
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    file = folder / "users.toml"
    file.write_text("[users]\n" + "".join(f'{name} = "{hasher.hash(name)}"\n' for name in PRINCIPALS))
    return file


@contextlib.contextmanager
def watched_broker(folder: Path, limits: dict[str, Any] = LIMITS) -> Iterator[Broker]:
    """Run one for a block, with its store in a folder, on a disk that holds `DISK_BYTES`."""
    (folder / "rights.toml").write_text(RIGHTS)
    settings = BrokerSettings(
        listener=(ListenerSettings(port=0),),
        identity=IdentitySettings(users=users_of(folder), verifications_per_second=20),
        rights=(folder / "rights.toml",),
        data=folder / "data",
        limits=LimitsSettings(**limits),
    )
    failures: list[Exception] = []
    assembly = Assembly(settings, failures.append)
    assert assembly.server._disk is not None
    assembly.server._disk._free_bytes = lambda: (
        DISK_BYTES - sum(file.stat().st_size for file in (folder / "data").iterdir())
    )
    thread = BrokerThread(assembly.server)
    thread.start()
    own = AppThread(broker_responder(assembly), assembly.server)
    try:
        own.start().result()
        yield Broker(assembly, assembly.server.runtime.loop)
    finally:
        own.stop()
        thread.stop()
    assert failures == []


# --- who works


class Worker:
    """Does a bit of everything, again and again, and asserts that nothing of it is refused.

    Args:
        broker: whose client it is.

    Attributes:
        rounds: that are done.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._wire = broker.enter("worker", "client-id:worker")
        self._service = broker.enter("worker", "client-id:service")
        self._waiting: list[Received] = []
        self._receipts = itertools.count()
        self.rounds = 0
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._serving = threading.Thread(target=self._guard, args=(self._serve,), daemon=True)
        self._working = threading.Thread(target=self._guard, args=(self._work,), daemon=True)
        self._inbox = f"{INBOX_PREFIX}workers"
        self._service.say("SUBSCRIBE id:s; destination:/queue/sums")
        self._wire.say(
            "SUBSCRIBE id:orders; destination:/queue/work.orders; ack:client-individual",
            f"SUBSCRIBE id:inbox; destination:{self._inbox}; exclusive:true",
            "SUBSCRIBE id:news; destination:/topic/work.news",
            "SUBSCRIBE id:state; destination:X/work.state",
        )
        assert self._service.is_in_order()
        assert self._wire.is_in_order()
        self._promised = "SEND destination:/queue/work.once; dedup-id:first; persistent:true"
        assert self._do(self._promised, "| x").get("disposition") == "accepted"
        self._serving.start()

    def start(self) -> None:
        """Begin."""
        self._working.start()

    def check(self) -> None:
        """Raise what has failed so far."""
        if self._failures:
            raise self._failures[0]

    def end(self) -> None:
        """Finish, and assert that all was well."""
        self._is_over.set()
        self._working.join(30)
        self.check()
        assert not self._working.is_alive()
        assert self._do(self._promised, "| x").get("duplicate") == "true", "what was promised was forgotten"
        self.close()

    def close(self) -> None:
        """Go."""
        self._service.say("DISCONNECT receipt:gone")
        self._serving.join(30)
        self._service.close()
        self._wire.close()

    def order(self, number: int) -> None:
        """A persistent message with a RECEIPT, consumed and ACKed."""
        self._send("/queue/work.orders", number, "persistent:true")
        self._consume(number)

    def request(self, number: int) -> None:
        """A request, and its answer."""
        self._wire.say(
            f"SEND destination:/queue/sums; neb-reply-to:{self._inbox}; neb-reply-id:q{number} | {number}"
        )
        headers, body = self._message("inbox")
        assert (headers["neb-in-reply-to"], body) == (f"q{number}", f"sum of {number}")

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self._failures.append(failure)

    def _serve(self) -> None:
        while (frame := self._service.next()) is not None and frame[0] != "RECEIPT":
            assert frame[0] == "MESSAGE", frame
            headers = frame[1]
            self._service.say(
                f"SEND destination:{headers['neb-reply-to']}; neb-in-reply-to:{headers['neb-reply-id']}"
                f" | sum of {_body(frame)}"
            )

    def _work(self) -> None:
        while not self._is_over.is_set():
            number = self.rounds
            self.order(number)
            self.request(number)
            for name, destination in (("news", "/topic/work.news"), ("state", "X/work.state")):
                self._send(destination, number)
                assert self._message(name)[1] == str(number)
            self._take_a_little_of_all(number)
            if number % 10 == 0:
                self._come_again(number)
            self.rounds += 1

    def _take_a_little_of_all(self, number: int) -> None:
        self._do(f"SUBSCRIBE id:new; destination:/topic/work.new.{number}")
        self._do(f"SUBSCRIBE id:glob; destination:/topic/work.new.{number}.*")
        assert "result" not in self._do("SUBSCRIBE id:kept; destination:/topic/work.kept; durable:true")
        for line in ("id:new", "id:glob", "id:kept; durable:true"):
            self._do(f"UNSUBSCRIBE {line}")
        self._wire.say(f"BEGIN transaction:{number}")
        self._do(f"SEND destination:/queue/work.orders; transaction:{number}", f"| {number}")
        assert self._do(f"COMMIT transaction:{number}").get("disposition", "accepted") == "accepted"
        self._consume(number)
        self._send("/queue/work.orders", number, "delay:5")
        self._consume(number)
        if number < 20:  # more of them would press its own share
            self._send("/queue/work.orders", number, f"dedup-id:{number}")
            self._consume(number)

    def _come_again(self, number: int) -> None:
        wire = self._broker.enter("worker")
        for body in (" | x", "; content-length:0"):
            wire.say(f"SEND destination:X/work.new.{number}; receipt:r{body}")
            frame = wire.next()
            assert frame is not None
            assert frame[1].get("disposition") == "accepted", frame
        wire.close()

    def _send(self, destination: str, number: int, *headers: str) -> None:
        line = "; ".join((f"SEND destination:{destination}", *headers))
        answer = self._do(line, f"| {number}")
        assert answer["disposition"] == "accepted", (line, answer)

    def _consume(self, number: int) -> None:
        headers, body = self._message("orders")
        assert body == str(number)
        self._do(f"ACK id:{headers['ack']}")

    def _do(self, line: str, body: str = "") -> dict[str, str]:
        """The headers of its RECEIPT."""
        receipt = str(next(self._receipts))
        self._wire.say(f"{line}; receipt:{receipt} {body}".rstrip())
        return self._take("RECEIPT", "receipt-id", receipt)[1]

    def _message(self, id: str) -> tuple[dict[str, str], str]:  # noqa: A002
        """The next one of a subscription."""
        frame = self._take("MESSAGE", "subscription", id)
        return frame[1], _body(frame)

    def _take(self, command: str, header: str, value: str) -> Received:
        for place, frame in enumerate(self._waiting):
            if frame[0] == command and frame[1].get(header) == value:
                return self._waiting.pop(place)
        while (received := self._wire.next()) is not None:
            assert received[0] != "ERROR", received
            if received[0] == command and received[1].get(header) == value:
                return received
            self._waiting.append(received)
        raise AssertionError("the worker was cut off")


def _body(frame: Received) -> str:
    return "".join(frame[2:])


# --- who intrudes

# An inbox that somebody had is nobody else's for a while.
_NUMBERS: Final = itertools.count()


class Intruder:
    """Tries to use up something, from an address of its own.

    Args:
        broker: whose client it is.
        principal: as whom it logs in.
    """

    def __init__(self, broker: Broker, principal: str) -> None:
        self.broker = broker
        self.principal = principal
        self.wires: list[Wire] = []

    def enter(self, *headers: str, **more: Any) -> Wire:
        """A connection more."""
        wire = self.broker.enter(self.principal, *headers, source=ELSEWHERE, **more)
        self.wires.append(wire)
        return wire

    def enter_with_inbox(self, ack: str = "client-individual", **more: Any) -> tuple[Wire, str]:
        """A connection more, with an inbox."""
        inbox = f"{INBOX_PREFIX}{next(_NUMBERS)}"
        wire = self.enter(**more)
        wire.say(f"SUBSCRIBE id:inbox; destination:{inbox}; exclusive:true; ack:{ack}")
        return wire, inbox

    def verdict(self, wire: Wire, line: str, body: str = "", *, behind: Iterable[str] = ()) -> str:
        """What becomes of a frame: the disposition of its RECEIPT, or `RECEIPT`, or `ERROR`.

        Args:
            behind: frames that are written before it, in the same piece.
        """
        with contextlib.suppress(ConnectionError):
            wire.say(*behind, f"{line}; receipt:verdict{body}")
        while (frame := wire.next()) is not None:
            if frame[0] == "ERROR" or frame[1].get("receipt-id") == "verdict":
                return frame[1].get("disposition", frame[0])
        return "ERROR"

    @property
    def refusals(self) -> int:
        """How often its share was used up."""
        return self.broker.figures_of(self.principal).refusals

    @property
    def memory_bytes(self) -> int:
        """What it holds."""
        return self.broker.figures_of(self.principal).memory_bytes

    @property
    def cut_off(self) -> int:
        """How many connections the broker has ended for what lies outside their frames."""
        return self.broker.figures_of(self.principal).cut_off


Attack = Callable[[Intruder], Iterator[bool]]
"""Goes on for as long as it is asked to; of each step, whether it got something by it."""

LARGE: Final = " | " + "x" * 40_000


def messages_to_its_own_inbox(me: Intruder) -> Iterator[bool]:
    wire, inbox = me.enter_with_inbox()
    while True:
        yield me.verdict(wire, f"SEND destination:{inbox}", LARGE) == "accepted"


def transactions(me: Intruder) -> Iterator[bool]:
    while True:
        wire, inbox = me.enter_with_inbox()
        wire.say("BEGIN transaction:t")
        for _ in range(40):
            before_bytes = me.memory_bytes
            me.verdict(wire, f"SEND destination:{inbox}; transaction:t", LARGE)
            yield me.memory_bytes > before_bytes


def reply_rights(me: Intruder) -> Iterator[bool]:
    wire, inbox = me.enter_with_inbox(ack="auto")
    wide = "\N{GRINNING FACE}" * 240
    for batch in itertools.count():
        before = me.refusals
        request = f"SEND destination:{inbox}; neb-reply-to:{inbox}; neb-reply-id:"
        wire.say(*(f"{request}{batch}.{number:03}{wide}" for number in range(200)))
        assert wire.is_in_order()
        yield me.refusals == before


def delayed_messages(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    line = "SEND destination:/queue/intruder.later; delay:3600000; persistent:true"
    while True:
        yield me.verdict(wire, line, " | x") == "accepted"


def delayed_messages_that_are_large(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    line = "SEND destination:/queue/intruder.later; delay:3600000; persistent:true"
    while True:
        yield me.verdict(wire, line, LARGE) == "accepted"


def dedup_ids(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    for batch in itertools.count():
        before = me.refusals
        line = "SEND destination:/topic/intruder.ids; dedup-id:"
        wire.say(*(f"{line}{batch}.{number} | x" for number in range(200)))
        assert wire.is_in_order()
        yield me.refusals == before


def inboxes(me: Intruder) -> Iterator[bool]:
    while True:
        wire = me.enter()
        for number in range(60):
            place = f"{INBOX_PREFIX}{len(me.wires)}-{number}"
            is_fine = (
                me.verdict(wire, f"SUBSCRIBE id:{number}; destination:{place}; exclusive:true") == "RECEIPT"
            )
            yield is_fine
            if not is_fine:
                break


def queues(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    for number in itertools.count():
        yield me.verdict(wire, f"SEND destination:/queue/intruder.{number}", " | x") == "accepted"


def _subscriptions(me: Intruder, pattern: str, *headers: str) -> Iterator[bool]:
    names = (pattern.format(number) for number in itertools.count())
    while True:
        wire = me.enter(f"client-id:{me.principal}-{len(me.wires)}")
        for id, name in enumerate(itertools.islice(names, 30)):  # noqa: A001
            line = "; ".join((f"SUBSCRIBE id:{id}; destination:{name}", *headers))
            is_fine = me.verdict(wire, line) == "RECEIPT"
            yield is_fine
            if not is_fine:
                break


def topics(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "/topic/intruder.{}")


def subscriptions(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "/topic/intruder.one")


def globs(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "/topic/*{}*")


def globs_of_last_values(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "X/*{}*")


def durable_subscriptions(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "X/intruder.{}", "durable:true")


def durable_globs(me: Intruder) -> Iterator[bool]:
    return _subscriptions(me, "/topic/intruder.{}.*", "durable:true")


def durable_sessions(me: Intruder) -> Iterator[bool]:
    for number in itertools.count():
        wire = me.broker.enter(me.principal, f"client-id:{me.principal}-{number}", source=ELSEWHERE)
        yield me.verdict(wire, "SUBSCRIBE id:1; destination:X/intruder.a; durable:true") == "RECEIPT"
        wire.close()


def backlog_of_a_durable_subscription(me: Intruder) -> Iterator[bool]:
    away = me.broker.enter(me.principal, "client-id:away", source=ELSEWHERE)
    for id in range(20):  # noqa: A001
        away.say(f"SUBSCRIBE id:{id}; destination:/topic/intruder.*; durable:true")
    assert away.is_in_order()
    away.close()
    wire = me.enter()
    for number in itertools.count():
        before = me.refusals
        me.verdict(wire, f"SEND destination:/topic/intruder.{number % 5}; persistent:true", LARGE)
        yield me.refusals == before


def connections(me: Intruder) -> Iterator[bool]:
    while True:
        wire = me.broker.log_in(me.principal, source=ELSEWHERE)
        me.wires.append(wire)
        frame = wire.next()
        yield frame is not None and frame[0] == "CONNECTED"


def connections_that_never_say_who_they_are(me: Intruder) -> Iterator[bool]:
    for _ in range(5):
        me.wires += [Wire(me.broker.port, source=ELSEWHERE) for _ in range(50)]
        yield True


def half_frames(me: Intruder) -> Iterator[bool]:
    while True:
        before = me.cut_off
        wire = me.broker.log_in(me.principal, source=ELSEWHERE)
        me.wires.append(wire)
        wire.send(b"SEND\ndestination:/queue/a\ncontent-length:99000\n\n" + b"x" * 95_000)
        yield me.cut_off == before


def readers_that_read_nothing(me: Intruder) -> Iterator[bool]:
    publisher = me.enter()
    while True:
        before = me.cut_off
        reader = me.enter(receive_buffer_bytes=4096)
        reader.say("SUBSCRIBE id:s; destination:/topic/intruder.news")
        for _ in range(20):
            me.verdict(publisher, "SEND destination:/topic/intruder.news", " | " + "x" * 90_000)
        yield me.cut_off == before


def readers_of_inboxes_that_read_nothing(me: Intruder) -> Iterator[bool]:
    for _ in range(20):
        wire, inbox = me.enter_with_inbox(receive_buffer_bytes=4096)
        wire.say(*[f"SEND destination:{inbox}{LARGE}"] * 20)
        yield True
    while not me.refusals:
        time.sleep(0.01)  # until what it has sent is read
    yield False


def last_values(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    for number in itertools.count():
        yield me.verdict(wire, f"SEND destination:X/intruder.{number}", LARGE) == "accepted"


def disk(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    while True:
        line = "SEND destination:/queue/intruder.kept; persistent:true"
        yield me.verdict(wire, line, LARGE) == "accepted"


def dead_letters(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    for _ in range(200):
        yield me.verdict(wire, "SEND destination:/queue/intruder.old; expires:1", LARGE) == "accepted"


def dead_letters_on_disk(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    line = "SEND destination:/queue/intruder.old; expires:1; persistent:true"
    for _ in range(400):
        yield me.verdict(wire, line, LARGE) == "accepted"


def guesses_of_passcodes(me: Intruder) -> Iterator[bool]:
    for _ in range(3):
        guesses = [
            me.broker.log_in("worker", source=ELSEWHERE, passcode=f"guess{number}") for number in range(40)
        ]
        me.wires += guesses
        for wire in guesses[:5]:
            frame = wire.next()
            yield frame is not None and frame[0] == "CONNECTED"


def heads_of_nothing_but_escapes(me: Intruder) -> Iterator[bool]:
    wire, inbox = me.enter_with_inbox()
    headers = "; ".join(f"h{number}:" + r"\n" * 1_900 for number in range(15))
    while True:
        yield me.verdict(wire, f"SEND destination:{inbox}; {headers}", " | x") == "accepted"


def globs_that_come_and_go(me: Intruder) -> Iterator[bool]:
    wire = me.enter()
    for batch in range(10):
        for number in range(100):
            wire.say(
                f"SUBSCRIBE id:s; destination:/topic/{'*a' * 15}{batch}.{number}*",
                "UNSUBSCRIBE id:s",
            )
        assert wire.is_in_order()
        yield True


def requests_to_the_broker_itself(me: Intruder) -> Iterator[bool]:
    wire, inbox = me.enter_with_inbox()
    line = f"SEND destination:/queue/nebula.broker; neb-reply-to:{inbox}; neb-reply-id:"
    for batch in range(20):
        # In one piece: else many of them are answered before the last one comes.
        others = [f"{line}{batch}.{number} | {{}}" for number in range(200)]
        yield me.verdict(wire, f"{line}{batch}", " | {}", behind=others) == "accepted"


ATTACKS: Final[list[tuple[str, Attack]]] = [
    ("stranger", messages_to_its_own_inbox),
    ("stranger", transactions),
    ("stranger", reply_rights),
    ("intruder", delayed_messages),
    ("intruder", delayed_messages_that_are_large),
    ("intruder", dedup_ids),
    ("stranger", inboxes),
    ("intruder", queues),
    ("intruder", topics),
    ("intruder", subscriptions),
    ("stranger", globs),
    ("stranger", globs_of_last_values),
    ("intruder", durable_subscriptions),
    ("intruder", durable_globs),
    ("intruder", durable_sessions),
    ("intruder", backlog_of_a_durable_subscription),
    ("stranger", connections),
    ("stranger", connections_that_never_say_who_they_are),
    ("stranger", half_frames),
    ("intruder", readers_that_read_nothing),
    ("stranger", readers_of_inboxes_that_read_nothing),
    ("intruder", last_values),
    ("intruder", disk),
    ("intruder", dead_letters),
    ("intruder", dead_letters_on_disk),
    ("stranger", guesses_of_passcodes),
    ("stranger", heads_of_nothing_but_escapes),
    ("stranger", globs_that_come_and_go),
    ("stranger", requests_to_the_broker_itself),
]
"""Each with the principal that does it: a stranger has no right at all, an intruder has some of its own."""

NEVER_REFUSED: Final = (
    connections_that_never_say_who_they_are,
    dead_letters,
    dead_letters_on_disk,
    globs_that_come_and_go,
)
"""What costs nothing that stays."""

# So often it goes on when it has been refused.
_PRESSES: Final = 6
# A row of the table of which there is no end is a defect.
_MOST_STEPS: Final = 20_000


def press(me: Intruder, attack: Attack) -> int:
    """Go on until it is refused, and then some. Returns how often it was refused."""
    refused = 0
    for step, got_something in enumerate(attack(me)):
        refused += not got_something
        if refused >= _PRESSES:
            break
        assert step < _MOST_STEPS, "it is never refused"
    return refused
