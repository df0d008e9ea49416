"""How fast somebody works alone, while an intruder presses a bound, and when that is used up.

Not a test: `python -m tests.faults.intruder_rates [ROW ...]` prints a table. The worker is a process of its
own; the intruder shares the broker's interpreter, so that what it computes itself counts against the worker.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import structlog

from nebula.broker import disk
from tests.faults.intruders import ATTACKS, Attack, Broker, Intruder, Worker, watched_broker

_SECONDS = 0.4
_TIMES = 3


def work(port: int, orders: Connection) -> None:
    """Measure whenever asked to, in a process of its own."""
    broker = object.__new__(Broker)
    broker.port = port
    worker = Worker(broker)
    numbers = itertools.count()
    orders.send(None)
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


def measure(principal: str, attack: Attack) -> list[list[float]]:
    """Rates of persistent messages and of requests: alone, pressed, and when all is used up."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, watched_broker(Path(folder)) as broker:
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(broker.port, theirs))
        process.start()
        ours.recv()

        def ask() -> list[float]:
            ours.send(True)
            rates: list[float] = ours.recv()
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
        used_up = ask()
        ours.send(False)
        process.join(20)
        return [alone, pressed, used_up]


def main() -> None:
    """Print the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    disk._LOOK_SECONDS = 0.1
    print("row: persistent alone/s, requests alone/s; ratios pressed; ratios used up")
    for principal, attack in ATTACKS:
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
