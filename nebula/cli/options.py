"""The options that several commands share, each declared once."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from typer import Argument, Option

Url: TypeAlias = Annotated[
    str | None,
    Option(
        "--broker",
        "-b",
        metavar="URL",
        help="The broker. Without it NEBULA_BROKER, else stomp://127.0.0.1:61613.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, Option("--json", help="JSON also on a terminal. Off one it is JSON anyway.")
]
Timeout: TypeAlias = Annotated[
    float, Option("--timeout", "-t", metavar="SECONDS", min=0.001, help="How long to wait for the answer.")
]
Service: TypeAlias = Annotated[
    str, Argument(metavar="SERVICE", help="The service's name, for example prices.")
]
JobId: TypeAlias = Annotated[str, Argument(metavar="JOB", help="SERVICE/ULID, as `nebula jobs` shows it.")]

DEFAULT_TIMEOUT = 30.0
