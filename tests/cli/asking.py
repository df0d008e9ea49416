"""Every command that asks a service or the broker."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cli.strangers import (
    INSTANCE,
    JOB,
)


@dataclass(frozen=True, slots=True)
class Asking:
    """A command that asks a service or the broker.

    Attributes:
        words: of the command.
        shows: it shows what it was answered; else only the errors of it.
        stop_at: Ctrl-C is pressed when this is shown.
    """

    words: tuple[str, ...]
    shows: bool = True
    stop_at: str = ""


def _asking(line: str, *, shows: bool = True, stop_at: str = "") -> Asking:
    return Asking(tuple(line.split()), shows=shows, stop_at=stop_at)


# By the command; most have several ways to ask.
ASKING = {
    "call": [_asking("call shop quote")],
    "stream": [_asking("stream shop quote")],
    "describe": [
        _asking("describe shop"),
        _asking(f"describe shop --instance {INSTANCE}"),
        _asking("describe shop --watch", stop_at="owned"),
    ],
    "stubs": [_asking("stubs shop", shows=False)],
    "schema": [
        _asking("schema shop"),
        _asking("schema shop --asyncapi"),
        _asking("schema shop --openapi"),
    ],
    "stats": [
        _asking("stats shop"),
        _asking("stats shop --by-instance"),
        _asking("stats shop --watch", stop_at="owned"),
    ],
    "ping": [_asking("ping shop", shows=False)],
    "jobs": [_asking("jobs shop")],
    "watch": [_asking(f"watch {JOB}")],
    "cancel": [_asking(f"cancel {JOB}")],
    "job show": [_asking(f"job show {JOB}")],
    "job log": [_asking(f"job log {JOB}"), _asking(f"job log {JOB} --follow")],
    "job result": [_asking(f"job result {JOB}")],
    "job rerun": [_asking(f"job rerun {JOB}", shows=False)],
    "engines": [_asking("engines shop"), _asking(f"engines shop --instance {INSTANCE}")],
    "engine restart": [_asking("engine restart shop --yes", shows=False)],
    "bench call": [_asking("bench call shop quote --seconds 0.01", shows=False)],
    "doctor": [_asking("doctor")],
    "top": [_asking("top --once --interval 0.2")],
    "queues": [_asking("queues"), _asking("queues /queue/orders")],
    "topics": [_asking("topics"), _asking("topics /topic/news")],
    "connections": [_asking("connections"), _asking("connections s1")],
    "sessions": [_asking("sessions"), _asking("sessions s1")],
    "session end": [_asking("session end s1 --yes", shows=False)],
    "session purge": [_asking("session purge s1 --yes", shows=False)],
    "settings check": [_asking("settings check")],
    "principals": [_asking("principals"), _asking("principals --order used")],
    "delayed list": [_asking("delayed list")],
    "delayed purge": [_asking("delayed purge --all --yes", shows=False)],
    "peek": [_asking("peek /queue/orders")],
    "purge": [_asking("purge /queue/orders --yes", shows=False)],
    "disconnect": [_asking("disconnect s1 --yes", shows=False)],
    "dlq list": [_asking("dlq list")],
    "dlq show": [_asking("dlq show 1")],
    # What they show are numbers of their own fields; JSON has all fields.
    "dlq replay": [_asking("dlq replay 1", shows=False)],
    "dlq purge": [_asking("dlq purge 1 --yes", shows=False)],
}
