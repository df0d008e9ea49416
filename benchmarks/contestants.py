"""Who is measured in the rows that every broker takes part in."""

from __future__ import annotations

from benchmarks.row import Contestant, Measure


def stomp(measure: Measure) -> list[Contestant]:
    """Ours and the STOMP brokers that we compare ourselves with, each without a store."""
    names = {"nebula": "Nebula", "rabbitmq": "RabbitMQ", "activemq": "ActiveMQ"}
    return [Contestant(name, broker, measure) for broker, name in names.items()]
