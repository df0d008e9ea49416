"""`nebula run`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from nebula.cli.options import AsJson, Url
from nebula.cli.render import Output
from nebula.logs import Level


def run(
    app: Annotated[
        str, Argument(metavar="MODULE:APP", help="The Responder APP of MODULE, here or installed.")
    ],
    *,
    broker: Url = None,
    log_level: Annotated[Level, Option(help="Least important events that are logged.")] = Level.INFO,
    as_json: AsJson = False,
) -> None:
    """Run a service until SIGTERM or Ctrl-C; requests under way are answered first.

    The first line says that it serves; off a terminal it is JSON:
    {"event": "serving", "service": "prices", "queues": ["/queue/prices"]}. The log goes to stderr.
    A lost connection ends it with status 3: a supervisor starts it again.

    Example: nebula run prices:app
    """
    from nebula.cli.arguments import find_app
    from nebula.cli.programs import run_service

    output = Output(as_json=as_json)
    found = find_app(app)
    text = f"serving {found.name} on {', '.join(found.destinations)}"
    facts = {"event": "serving", "service": found.name, "queues": found.destinations}
    run_service(found, broker, log_level, lambda: output.event(text, **facts))
