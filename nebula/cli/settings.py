"""`nebula settings check|schema|example`: a new settings file, and files made from the settings' model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from nebula.cli.exits import Exit
from nebula.cli.operators import tell
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url
from nebula.cli.render import Output
from nebula.cli.replies import SettingsCheck
from nebula.cli.terminal import write_redirectable
from nebula.errors import SettingsError
from nebula.visible import visible

settings = typer.Typer(
    name="settings",
    help="Check a new settings file of a broker; print an example, and a JSON Schema for editors.",
    no_args_is_help=True,
)


@settings.command()
def check(
    file: Annotated[
        Path | None,
        Argument(
            metavar="FILE", help="The new nebula.toml. Without it, the file that the broker was started with."
        ),
    ] = None,
    *,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Ask a running broker to check a settings file, without applying it.

    The environment and the flags of the broker count as at its start. The output names the settings that a
    reload (SIGHUP) takes, those that need a restart, and all errors. Files that the settings name are not
    read. Exit status 1 if something is wrong.

    Example: nebula settings check nebula.toml
    """
    found = tell(broker, "settings.check", {"text": _text_of(file)}, timeout, SettingsCheck)
    own = "the broker's file" if file is None else str(file)
    Output(as_json=as_json).event("\n".join(_lines(found, own)), **found)
    if found["problems"]:
        raise typer.Exit(Exit.FAILED)


def _text_of(file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"{file}: cannot be read: {reason}") from None


def _lines(found: Mapping[str, Any], own: str) -> Iterator[str]:
    for each in found["problems"]:
        source = own if each["source"] == "file" else each["source"]
        yield visible(f"{source}: {each['problem']}")
    for outcome, what in (("reload", "a reload takes"), ("restart", "restart needed")):
        if found[outcome]:
            yield visible(f"{what}: {', '.join(found[outcome])}")
    if not (found["problems"] or found["reload"] or found["restart"]):
        yield "nothing would change"


@settings.command()
def schema(*, as_json: AsJson = False) -> None:
    """Print the JSON Schema of nebula.toml, with which editors complete and check it.

    Example: nebula settings schema >nebula.schema.json
    """
    from nebula.broker.settings import BrokerSettings
    from nebula.settings_files import json_schema

    document = json_schema(BrokerSettings)
    if as_json:
        # On one line, as the JSON of other commands.
        Output(as_json=True).json_line(document)
    else:
        write_redirectable(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


@settings.command()
def example(
    *,
    schema: Annotated[
        str, Option(metavar="FILE", help="The JSON Schema that the first line names for editors.")
    ] = "nebula.schema.json",
    as_json: AsJson = False,
) -> None:
    """Print an example of nebula.toml: each setting, commented out, with what it means.

    Example: nebula settings example >nebula.toml
    """
    from nebula.broker.settings import BrokerSettings
    from nebula.settings_files import example as example_of

    text = example_of(BrokerSettings, schema)
    if as_json:
        Output(as_json=True).json_line({"text": text})
    else:
        write_redirectable(text)
