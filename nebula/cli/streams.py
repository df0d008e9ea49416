"""The command `nebula stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Option

from nebula.cli.options import AsJson, Parameters, Service, Url, Verb
from nebula.cli.render import Output

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

Count: TypeAlias = Annotated[
    int | None,
    Option("--count", "-n", metavar="N", min=1, help="Stop after this number of items.", show_default=False),
]
WholeTimeout: TypeAlias = Annotated[
    float | None,
    Option(
        "--timeout",
        "-t",
        metavar="SECONDS",
        min=0.001,
        help="Limit for the whole stream. The default is no limit.",
        show_default=False,
    ),
]


def stream(
    service: Service,
    verb: Verb,
    parameters: Parameters = None,
    *,
    count: Count = None,
    broker: Url = None,
    timeout: WholeTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Show the items that a verb yields, each on a line as it arrives, until the end or Ctrl-C.

    Off a terminal each line is JSON. A slow reader slows down the service. Ctrl-C, or closing the pipe,
    closes the handler there. For a verb that does not stream, shows its single answer.

    \b
    Examples:
      nebula stream prices ticks symbol=ABC
      nebula stream prices ticks symbol=ABC -n 10 | jq .cents
    """
    from nebula.cli.arguments import parse_parameters
    from nebula.cli.asking import ask

    words = parse_parameters(parameters or ())
    output = Output(as_json=as_json)
    ask(broker, lambda client: _show(client, service, verb, words, timeout, count, output))


async def _show(
    client: Client,
    service: str,
    verb: str,
    words: dict[str, Any],
    timeout: float | None,
    count: int | None,
    output: Output,
) -> None:
    from nebula.rpc.errors import NotAStream

    # Ctrl-C or a closed pipe leaves this block too, which closes the service's handler.
    async with client.stream(service, verb, words, timeout=timeout) as items:
        try:
            # By batches: one write for all items that are there.
            while count != 0 and (batch := (await items.next_batch())[:count]):
                await output.items(batch)
                count = None if count is None else count - len(batch)
        # The verb has run: an error would hide the reply of a call that may have had effects.
        except NotAStream as answer:
            output.value(answer.value)
