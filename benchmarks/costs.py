"""What each step of a message costs, fitted on rows of the results; and the rows that this predicts.

Each cost is the smallest sum that explains a row, so that a row is used once. What is predicted is run in the
simulation and uses no figure of its own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import Figures
from benchmarks.simulation import Clock, End, Program, Stop, percentile, ring

RECORDER = "The recorder"
"""A row that not every run has."""

# What the load keeps under way where it sends as fast as it can.
_WINDOW = 8192
# From a client that is alone the broker takes everything that one read brings; with others at work, this many
# frames in a turn.
_ALONE = 1000
_TOGETHER = 100
# Nebula's clients and services pass on what they have after this many frames.
_LOOP = 16
# Simulated: a beginning that does not count, and what does.
_WARM_UP_SECONDS = 0.05
_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Broker:
    """What a broker works, in seconds on one core.

    Attributes:
        turn: for reading and writing at all, however much it is; the same for its peers.
        receive: for taking a SEND.
        deliver: for a MESSAGE.
    """

    name: str
    turn: float
    receive: float
    deliver: float

    @property
    def relay(self) -> float:
        """One message in and out again."""
        return self.receive + self.deliver

    @classmethod
    def of(cls, figures: Figures, name: str) -> Broker:
        """Fit it on three rows: two of them tell receiving from delivering, the third what a turn is."""
        relay = 1 / figures.rate("Queue, auto acks", name)
        ten = 10 / figures.rate("Topic, fan-out 1 to 10", name)
        deliver = max(0.0, ten - relay) / 9
        round_trip = figures.seconds("Raw request/reply, one at a time", name)
        return cls(name, (round_trip - 2 * relay) / 4, relay - deliver, deliver)


@dataclass(frozen=True, slots=True)
class Costs:
    """Ours in more detail, in seconds.

    Attributes:
        receipt: for a RECEIPT; `ack` for a message that one is kept for until it is acked; `keep` for one
            that goes to the disk; `value` for one of an eager snapshot.
        loop: for a turn of a client's or a service's event loop.
        call: the work of a service for a call; `ask` that of the caller.
    """

    broker: Broker
    receipt: float
    ack: float
    keep: float
    value: float
    loop: float
    call: float
    ask: float

    @property
    def served(self) -> float:
        """What a call takes of a service that has many of them, its part of a turn included."""
        return self.call + self.loop / _LOOP

    @classmethod
    def of(cls, figures: Figures) -> Costs:
        """Fit them."""
        broker = Broker.of(figures, "Nebula")
        receipt = 1 / figures.rate("Queue, a receipt per message") - broker.relay
        many = figures.rate("RPC end to end, 64 in flight")
        ask = figures.part("RPC end to end, 64 in flight") / many
        alone = figures.seconds("RPC end to end, one at a time")
        # Alone, a call has two turns of the broker, one of the caller's loop and one of the service's; among
        # many the service is the slowest, and has a turn for each group of this size.
        rest = alone - 2 * (broker.turn + broker.relay) - ask
        loop = (rest - 1 / many) / (2 - 1 / _LOOP)
        call = 1 / many - loop / _LOOP
        return cls(
            broker,
            receipt=receipt,
            ack=1 / figures.rate("Queue, cumulative client acks") - broker.relay,
            keep=1 / figures.rate("Queue on disk, sends with receipts") - broker.receive - receipt,
            value=1 / figures.rate("Last values, an eager snapshot of 100,000 keys", "Nebula, auto acks"),
            loop=loop,
            call=call,
            ask=ask,
        )


def fitted(costs: Costs) -> Sequence[tuple[str, str, float]]:
    """The costs: the row that each is fitted on, what it is, and how much in seconds."""
    broker = costs.broker
    return [
        ("Queue, auto acks", "receive and deliver", broker.relay),
        ("Topic, fan-out 1 to 10", "one more delivery", broker.deliver),
        ("Raw request/reply, one at a time", "a turn of a program", broker.turn),
        ("Queue, a receipt per message", "a RECEIPT", costs.receipt),
        ("Queue, cumulative client acks", "remember until acknowledged", costs.ack),
        ("Queue on disk, sends with receipts", "store on disk", costs.keep),
        ("Last values, an eager snapshot of 100,000 keys", "a value of a snapshot", costs.value),
        ("RPC end to end, 64 in flight", "work of a service for a call", costs.call),
        ("RPC end to end, 64 in flight", "work of a caller for a call", costs.ask),
        ("RPC end to end, one at a time", "a turn of an event loop", costs.loop),
    ]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A figure that nothing was fitted on; some other line of its row may have been.

    Attributes:
        what: the figure that is predicted, with its unit.
        measured, predicted: by the results and by the simulation.
    """

    row: str
    contestant: str
    what: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """By what part of the measured figure the simulation is above it."""
        return self.predicted / self.measured - 1


def predictions(figures: Figures) -> list[Prediction]:
    """Run each line that is not fitted on, as far as the model says anything of it."""
    costs = Costs.of(figures)
    ours = [*_rates(figures, costs), *_round_trips(figures, costs.broker), *_hosted(figures, costs)]
    if figures.has(RECORDER):
        ours += _recorded(figures, costs)
    others = [Broker.of(figures, name) for name in ("RabbitMQ", "ActiveMQ")]
    return [*ours, _beside_a_flood(figures, costs), *(_many(figures, broker) for broker in others)]


