"""`nebula console`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from nebula.cli.options import AsJson, LogLevel, Url
from nebula.cli.render import Output
from nebula.logs import Level


def console(
    *,
    broker: Url = None,
    host: Annotated[str, Option(help="Address or name of an interface.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65_535, help="TCP port; 0 takes a free one.")] = 0,
    name: Annotated[
        list[str] | None,
        Option(metavar="HOST", help="Host name that browsers may use besides --host. May be repeated."),
    ] = None,
    log_level: LogLevel = Level.INFO,
    as_json: AsJson = False,
) -> None:
    """Serve the console next to a running broker until Ctrl-C.

    The first line says where to open it; off a terminal it is JSON:
    {"event": "console", "url": "http://127.0.0.1:40001/console/"}. The log goes to stderr.

    The page speaks to the broker through this program and signs in itself: a login in the broker's address is
    not used. In the code that users copy, the address is shown without the login. Certificates are those of
    --broker's context or of NEBULA_CA, NEBULA_CERT, ...; with a client certificate, the broker treats
    everyone who uses this console as the certificate's holder. A broker that is started with --http and
    --console needs no such program.

    Exit status: 0 ended by SIGTERM or Ctrl-C; 2 wrong flags, or an address is taken.

    \b
    Examples:
      nebula console
      nebula console --broker stomps://broker.example --port 8080
      nebula console --broker venue
    """
    from nebula.cli.programs import run_console
    from nebula.console.relay import Relay
    from nebula.stomp.client.ambient import broker_address
    from nebula.stomp.client.tls import ClientTls, TlsOptions

    output = Output(as_json=as_json)
    address = broker_address(broker)
    tls = ClientTls(TlsOptions.from_environment()) if address.is_tls else None
    relay = Relay(address, tls, host, port, tuple(name or ()))
    run_console(relay, log_level, lambda url: output.event(f"console at {url}", event="console", url=url))
