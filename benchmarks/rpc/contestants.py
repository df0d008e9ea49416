"""Starts a framework's service and its caller, and hands back what the caller measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.echo import request_many
from benchmarks.own import APP, INTERPRETED, PROGRAM
from benchmarks.peers import Broker
from benchmarks.processes import running, tail, wait_until
from benchmarks.stream import Measurement

_PATIENCE_SECONDS = 60.0


def call_service(
    service: Sequence[str] | None,
    caller: Sequence[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Measurement:
    """Run the service (None: the broker hosts it) and the caller, until the caller has measured.

    Args:
        environment: added to ours, for both.

    Raises:
        ConnectionError: the caller failed; the text has its last words.
    """
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "service.log")
        with running(service, log=log, environment=environment) if service else nullcontext():
            try:
                limit = seconds + _PATIENCE_SECONDS
                done = subprocess.run(
                    caller,
                    capture_output=True,
                    text=True,
                    timeout=limit,
                    check=True,
                    env={**os.environ, **(environment or {})},
                )
            except subprocess.SubprocessError as error:
                said = getattr(error, "stderr", None) or ""
                served = tail(log) if service else ""
                raise ConnectionError(f"{error}: {str(said).strip()[-600:]}\n{served}") from error
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def nats(broker: Broker, seconds: float, *, in_flight: int, kind: str) -> Measurement:
    """NATS micro: handlers of raw bytes (an echo, no work at all), or with pydantic on both sides."""
    program = [sys.executable, "-m", "benchmarks.rpc.with_nats", str(broker.port)]
    return call_service(program, [*program, str(in_flight), str(seconds), kind], seconds)


def faststream(broker: Broker, seconds: float, *, in_flight: int) -> Measurement:
    """FastStream on RabbitMQ, with its own `request`."""
    program = [sys.executable, "-m", "benchmarks.rpc.with_faststream", str(broker.amqp_port)]
    return call_service(program, [*program, str(in_flight), str(seconds)], seconds)


def faststream_stomp(broker: Broker, seconds: float, *, in_flight: int) -> Measurement:
    """FastStream over STOMP, by faststream-stomp, whose users match replies themselves."""
    program = [sys.executable, "-m", "benchmarks.rpc.with_faststream_stomp", str(broker.port)]
    return call_service(program, [*program, str(in_flight), str(seconds)], seconds)


def nebula(
    broker: Broker, seconds: float, *, in_flight: int, hosted: bool = False, interpreted: bool = False
) -> Measurement:
    """Nebula's Client and Responder.

    Args:
        hosted: the broker has the service in its own process.
        interpreted: both without their compiled modules, where this run has them.
    """
    service = None if hosted else [PROGRAM, "run", APP]
    caller = _nebula_caller(broker, "quote", in_flight, seconds)
    environment = {
        "NEBULA_BROKER": f"stomp://127.0.0.1:{broker.port}",
        **(INTERPRETED if interpreted else {}),
    }
    return call_service(service, caller, seconds, environment)


def nebula_stream(broker: Broker, seconds: float, *, verb: str) -> Measurement:
    """A stream of Nebula's: its rate is that of the items."""
    caller = _nebula_caller(broker, verb, 0, seconds)
    environment = {"NEBULA_BROKER": f"stomp://127.0.0.1:{broker.port}"}
    return call_service([PROGRAM, "run", APP], caller, seconds, environment)


def _nebula_caller(broker: Broker, verb: str, in_flight: int, seconds: float) -> list[str]:
    numbers = [str(broker.port), verb, str(in_flight), str(seconds)]
    return [sys.executable, "-m", "benchmarks.rpc.with_nebula", *numbers]


@contextmanager
def hosted_verb_running(broker: Broker, verb: str, seconds: float) -> Iterator[None]:
    """Keep one call of a hosted verb under way; it runs when this yields."""
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "caller.log")
        with running(_nebula_caller(broker, verb, 1, seconds), log=log) as process:
            wait_until(lambda: "calling" in log.read_text(), process, log=log)
            yield


def echo_beside(broker: Broker, seconds: float, *, verb: str | None) -> Measurement:
    """The broker's raw echo while one call of a verb that it hosts is always under way."""
    patience = 10.0  # the caller is ended when we have measured
    with hosted_verb_running(broker, verb, seconds + patience) if verb else nullcontext():
        return request_many(broker, seconds)
