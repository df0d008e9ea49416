"""Who is measured in the rows that every broker takes part in."""

from __future__ import annotations

from benchmarks.row import Contestant, Measure

# What the tables call Nebula where `NEBULA_COMPILED=no` is set.
INTERPRETED = "Nebula, interpreted"


def stomp(measure: Measure) -> list[Contestant]:
    """Ours in both builds and the STOMP brokers that we compare it with, each without a store."""
    names = {
        "nebula": "Nebula",
        "nebula interpreted": INTERPRETED,
        "rabbitmq": "RabbitMQ",
        "activemq": "ActiveMQ",
    }
    return [Contestant(name, broker, measure) for broker, name in names.items()]
