"""`nebula call` and `nebula describe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Service, Timeout, Url
from nebula.cli.render import Output
from nebula.errors import Refused

if TYPE_CHECKING:
    from nebula.rpc.client import Client


def call(
    service: Service,
    verb: Annotated[str, Argument(metavar="VERB", help="What to ask for; `nebula describe` lists them.")],
    parameters: Annotated[
        list[str] | None, Argument(metavar="[NAME=TEXT | NAME:=JSON]...", help="The verb's parameters.")
    ] = None,
    *,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Ask a service for a verb and show its answer.

    A job's verb answers at once with the job's id: see `nebula watch`.

    \b
    Examples:
      nebula call prices quote symbol=ABC qty:=2
      nebula call reports delays month:=1
    """
    from nebula.cli.arguments import parse_parameters
    from nebula.cli.asking import ask

    words = parse_parameters(parameters or ())
    value = ask(broker, lambda client: client.call(service, verb, words, timeout=timeout))
    Output(as_json=as_json).value(value)


def describe(
    service: Service,
    *,
    instance: Annotated[
        str | None, Option(metavar="NAME", help="Ask this one, of those that `nebula services` shows.")
    ] = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show the verbs of a service and what they take; as JSON with the full schema.

    Whichever of its instances comes first answers. On a terminal it is told if they are not all alike.

    \b
    Examples:
      nebula describe prices
      nebula describe prices --instance 3f2a9c41
    """
    from nebula.cli.asking import ask
    from nebula.cli.instances import differences

    output = Output(as_json=as_json)

    async def look(client: Client) -> tuple[Any, str]:
        target = service if instance is None else f"{service}.{instance}"
        answer = await client.call(target, "describe", timeout=timeout)
        if not output.is_for_people or instance is not None:
            return answer, ""
        try:
            return answer, differences(await client.services(service, timeout=timeout))
        except Refused:  # it may be called all the same
            return answer, ""

    answer, note = ask(broker, look)
    if not output.is_for_people:
        output.json_line(answer)
        return
    rows = [summary(verb) for verb in answer["verbs"]]
    output.rows(("verb", "parameters", "description"), rows, none="no verbs")
    if note:
        output.console.print(note, markup=False, highlight=False)


def summary(verb: Mapping[str, Any]) -> dict[str, str]:
    """A verb as a line: `symbol, qty=1` and the first line of its description.

    A deprecated verb says so in place of its description; deprecated parameters are left out.
    """
    from nebula.rpc.adapting import DEPRECATED_BECAUSE
    from nebula.rpc.signature import PARAMETER_NAME

    schema = verb["parameters"]
    words = [
        name if name in schema.get("required", ()) else f"{name}={field.get('default')}"
        for name, field in schema.get("properties", {}).items()
        if not field.get("deprecated")
    ]
    # One model or list, taken whole, has no parts to be named here.
    if whole := schema.get(PARAMETER_NAME):
        words = [f"{whole}: {schema.get('title') or str(schema.get('$ref', '')).rpartition('/')[2] or '…'}"]
    first_line, *_ = verb["description"].splitlines() or [""]
    if verb.get("deprecated"):
        first_line = f"deprecated: {verb.get(DEPRECATED_BECAUSE)}"
    return {"verb": verb["verb"], "parameters": ", ".join(words), "description": first_line}
