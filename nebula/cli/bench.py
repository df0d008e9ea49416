"""`nebula bench`: measures how fast a service replies, and how fast a broker passes messages on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from uuid import uuid4

import typer
from typer import Argument, Option
from typer import Exit as Leave

from nebula.cli.exits import Exit
from nebula.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Parameters,
    Service,
    Timeout,
    Url,
    completion_of,
    named_destination,
)
from nebula.cli.render import Output
from nebula.cli.terminal import stderr_screen
from nebula.visible import visible

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

# Messages between two RECEIPTs that the publisher waits for: else the broker's memory would be measured.
_PER_RECEIPT: Final = 256

_SHOWN_SECONDS: Final = 0.1

_Step = Callable[[], Awaitable[object]]
"""Does one thing whose time counts."""

Seconds: TypeAlias = Annotated[float, Option("--seconds", "-s", min=0.01, help="How long to measure.")]
HarmlessVerb: TypeAlias = Annotated[
    str,
    Argument(
        metavar="VERB", help="A verb without side effects.", autocompletion=completion_of("complete_verbs")
    ),
]
InFlight: TypeAlias = Annotated[
    int, Option("--in-flight", "-n", min=1, help="How many calls are under way at the same time.")
]
Target: TypeAlias = Annotated[
    str | None,
    Argument(
        metavar="DEST",
        help="Default: a queue of its own, which is read. `orders` is /queue/orders.",
        callback=named_destination,
    ),
]
Size: TypeAlias = Annotated[int, Option("--size", metavar="BYTES", min=0, help="Size of a body.")]
Persistent: TypeAlias = Annotated[
    bool, Option("--persistent", help="Keep the messages on disk; each RECEIPT waits for it.")
]

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    help="Measure a service or a broker from here. Compare results only with others from the same machine,"
    " as ratios.",
)


@bench.command("call")
def bench_call(
    service: Service,
    verb: HarmlessVerb,
    parameters: Parameters = None,
    *,
    in_flight: InFlight = 1,
    seconds: Seconds = 5.0,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Call a verb repeatedly over one connection: calls per second, and how long they took.

    Exit status 0 if any call succeeded; else 1 if the service replied with errors, 3 if it did not reply.

    Example: nebula bench call prices quote symbol=ABC qty:=2 --in-flight 64
    """
    from nebula.cli.arguments import parse_parameters

    words = parse_parameters(parameters or ())
    ended = _Calls()

    async def measure(client: Client) -> float:
        async def step() -> None:
            await ended.count(client.call(service, verb, words, timeout=timeout))

        return await _go_on(step, seconds, in_flight)

    elapsed = _run(broker, measure, f"calling {verb} of {service}", seconds)
    Output(as_json=as_json).value(ended.figures(elapsed))
    # The figures are shown even so, because they have the errors. Status 0 would hide from scripts that
    # nothing was measured.
    if not ended.took:
        raise Leave(ended.status)


class _Calls:
    """Calls that have ended: the seconds of those that went well, and the errors of the others.

    Attributes:
        status: of the command if no call went well.
    """

    def __init__(self) -> None:
        self.took: list[float] = []
        self.errors: Counter[str] = Counter()
        self.status = Exit.UNREACHED

    async def count(self, call: Awaitable[Any]) -> None:
        """Wait for a call that begins now, and count it."""
        from nebula.errors import CallTimeout, Rejected, RemoteError

        begun = perf_counter()
        try:
            await call
        except RemoteError as error:
            # An error is a reply: the service was reached.
            self.status = Exit.FAILED
            self.errors[error.code] += 1
        except CallTimeout:
            self.errors["no answer in time"] += 1
        except Rejected as error:
            self.errors[error.verdict] += 1
        else:
            self.took.append(perf_counter() - begun)

    def figures(self, elapsed: float) -> dict[str, Any]:
        """What is shown of them after these seconds."""
        count = len(self.took)
        counts = {"calls": count, "errors": dict(self.errors), "seconds": round(elapsed, 3)}
        return {**counts, "calls_per_second": round(count / elapsed, 1), **_spread(self.took)}


