"""`nebula stubs` and `nebula schema`: a service's contract as Python or TypeScript, or for other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from nebula.cli.options import DEFAULT_TIMEOUT, Service, Timeout, Url
from nebula.cli.render import Output
from nebula.cli.terminal import write_redirectable
from nebula.errors import SettingsError

_Out = Annotated[
    Path | None,
    Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write this file; without it the text is shown.",
        show_default=False,
    ),
]
# docs/how-to/browser.md
_PACKAGE: Final = "@nebula-rpc/client"
_AsJson = Annotated[
    bool,
    Option("--json", help="Tell what was written as JSON; without -o show the text as one line of JSON."),
]
_AsyncApi = Annotated[bool, Option("--asyncapi", help="As an AsyncAPI 3 document.")]
_OpenApi = Annotated[bool, Option("--openapi", help="As an OpenAPI 3.1 document of the calls over HTTP.")]
_HttpUrl = Annotated[str, Option("--http-url", metavar="URL", help="Of the HTTP listener, for --openapi.")]


def stubs(
    service: Service,
    *,
    typescript: Annotated[
        bool, Option("--typescript", help="As a module of TypeScript, for web pages and Node.")
    ] = False,
    package: Annotated[
        str,
        Option(
            "--package",
            metavar="MODULE",
            help="Where the TypeScript imports Nebula from, such as ./nebula.js.",
        ),
    ] = _PACKAGE,
    output: _Out = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: _AsJson = False,
) -> None:
    """Write a typed client of a service, a Python module, for callers without its code.

    It has a function for each verb, with the types, defaults, docstrings, errors and deprecations that the
    service describes. Calls take the function: await client.call(prices_client.quote, "ABC", qty=2)
    With --typescript it has a class with a method for each verb: await prices.quote({ symbol: "ABC" })

    \b
    Examples:
      nebula stubs prices -o prices_client.py
      nebula stubs prices | diff prices_client.py -      has the service changed?
      nebula stubs prices --typescript -o prices.ts
    """
    told = _told(service, broker, timeout)
    # A malformed description would raise KeyError in the writer, although the service is at fault.
    with _reading_description(service):
        text = _written(told, package if typescript else None)
    _put(text, output, {"service": service, "verbs": len(told["verbs"])}, as_json=as_json)


def schema(
    service: Service,
    *,
    asyncapi: _AsyncApi = False,
    openapi: _OpenApi = False,
    http_url: _HttpUrl = "/",
    output: _Out = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: _AsJson = False,
) -> None:
    """Write the schemas of a service's verbs as JSON: JSON Schema by verb, or a document for other tools.

    \b
    Examples:
      nebula schema prices
      nebula schema prices --asyncapi -o prices.asyncapi.json
      nebula schema prices --openapi --http-url https://api.example
    """
    from nebula.codegen.asyncapi import asyncapi_document
    from nebula.codegen.openapi import openapi_document

    if asyncapi and openapi:
        raise SettingsError("--asyncapi and --openapi are two documents: ask for one of them")
    told = _told(service, broker, timeout)
    with _reading_description(service):
        document = openapi_document(told, http_url) if openapi else _by_verb(told)
        if asyncapi:
            document = asyncapi_document(told, broker)
    _put_json(document, output, {"service": service, "verbs": len(told["verbs"])}, as_json=as_json)


def _told(service: str, broker: str | None, timeout: float) -> Any:
    from nebula.cli.asking import ask

    return ask(broker, lambda client: client.call(service, "describe", timeout=timeout))


def _reading_description(service: str) -> AbstractContextManager[None]:
    from nebula.rpc.wire.replies import reading

    return reading(f"what {service} answers to describe")


def _written(told: Mapping[str, Any], package: str | None) -> str:
    """The module: of TypeScript that imports a package, or of Python."""
    from nebula.codegen.module import write_stubs
    from nebula.codegen.typescript import write_typescript

    return write_stubs(told) if package is None else write_typescript(told, package)


def _by_verb(told: Mapping[str, Any]) -> dict[str, Any]:
    return {verb["verb"]: {part: verb[part] for part in ("parameters", "result")} for verb in told["verbs"]}


def _put(text: str, output: Path | None, facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Show a text, or write it and say so."""
    shown = Output(as_json=as_json)
    if output is None and as_json:
        shown.json_line({**facts, "text": text})
        return
    if output is None:
        # As it is, also off a terminal: it is there to be redirected.
        write_redirectable(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{output}: {error.strerror or error}") from error
    shown.event(f"wrote {output}", **facts, file=str(output), bytes=len(text.encode()))


def _put_json(document: Any, output: Path | None, facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Show a document, or write it and say so."""
    if as_json and output is None:
        # It is JSON anyway: on one line, as other commands have it.
        Output(as_json=True).json_line(document)
        return
    _put(json.dumps(document, indent=2) + "\n", output, facts, as_json=as_json)
