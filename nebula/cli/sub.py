"""`nebula sub`."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Argument, BadParameter, Option

from nebula.cli.options import AsJson, Url, named_source
from nebula.cli.render import Output

if TYPE_CHECKING:
    from nebula.stomp.client import Message
    from nebula.stomp.client.messages import SubscribeOptions

_SPACES: Final = str.maketrans("", "", "\t\r\n")

Source: TypeAlias = Annotated[
    str,
    Argument(
        metavar="DEST",
        help="What to read: a queue, or topics or last values by name or glob. `orders` is /queue/orders.",
        callback=named_source,
    ),
]
Eager: TypeAlias = Annotated[bool, Option("--eager", help="Begin with the current values (X/…).")]
Durable: TypeAlias = Annotated[
    str | None,
    Option(metavar="NAME", help="Resume this durable subscription of --client-id. Implies --ack."),
]
ClientId: TypeAlias = Annotated[
    str | None, Option(metavar="ID", help="The session that the durable subscription belongs to.")
]
Ack: TypeAlias = Annotated[
    bool, Option("--ack", help="Consume a message when it is shown, not when it is sent.")
]


def sub(
    destination: Source,
    *,
    eager: Eager = False,
    durable: Durable = None,
    client_id: ClientId = None,
    ack: Ack = False,
    broker: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages of a destination as they come, each on a line, until Ctrl-C.

    Messages of a queue are consumed. X/… are last values: the broker keeps the latest message of each, and a
    slow reader skips intermediate ones. A deleted value is shown as deleted.

    \b
    Examples:
      nebula sub 'X/EGM.*' --eager
      nebula sub /topic/news --durable reader --client-id me
      nebula sub /queue/DLQ --ack | jq .headers
    """
    # The broker would make an id that is unknown the next time, and keep messages that nothing consumes.
    if (durable is None) != (client_id is None):
        raise BadParameter(
            "--durable and --client-id go together: the one names what the other comes back for"
        )
    from nebula.cli.asking import converse
    from nebula.stomp.client import AckMode

    # --durable implies --ack: a message that was sent but not shown has to come again.
    mode = AckMode.CLIENT_INDIVIDUAL if ack or durable is not None else AckMode.AUTO
    options: SubscribeOptions = {"ack": mode, "eager": eager, "durable": durable}
    converse(lambda: _show(broker, client_id, destination, options, Output(as_json=as_json)))


async def _show(
    broker: str | None, client_id: str | None, destination: str, options: SubscribeOptions, output: Output
) -> None:
    from nebula.stomp.client import AckMode, StompClient

    async with (
        # Not `Client`, which reconnects: users would not notice missed messages.
        StompClient(broker, client_id=client_id) as client,
        client.subscribe(destination, **options) as messages,
    ):
        async for message in messages:
            # Flushed before the ACK: if the reader of the pipe has gone, the broker still has the message.
            output.event(line_of(message), **facts_of(message))
            if options["ack"] is not AckMode.AUTO:
                message.ack()


def facts_of(message: Message) -> dict[str, Any]:
    """A message for programs: its body as text, or as base64 where it is none."""
    text = _text(message.body)
    # Two names, so that programs can tell text from base64.
    body = {"body_base64": base64.b64encode(message.body).decode()} if text is None else {"body": text}
    gone = {"deleted": True} if _is_deleted(message) else {}
    return {"destination": message.destination, **gone, **body, "headers": dict(message.headers)}


def line_of(message: Message) -> str:
    """A message for people, who must not meet a stranger's escape sequences."""
    if _is_deleted(message):
        return f"{_shown(message.destination)}  (deleted)"
    text = _text(message.body)
    body = f"({len(message.body)} bytes)" if text is None else _shown(text)
    return f"{_shown(message.destination)}  {body}"


def _text(body: bytes) -> str | None:
    try:
        # Not by the content type, which may be wrong.
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_SPACES).isprintable() else None


def _shown(text: str) -> str:
    # One line for each message, even if the text has several.
    return text if text.isprintable() else json.dumps(text)


def _is_deleted(message: Message) -> bool:
    # Last values stand under a prefix of their own; elsewhere an empty body is a message like any other.
    destination = message.destination
    return message.is_deletion and "/" in destination and not destination.startswith("/")
