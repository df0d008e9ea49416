"""How fast somebody works alone, while an intruder presses a bound, and when that is used up.

Not a test: `python -m tests.faults.intruder_rates [ROW ...]` prints a table. The broker, the worker and the
intruder are processes of their own. While an intruder is busy, the worker shares the broker's processor with
it, as with any busy peer. The first rows show what two honest peers take: one that waits for each RECEIPT,
and one that does not.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from nebula.broker.store import disk
from tests.faults.intruders import ATTACKS, LARGE, Attack, Broker, Figures, Intruder, Worker, watched_broker

_SECONDS = 0.4
_TIMES = 3

_spawning = multiprocessing.get_context("spawn")


class BrokerElsewhere(Broker):
    """A broker in a process of its own.

    Args:
        port: where it listens.
        questions: takes the name of a principal, and answers with its figures.
    """

    def __init__(self, port: int, questions: Connection | None = None) -> None:
        self.port = port
        self._questions = questions

    def figures_of(self, principal: str) -> Figures:
        assert self._questions is not None
        self._questions.send(principal)
        figures: Figures = self._questions.recv()
        return figures


def serve(questions: Connection) -> None:
    """Run a broker until the other side of `questions` is closed."""
    logging.getLogger("nebula").setLevel(logging.CRITICAL)
    disk._LOOK_SECONDS = 0.1
    with tempfile.TemporaryDirectory() as folder, watched_broker(Path(folder)) as broker:
        questions.send(broker.port)
        with contextlib.suppress(EOFError):
            while True:
                questions.send(broker.figures_of(questions.recv()))


def work(port: int, orders: Connection) -> None:
    """Measure whenever asked to, until the other side of `orders` is closed."""
    worker = Worker(BrokerElsewhere(port))
    numbers = itertools.count()
    orders.send(None)
    with contextlib.suppress(EOFError):
        while orders.recv():
            orders.send([_rate(kind, numbers) for kind in (worker.order, worker.request)])
    worker.close()


def _rate(once: Callable[[int], None], numbers: itertools.count[int]) -> float:
    rates = []
    for _ in range(_TIMES):
        begin, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < _SECONDS:
            once(next(numbers))
            count += 1
        rates.append(count / passed)
    return median(rates)


@contextlib.contextmanager
def _process(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    ours, theirs = _spawning.Pipe()
    process = _spawning.Process(target=target, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(20)
        process.kill()


def measure(principal: str, attack: Attack) -> list[list[float]]:
    """Rates of persistent messages and of requests: alone, pressed, and when all is used up."""
    with _process(serve) as questions:
        broker = BrokerElsewhere(questions.recv(), questions)
        with _process(work, broker.port) as orders:
            orders.recv()

            def ask() -> list[float]:
                orders.send("measure")
                rates: list[float] = orders.recv()
                return rates

            alone = ask()
            is_over = threading.Event()
            me = Intruder(broker, principal)

            def press() -> None:
                # It may be cut off, and comes again.
                while not is_over.is_set():
                    with contextlib.suppress(AssertionError, OSError):
                        for _ in attack(me):
                            if is_over.is_set():
                                return

            thread = threading.Thread(target=press, daemon=True)
            thread.start()
            pressed = ask()
            is_over.set()
            thread.join(20)
            return [alone, pressed, ask()]


def honest_messages_one_by_one(me: Intruder) -> Iterator[bool]:
    """Large ones to a topic without subscribers, each with a RECEIPT."""
    wire = me.enter()
    while True:
        yield me.verdict(wire, "SEND destination:/topic/intruder.honest", LARGE) == "accepted"


def honest_messages_as_fast_as_it_can(me: Intruder) -> Iterator[bool]:
    """Small ones to a topic without subscribers, 200 at once."""
    wire = me.enter()
    while True:
        wire.say(*["SEND destination:/topic/intruder.honest | x"] * 200)
        yield wire.is_in_order()


_HONEST = [("intruder", honest_messages_one_by_one), ("intruder", honest_messages_as_fast_as_it_can)]


def main() -> None:
    """Print the table."""
    print("row: persistent alone/s, requests alone/s; ratios pressed; ratios used up")
    for principal, attack in [*_HONEST, *ATTACKS]:
        if len(sys.argv) == 1 or attack.__name__ in sys.argv[1:]:
            try:
                alone, *others = measure(principal, attack)
            except (AssertionError, EOFError) as error:
                print(f"{attack.__name__:45} failed: {error!r}", flush=True)
                continue
            ratios = [
                f"{now / then:5.2f}" for rates in others for then, now in zip(alone, rates, strict=True)
            ]
            print(f"{attack.__name__:45}", *(f"{each:6.0f}" for each in alone), *ratios, flush=True)


if __name__ == "__main__":
    main()
