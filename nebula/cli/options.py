"""The options that several commands share, each declared once."""

from __future__ import annotations

import json
import sys
from typing import Annotated, TypeAlias

from typer import Argument, BadParameter, Option


def _with_service(job: str) -> str:
    from nebula.rpc.jobs.identifiers import unqualified

    try:
        if job == "-":
            job = str(json.load(sys.stdin)["job"])
        service, ulid = unqualified(job)
    except (KeyError, TypeError, json.JSONDecodeError):
        raise BadParameter("on stdin there is no answer of `nebula call` to a job's verb") from None
    except ValueError as error:
        raise BadParameter(str(error)) from None
    if service is None:
        raise BadParameter(f"it does not say whose job it is: SERVICE/{ulid} would")
    return job


def _address_of(named: str | None) -> str | None:
    from nebula.cli.contexts import find_broker

    return find_broker(named)


def _complete_names(incomplete: str) -> list[str]:
    from nebula.cli.contexts import complete_names

    return complete_names(incomplete)


Url: TypeAlias = Annotated[
    str | None,
    Option(
        "--broker",
        "-b",
        metavar="URL|NAME",
        help="The broker, or a context's name (`nebula contexts`). Without it NEBULA_BROKER, else"
        " stomp://127.0.0.1:61613.",
        show_default=False,
        callback=_address_of,
        autocompletion=_complete_names,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, Option("--json", help="JSON also on a terminal. Off one it is JSON anyway.")
]
Timeout: TypeAlias = Annotated[
    float, Option("--timeout", "-t", metavar="SECONDS", min=0.001, help="How long to wait for the answer.")
]
Watch: TypeAlias = Annotated[bool, Option("--watch", "-w", help="Show it anew as it changes, until Ctrl-C.")]
Service: TypeAlias = Annotated[
    str, Argument(metavar="SERVICE", help="The service's name, for example prices.")
]
JobId: TypeAlias = Annotated[
    str,
    Argument(
        metavar="JOB",
        help="SERVICE/ULID, as `nebula jobs` shows it; - takes it from what `nebula call` answered.",
        callback=_with_service,
    ),
]

DEFAULT_TIMEOUT = 30.0
