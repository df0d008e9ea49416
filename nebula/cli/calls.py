"""`nebula call` and `nebula describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option

from nebula.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Parameters,
    Service,
    Timeout,
    Url,
    Verb,
    Watch,
    completion_of,
)
from nebula.cli.render import Output
from nebula.cli.starting import NotBefore, Notify, Priority, start_options

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

OnlyVerb: TypeAlias = Annotated[
    str | None,
    Argument(
        metavar="VERB",
        help="Only this verb, with its schema.",
        show_default=False,
        autocompletion=completion_of("complete_verbs"),
    ),
]
HasOwn: TypeAlias = Annotated[
    bool, Option("--all", help="Include what every service has: ping, describe, stats, job.*")
]
Instance: TypeAlias = Annotated[
    str | None, Option(metavar="NAME", help="Ask this instance, as `nebula services` shows it.")
]


def call(
    service: Service,
    verb: Verb,
    parameters: Parameters = None,
    *,
    priority: Priority = None,
    not_before: NotBefore = None,
    notify: Notify = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Call a verb of a service and show its result.

    The verb of a job replies at once with the job's id: see `nebula job watch`.

    \b
    Examples:
      nebula call prices quote symbol=ABC qty:=2
      nebula call reports delays month:=1
      nebula call reports delays month:=1 --priority 8
      nebula call reports delays month:=1 --notify ended
      nebula call reports delays month:=1 --not-before 2030-01-31T06:00
    """
    from nebula.cli.arguments import parse_parameters
    from nebula.cli.asking import ask

    # Before connecting, so that mistakes in the words give status 2 even without a broker.
    words = parse_parameters(parameters or ())
    options = start_options(priority, not_before, notify)

    async def do(client: Client) -> Any:
        # `call` works for any verb, and returns the job of a job's verb. Options need `start`, which fails
        # for other verbs.
        if not options:
            return await client.call(service, verb, words, timeout=timeout)
        job = await client.start(service, verb, words, timeout=timeout, **options)
        # The same field as in a reply to `call`, so that `| nebula job watch -` works after both.
        return {"job": job.id}

    Output(as_json=as_json).value(ask(broker, do))


def describe(
    service: Service,
    verb: OnlyVerb = None,
    *,
    has_own: HasOwn = False,
    instance: Instance = None,
    watch: Watch = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show the verbs of a service: what they take and give, and how they fail; as JSON with the full schema.

    With VERB: only that verb, with its schema and lines that call it, also by curl.

    The first instance to reply answers; on a terminal a note says if the instances differ. --watch
    refreshes the output when instances come or go, such as those of a new version. Off a terminal it writes
    a line of JSON each time, null while there is no description.

    \b
    Examples:
      nebula describe prices
      nebula describe prices quote
      nebula describe prices --instance 3f2a9c41
      nebula describe prices --watch
    """
    from nebula.cli.asking import ask
    from nebula.cli.describing import Described

    one = Described(service, verb, instance, timeout, Output(as_json=as_json), has_own)
    ask(broker, one.watch if watch else one.show)
