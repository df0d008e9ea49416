"""`nebula doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from typer import Exit as Leave
from typer import Option

from nebula.cli.exits import Exit, sentence_of
from nebula.cli.options import AsJson, Timeout, Url, completion_of
from nebula.cli.render import Output

if TYPE_CHECKING:
    from nebula.cli.doctor.examination import Plan
    from nebula.cli.doctor.findings import Finding

# Instances that are there reply at once.
_TIMEOUT = 5.0

_COLOURS: Final[Mapping[str, str]] = {"ok": "green", "warning": "yellow", "error": "red", "skipped": "dim"}


Services: TypeAlias = Annotated[
    list[str] | None,
    Option(
        "--service",
        metavar="SERVICE",
        help="A service that must have an instance. May be given several times.",
        autocompletion=completion_of("complete_services"),
    ),
]
Data: TypeAlias = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="The store's folder on this machine: its disk is measured. Without it the usual folder, if this"
        " broker uses it.",
    ),
]
Offline: TypeAlias = Annotated[
    bool, Option("--offline", help="Ask no broker: check this machine before a broker runs on it.")
]
Config: TypeAlias = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="With --offline: the settings of the broker.  [default: ./nebula.toml, if there is one]",
    ),
]
Strict: TypeAlias = Annotated[bool, Option("--strict", help="Exit status 1 after warnings, too.")]


def doctor(
    *,
    service: Services = None,
    data: Data = None,
    offline: Offline = False,
    config: Config = None,
    strict: Strict = False,
    broker: Url = None,
    timeout: Timeout = _TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Check a running set-up, and say what to fix.

    Versions, clocks, the store's disk, limits of the system, certificates, rights, queues, services, and
    settings. Each check ends as ok, warning, error or skipped; a check that needs a right that you lack is
    skipped, and the output names the grant. The disk is measured for a second at most, with writes to a file
    that is deleted. Nothing else is changed.

    Where no broker is reached, what can be seen without one is checked.

    Exit status: 0 no error; 1 an error, or with --strict a warning; 3 no broker was reached.

    \b
    Examples:
      nebula doctor
      nebula doctor --service prices --service orders --strict
      nebula doctor --offline --config nebula.toml --data /var/lib/nebula
      nebula doctor | jq -r '.checks[] | select(.outcome != "ok") | .to_do'
    """
    from nebula.cli.doctor.examination import Plan

    plan = Plan(broker, data, config, tuple(service or ()), timeout)
    findings, is_reached = (_offline(plan), True) if offline else _examined(plan)
    _show(Output(as_json=as_json), findings)
    status = _status(findings, is_strict=strict) if is_reached else Exit.UNREACHED
    if status is not Exit.OK:
        raise Leave(status)


def _offline(plan: Plan) -> list[Finding]:
    from nebula.cli.doctor.offline import examine_machine

    return list(examine_machine(plan))


def _examined(plan: Plan) -> tuple[list[Finding], bool]:
    """The findings, and whether the broker was reached."""
    from nebula.cli.asking import ask
    from nebula.cli.doctor.examination import examine_broker, own_files, unreached
    from nebula.cli.doctor.gathering import gather
    from nebula.errors import NebulaError, SettingsError

    try:
        site = ask(plan.url, lambda client: gather(client, plan.seconds))
    except SettingsError:
        # An address or a TLS option that cannot be used: nothing was asked.
        raise
    except NebulaError as error:
        first = unreached(plan, sentence_of(error))
        # An expired certificate is a frequent reason for having no connection.
        return [first, *own_files(plan), *_machine_if_possible(plan)], False
    return list(examine_broker(plan, site)), True


def _machine_if_possible(plan: Plan) -> list[Finding]:
    """The findings about this machine, where a broker is installed."""
    try:
        return _offline(plan)
    except ModuleNotFoundError:
        # A client's machine, where no broker can run.
        return []


def _status(findings: Iterable[Finding], *, is_strict: bool) -> Exit:
    outcomes = {str(each.outcome) for each in findings}
    bad = {"error", "warning"} if is_strict else {"error"}
    return Exit.FAILED if outcomes & bad else Exit.OK


def _show(output: Output, findings: Sequence[Finding]) -> None:
    counts = Counter(str(each.outcome) for each in findings)
    if not output.is_for_people:
        output.json_line({"checks": [asdict(each) for each in findings], "counts": dict(counts)})
        return
    from rich.text import Text

    from nebula.cli.doctor.findings import counted
    from nebula.cli.layout import Heading, Rows
    from nebula.cli.terminal import text

    def cell(finding: Finding) -> Text:
        lines = text(finding.found, keep="")
        if finding.to_do:
            lines = Text.assemble(lines, "\n", text(f"To do: {finding.to_do}", "bold", keep=""))
        return lines

    headings = [Heading(text(each)) for each in ("check", "outcome", "found")]
    output.show(
        Rows(
            headings,
            (
                [text(each.check), text(each.outcome, _COLOURS.get(each.outcome, "")), cell(each)]
                for each in findings
            ),
        )
    )
    output.show("", f"{counted(len(findings), 'check')}: {_summary(counts)}")


def _summary(counts: Mapping[str, int]) -> str:
    """`1 error, 2 warnings, 28 ok`."""
    from nebula.cli.doctor.findings import counted

    parts = [counted(counts[name], name) for name in ("error", "warning") if name in counts]
    parts += [f"{counts[name]} {name}" for name in ("ok", "skipped") if name in counts]
    return ", ".join(parts)