@bench.command("pub")
def bench_pub(
    destination: Target = None,
    *,
    size: Size = 200,
    persistent: Persistent = False,
    seconds: Seconds = 5.0,
    broker: Url = None,
    as_json: AsJson = False,
) -> None:
    """Publish as fast as possible, with a receipt for every 256 messages: messages per second.

    Messages that are published to a queue that you name stay there until they are consumed.

    \b
    Examples:
      nebula bench pub                        through a queue of its own
      nebula bench pub X/test --size 1000     to its subscribers
    """
    # A named destination has its own consumers, so only the benchmark's own queue is read here.
    counts = Counter(sent=0) if destination else Counter(sent=0, received=0)
    headers = {"persistent": "true"} if persistent else {}
    body, target = b"x" * size, destination or f"/queue/bench.{uuid4().hex}"

    async def measure(client: Client) -> float:
        async with nullcontext() if destination else _reading(client, target, counts):
            return await _go_on(lambda: _publish(client, target, body, headers, counts), seconds, 1)

    elapsed = _run(broker, measure, f"publishing to {target}", seconds)
    facts: dict[str, Any] = {"destination": target, "bytes": size, "seconds": round(elapsed, 3)}
    rates = {f"{name}_per_second": round(count / elapsed) for name, count in counts.items()}
    Output(as_json=as_json).value(facts | counts | rates)


async def _publish(
    client: Client, target: str, body: bytes, headers: dict[str, str], counts: Counter[str]
) -> None:
    """Publish some messages, the last with a RECEIPT that is waited for, and count them as `sent`."""
    stomp = client.stomp
    for _ in range(_PER_RECEIPT - 1):
        # `post` does not wait, and the link buffers without limit: the RECEIPT below is the limit.
        stomp.post(target, body, headers)
    await stomp.send(target, body, headers, receipt=True, timeout=DEFAULT_TIMEOUT)
    counts["sent"] += _PER_RECEIPT


@asynccontextmanager
async def _reading(client: Client, queue: str, counts: Counter[str]) -> AsyncIterator[None]:
    """Count the messages of a queue as `received` during the block."""
    import anyio

    async def read(messages: AsyncIterator[object]) -> None:
        async for _ in messages:
            counts["received"] += 1

    # Subscribed first, so that the first messages are counted too.
    async with client.subscribe(queue) as messages, anyio.create_task_group() as tasks:
        tasks.start_soon(read, messages)
        yield
        tasks.cancel_scope.cancel()


async def _go_on(step: _Step, seconds: float, at_once: int) -> float:
    """Run steps concurrently until the time is over. Returns the seconds that it took."""
    import anyio

    begun = perf_counter()

    async def work() -> None:
        # A call that hangs exceeds the time by its own timeout, so rates are divided by the time really used.
        while perf_counter() - begun < seconds:
            await step()

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
    return perf_counter() - begun


def _run(
    broker: str | None, measure: Callable[[Client], Awaitable[float]], title: str, seconds: float
) -> float:
    """Measure over a client of its own, with a bar on a terminal."""
    import anyio

    from nebula.cli.asking import ask
    from nebula.cli.progress import work_bar

    async def shown(client: Client) -> float:
        with work_bar(stderr_screen()) as bar:
            task = bar.add_task(visible(title), total=seconds)

            async def advance() -> None:
                while True:
                    await anyio.sleep(_SHOWN_SECONDS)
                    bar.advance(task, _SHOWN_SECONDS)

            async with anyio.create_task_group() as tasks:
                # Without a bar there must be no task for it, which would disturb the measurement.
                if not bar.disable:
                    tasks.start_soon(advance)
                elapsed = await measure(client)
                tasks.cancel_scope.cancel()
            return elapsed

    return ask(broker, shown)


def _spread(took: Sequence[float]) -> dict[str, float]:
    """How long calls took, in milliseconds: the middle one, and those that few exceed."""
    # Exact, because all times fit into memory: a minute of 5,000 calls a second takes some 10 MB.
    ordered = sorted(took)
    if not ordered:
        return {}
    parts = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "longest_ms": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[round(part * last)] * 1000, 3) for name, part in parts.items()}
