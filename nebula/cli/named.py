"""`nebula contexts`."""

from __future__ import annotations

from typing import Any

from nebula.cli.contexts import read_contexts
from nebula.cli.options import AsJson
from nebula.cli.render import Output
from nebula.environment import CommandEnvironment
from nebula.stomp.client.addresses import parse_address


def contexts(*, as_json: AsJson = False) -> None:
    """Show the named brokers of this user, and which one is the default.

    \b
    They stand in ~/.config/nebula/contexts.toml, or where NEBULA_CONTEXTS says:
      default = "venue"
      [contexts.venue]
      broker = "stomps://broker.example"
      ca = "venue-ca.pem"

    \b
    Example. Every command then takes the name for the address:
      nebula call prices quote symbol=ABC --broker venue
    """
    # Without --broker, so that the command works even if the default context is misspelt.
    file = CommandEnvironment.read().contexts_file
    found = read_contexts(file)
    rows: list[dict[str, Any]] = [
        # Without passcodes, because the output may end up in a bug report.
        {"name": name, "broker": _without_passcode(each.broker), "default": name == found.default}
        for name, each in sorted(found.contexts.items())
    ]
    output = Output(as_json=as_json)
    if output.is_for_people:
        shown = [{**row, "default": "*" if row["default"] else ""} for row in rows]
        output.rows(("name", "broker", "default"), shown, none=f"no contexts; {file} would have them")
    else:
        output.json_line(rows)


def _without_passcode(url: str) -> str:
    address = parse_address(url)
    scheme = url.partition("://")[0]
    login = "" if address.login is None else f"{address.login}@"
    return f"{scheme}://{login}{address.place}"
