"""`nebula settings schema|example`: files about the settings of a broker."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from typer import Option

from nebula.cli.terminal import write_redirectable

settings = typer.Typer(
    name="settings",
    help="The broker's settings: an example file, and a JSON Schema for editors.",
    no_args_is_help=True,
)


@settings.command()
def schema() -> None:
    """Print the JSON Schema of nebula.toml, with which editors complete and check it.

    Example: nebula settings schema >nebula.schema.json
    """
    from nebula.broker.settings import BrokerSettings
    from nebula.settings_files import json_schema

    write_redirectable(json.dumps(json_schema(BrokerSettings), indent=2, ensure_ascii=False) + "\n")


@settings.command()
def example(
    *,
    schema: Annotated[
        str, Option(metavar="FILE", help="The JSON Schema that the first line names for editors.")
    ] = "nebula.schema.json",
) -> None:
    """Print an example of nebula.toml: each setting, commented out, with what it means.

    Example: nebula settings example >nebula.toml
    """
    from nebula.broker.settings import BrokerSettings
    from nebula.settings_files import example as example_of

    write_redirectable(example_of(BrokerSettings, schema))
