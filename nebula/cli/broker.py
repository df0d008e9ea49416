"""`nebula broker`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Option
from typer.core import TyperCommand, TyperOption

from nebula.cli.hangups import note_hangups
from nebula.cli.options import AsJson
from nebula.cli.render import Output

if TYPE_CHECKING:
    from nebula.broker.settings import SettingsSource

# The defaults are None ("not given"): settings have their own defaults, and their help.
Host: TypeAlias = Annotated[str | None, Option()]
Port: TypeAlias = Annotated[int | None, Option()]
Config: TypeAlias = Annotated[
    Path | None, Option(metavar="FILE", help="TOML file.  [default: ./nebula.toml, if there is one]")
]
Store: TypeAlias = Annotated[str | None, Option(metavar="KIND")]
Data: TypeAlias = Annotated[
    Path | None, Option(metavar="DIR", help="Folder of the store.  [default: in the user's state folder]")
]
Http: TypeAlias = Annotated[int | None, Option(metavar="PORT")]
# False must not override the file's setting, so `broker` passes None instead.
HttpCalls: TypeAlias = Annotated[bool, Option("--http-calls")]
Console: TypeAlias = Annotated[bool, Option("--console")]
Rights: TypeAlias = Annotated[list[Path] | None, Option(metavar="FILE")]
Schemas: TypeAlias = Annotated[Path | None, Option(metavar="DIR")]
Apps: TypeAlias = Annotated[list[str] | None, Option(metavar="MODULE:APP")]
LogLevel: TypeAlias = Annotated[str | None, Option(metavar="LEVEL")]
PrintSettings: TypeAlias = Annotated[
    bool,
    Option("--print-settings", help="Show each setting, its value and where it came from; start nothing."),
]

_COLUMNS: Final = ("setting", "value", "from")


class BrokerCommand(TyperCommand):
    """Describes each flag that stands for a setting as the setting is described."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options; the settings are imported only here, as they take half a second."""
        from nebula.broker.settings import BrokerSettings
        from nebula.settings_files import flag_help, json_schema

        settings = json_schema(BrokerSettings)["properties"]
        listener = settings["listener"]["items"]["properties"]
        settings |= {name: listener[name] for name in ("host", "port")}
        for option in self.params:
            if isinstance(option, TyperOption) and option.name in settings:
                option.help = flag_help(settings[option.name])
        super().format_options(ctx, formatter)


def broker(
    *,
    host: Host = None,
    port: Port = None,
    config: Config = None,
    store: Store = None,
    data: Data = None,
    http: Http = None,
    http_calls: HttpCalls = False,
    console: Console = False,
    rights: Rights = None,
    schemas: Schemas = None,
    app: Apps = None,
    log_level: LogLevel = None,
    print_settings: PrintSettings = False,
    as_json: AsJson = False,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    The first line says where it listens; off a terminal it is JSON:
    {"event": "listening", "url": "stomp://127.0.0.1:61613"}. The log goes to stderr.

    Flags override the environment (NEBULA_SERVER_PORT=0), which overrides the file, which overrides the
    defaults.

    Persistent messages are kept in --data; one broker at a time may use a folder. SIGTERM drains: what was
    accepted is stored, receipted and written before each client gets its ERROR; a second SIGTERM ends it at
    once. SIGHUP makes the broker reload its settings, certificates, deny lists, users and rights; connections
    whose identity is no longer valid end, and the log names settings that need a restart. On a terminal,
    where SIGHUP means that it is closed, it acts like SIGTERM.

    Exit status: 0 ended by SIGTERM or Ctrl-C; 1 the store cannot be had or has failed (the message says
    what to do), or a hosted service has failed; 2 wrong flags or settings, or an address is taken.

    \b
    Examples:
      nebula broker
      nebula broker --port 0 --store memory --app prices:app
      nebula broker --http 8080 --rights rights.toml --schemas schemas/
      nebula broker --http 8080 --http-calls --app prices:app
      nebula broker --http 8080 --console
      NEBULA_SERVER_LIMITS__MAX_BODY_BYTES=1000000 nebula broker --print-settings
    """
    # Before everything else: the imports alone take a second.
    note_hangups()

    from nebula.broker.settings import SettingsSource

    source = SettingsSource(config, {
        "host": host, "port": port, "store": store, "data": data, "http": http, "schemas": schemas,
        "http_calls": http_calls or None, "console": console or None, "rights": rights or None,
        "app": app or None, "log_level": log_level
    })  # fmt: skip
    (_print if print_settings else _run)(source, Output(as_json=as_json))


def _print(source: SettingsSource, output: Output) -> None:
    rows = source.read().rows()
    output.rows(_COLUMNS, (dict(zip(_COLUMNS, row, strict=True)) for row in rows), none="")


def _run(source: SettingsSource, output: Output) -> None:
    # Reports all mistakes at once, with status 2, before anything is opened.
    settings = source.read().value

    from nebula.cli.programs import run_broker

    # One line for each URL, when all of them listen: a script that has read the first may connect to any.
    run_broker(
        settings,
        lambda url: output.event(f"listening on {url}", event="listening", url=url),
        lambda url: output.event(f"console at {url}", event="console", url=url),
        source,
    )