def _rates(figures: Figures, costs: Costs) -> list[Prediction]:
    """Rows at full speed, by what a message costs there."""
    broker, snapshot = costs.broker, "Last values, an eager snapshot of 100,000 keys"
    kept = broker.receive + costs.keep + costs.receipt / 256
    nine = "Topic, fan-out 1 to 9, with a stalled reader"
    rows = [
        (nine, "Nebula, nine alone", "deliveries/s", 9, broker.receive + 9 * broker.deliver),
        ("Queue on disk, 1,000,000 deep", "Nebula, 1 M deep", "messages/s", 1, kept),
        (
            "Queue on disk, sent, consumed and acked",
            "Nebula",
            "messages/s",
            1,
            broker.relay + costs.receipt + costs.ack + costs.keep,
        ),
        (snapshot, "Nebula, client acks", "values/s", 1, costs.value + costs.ack),
    ]
    return [
        Prediction(row, who, what, figures.rate(row, who), count * full_speed(broker.turn, seconds))
        for row, who, what, count, seconds in rows
    ]


def _round_trips(figures: Figures, broker: Broker) -> list[Prediction]:
    row = "Raw request/reply, 64 in flight"
    rate, p50 = round_trips(broker, 64)
    return [
        Prediction(row, "Nebula", "requests/s", figures.rate(row), rate),
        Prediction(row, "Nebula", "p50 µs", figures.seconds(row) * 1e6, p50 * 1e6),
    ]


def _many(figures: Figures, broker: Broker) -> Prediction:
    row = "Raw request/reply, 64 in flight"
    rate, _ = round_trips(broker, 64)
    return Prediction(row, broker.name, "requests/s", figures.rate(row, broker.name), rate)


def _hosted(figures: Figures, costs: Costs) -> list[Prediction]:
    who = "Nebula, verbs in broker"
    return [
        Prediction(
            row,
            who,
            "calls/s",
            figures.rate(row, who),
            calls(costs, costs.broker, in_flight, is_hosted=True)[0],
        )
        for row, in_flight in (("RPC end to end, one at a time", 1), ("RPC end to end, 64 in flight", 64))
    ]


def _recorded(figures: Figures, costs: Costs) -> list[Prediction]:
    """What the broker works for a recorder: its queue is full before, so that messages only go out."""
    predicted = (costs.broker.deliver + costs.ack) * 1e6
    return [
        Prediction(
            RECORDER,
            contestant,
            "µs of the broker",
            figures.seconds(RECORDER, contestant, "cpu µs") * 1e6,
            predicted,
        )
        for contestant in ("Nebula, null", "Nebula, Avro in envelopes")
    ]


def _beside_a_flood(figures: Figures, costs: Costs) -> Prediction:
    row = "Raw request/reply, one at a time, during a flood"
    p50 = round_trip_beside_flood(costs.broker)
    return Prediction(row, "Nebula", "p50 µs", figures.seconds(row) * 1e6, p50 * 1e6)


def full_speed(turn: float, seconds: float) -> float:
    """How many messages a second a program takes that works this long on each, if it gets all it can take."""
    clock = Clock()
    load = End(clock, Program(clock, _WINDOW), turn, 0.0)
    ring([load, Stop(Program(clock, _ALONE), turn, seconds)], _WINDOW)
    return _measured(clock, load)[0]


def round_trips(broker: Broker, in_flight: int) -> tuple[float, float]:
    """Requests a second, and the median latency, of an echo peer behind the broker."""
    clock = Clock()
    return _measured(clock, _echo(clock, broker, Program(clock, _TOGETHER), in_flight))


def round_trip_beside_flood(broker: Broker) -> float:
    """The median latency of one request at a time while another client sends and consumes at full speed."""
    clock = Clock()
    middle = Program(clock, _TOGETHER)
    flood = End(clock, Program(clock, _WINDOW), broker.turn, 0.0)
    ring([flood, Stop(middle, broker.turn, broker.relay)], _WINDOW)
    return _measured(clock, _echo(clock, broker, middle, 1))[1]


def calls(costs: Costs, broker: Broker, in_flight: int, *, is_hosted: bool = False) -> tuple[float, float]:
    """Calls a second of one service by one caller, and their median latency.

    Args:
        is_hosted: the broker has the service in its own process, where one of them works at a time.
    """
    clock = Clock()
    middle = Program(clock, _TOGETHER)
    service = middle if is_hosted else Program(clock, _LOOP)
    caller = End(clock, Program(clock, _LOOP), costs.loop, costs.ask)
    request, answer = (Stop(middle, broker.turn, broker.relay) for _ in range(2))
    ring([caller, request, Stop(service, costs.loop, costs.call), answer], in_flight)
    return _measured(clock, caller)


def _echo(clock: Clock, broker: Broker, middle: Program, in_flight: int) -> End:
    load = End(clock, Program(clock, _WINDOW), broker.turn, 0.0)
    echo = Stop(Program(clock, _WINDOW), broker.turn, 0.0)
    request, answer = (Stop(middle, broker.turn, broker.relay) for _ in range(2))
    ring([load, request, echo, answer], in_flight)
    return load


def _measured(clock: Clock, load: End) -> tuple[float, float]:
    clock.run(_WARM_UP_SECONDS)
    load.latencies.clear()
    clock.run(_WARM_UP_SECONDS + _SECONDS)
    return len(load.latencies) / _SECONDS, percentile(load.latencies, 0.5)
