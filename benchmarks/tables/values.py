"""Last values: changes, snapshots, and what other destinations and subscriptions cost them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import publish, values
from benchmarks.row import Contestant, Row
from benchmarks.stream import Measurement


def _beside_a_crowd(measure: Callable[..., Measurement], broker: str) -> list[Contestant]:
    crowds = {"10,000 globs": "*", "10,000 literal": "x", "no others": ""}
    return [
        Contestant(f"Nebula, {name}", broker, partial(measure, crowd=crowd)) for name, crowd in crowds.items()
    ]


ROWS = (
    Row(
        "values",
        "Last values, 100,000 keys, 100 subscribers",
        "One connection changes 1,000 of the keys, over and over in turn. *Received*: the messages that one"
        " subscriber had, as a part of all changes, until it had every last value;"
        " *slow reader*: the same of one who ACKs and takes a dozen messages twice a second. That its last"
        " values are right is checked in each round. The others have no equal: RabbitMQ's STOMP keeps no last"
        " value, ActiveMQ shows it to new subscribers only, and NATS has it on JetStream, as a stream.",
        "changes",
        [
            Contestant(
                "Nebula, each watches all", "nebula large", partial(values.updates, each_its_part=False)
            ),
            Contestant(
                "Nebula, each its hundredth", "nebula large", partial(values.updates, each_its_part=True)
            ),
        ],
    ),
    Row(
        "snapshot",
        "Last values, an eager snapshot of 100,000 keys",
        "One new subscriber with `eager`: seconds from SUBSCRIBE to the last value, and what came over the"
        " wire. With client acks a thousand may be un-ACKed.",
        "values",
        [
            Contestant("Nebula, auto acks", "nebula large", partial(values.snapshot, ack="auto")),
            Contestant("Nebula, client acks", "nebula large", partial(values.snapshot, ack="client")),
        ],
    ),
    Row(
        "destinations",
        "Last values, with 100,000 other destinations",
        "One connection changes the value of one destination without subscribers.",
        "changes",
        [
            Contestant(
                "Nebula, 100,000 others", "nebula large", partial(publish.beside_values, others=100_000)
            ),
            Contestant("Nebula, no others", "nebula large", partial(publish.beside_values, others=0)),
        ],
    ),
    Row(
        "globs",
        "Last values, with 10,000 subscriptions elsewhere",
        "The same, with 10,000 subscriptions on ten connections that do not match it.",
        "changes",
        _beside_a_crowd(publish.beside_globs, "nebula large"),
    ),
    Row(
        "topic-globs",
        "Topic, with 10,000 subscriptions elsewhere",
        "One connection sends to a topic with one subscriber; 10,000 subscriptions on ten connections do not"
        " match it.",
        "messages",
        [
            *_beside_a_crowd(publish.beside_topic_globs, "nebula large"),
            # It takes a third of a minute to make them, so that it is asked no more than it has to be.
            Contestant("ActiveMQ, 10,000 globs", "activemq", partial(publish.beside_topic_globs, crowd="*")),
        ],
    ),
)
