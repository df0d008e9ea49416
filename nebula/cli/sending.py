"""`nebula send` and `nebula pub`: messages that expect no reply."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from typer import Argument, BadParameter, Option

from nebula.cli.options import (
    DEFAULT_TIMEOUT,
    AsJson,
    Parameters,
    Service,
    Timeout,
    Url,
    Verb,
    completion_of,
    named_destination,
)
from nebula.cli.render import Output

_STDIN: Final = "-"
_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_BYTES: Final = "application/octet-stream"

ExpiresIn: TypeAlias = Annotated[
    float | None,
    Option(
        metavar="SECONDS", min=0.001, help="Do not run it after that time. By default it does not expire."
    ),
]
Destination: TypeAlias = Annotated[
    str,
    Argument(
        metavar="DEST",
        help="A queue, a topic, or a last value: /queue/…, /topic/…, X/…. `orders` is /queue/orders.",
        callback=named_destination,
        autocompletion=completion_of("complete_queues"),
    ),
]
Body: TypeAlias = Annotated[
    str | None,
    Argument(metavar="BODY", help="The message; - reads it from stdin. The default is an empty one."),
]
File: TypeAlias = Annotated[
    Path | None,
    Option(
        "--file",
        "-f",
        metavar="FILE",
        help="Send the content of this file.",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]
Header: TypeAlias = Annotated[
    list[str] | None, Option("--header", "-H", metavar="NAME:VALUE", help="A header; repeatable.")
]
ContentType: TypeAlias = Annotated[
    str | None,
    Option(metavar="TYPE", help="The default is JSON if the body is JSON, else text, else bytes."),
]


def send(
    service: Service,
    verb: Verb,
    parameters: Parameters = None,
    *,
    expires_in: ExpiresIn = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Put a request into a service's queue, without waiting for a reply.

    When the command ends, the queue has it. If no instance runs now, it is handled when one starts.

    Example: nebula send mailer remind customer=7 --expires-in 3600
    """
    from nebula.cli.arguments import parse_parameters
    from nebula.cli.asking import ask

    words = parse_parameters(parameters or ())
    ask(
        broker,
        lambda client: client.with_options(timeout=timeout).send(service, verb, words, expires_in=expires_in),
    )
    Output(as_json=as_json).event(f"sent to {service}", service=service, verb=verb)


def pub(
    destination: Destination,
    body: Body = None,
    *,
    file: File = None,
    header: Header = None,
    content_type: ContentType = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Publish a message, and wait until the broker has it.

    X/… are last values: the broker keeps the latest message of each. An empty message to X/… deletes its
    value.

    \b
    Examples:
      nebula pub /topic/news '{"headline": "it works"}'
      nebula pub X/EGM.7.state - < state.json
      nebula pub /queue/orders -f order.json -H priority:9
    """
    from nebula.cli.asking import ask

    data = _body_of(body, file)
    # Of several headers with one name the last counts.
    headers = dict(_header(line) for line in header or ())
    # Guessed, because receivers need it and the shell has no types: a text that is JSON is nearly always
    # meant as JSON.
    kind = content_type or _kind_of(data)
    ask(
        broker,
        lambda client: client.with_options(timeout=timeout).publish(
            destination, data, content_type=kind, headers=headers
        ),
    )
    Output(as_json=as_json).event(
        f"published {len(data)} bytes to {destination}", destination=destination, bytes=len(data)
    )


def _body_of(body: str | None, file: Path | None) -> bytes:
    if body is not None and file is not None:
        raise BadParameter("give BODY or --file, not both")
    if file is not None:
        # Unchanged: no line end is added or removed.
        return file.read_bytes()
    if body == _STDIN:
        return sys.stdin.buffer.read()
    # Bytes of the command line that are not UTF-8 are surrogates in Python, and are sent as the bytes they
    # were.
    return (body or "").encode("utf-8", "surrogateescape")


def _header(line: str) -> tuple[str, str]:
    # At the first colon: a value may have more, such as a time.
    name, colon, value = line.partition(":")
    if not colon or not name:
        raise BadParameter(f"{line!r} is not of the form NAME:VALUE")
    return name, value


def _kind_of(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _BYTES
    try:
        json.loads(text)
    except ValueError:
        return _TEXT
    return _JSON
