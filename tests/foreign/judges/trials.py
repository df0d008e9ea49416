"""Runs the judges' programs, all at once, and keeps what they report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import NamedTuple
from urllib.parse import urlencode

from benchmarks.processes import running, tail
from tests.foreign.judges.browser import showing
from tests.foreign.judges.checks import VERSIONS
from tests.foreign.judges.page_server import PageServer

HERE = Path(__file__).parent

# So long do judges watch a silent connection. The broker beats twice a second, and takes 2 s of silence for
# death.
SILENCE_SECONDS = 3.2

# Each check has a deadline of its own; this is for a program that hangs.
_DEADLINE_SECONDS = 60.0

_JARS = ("activemq-stomp", "activemq-client", "hawtbuf", "slf4j-api")

_COMMANDS: Mapping[str, list[str]] = {
    "ruby": ["ruby", str(HERE / "judge.rb")],
    "perl": ["perl", str(HERE / "judge.pl")],
    # It has 2 s for CONNECTED unless told otherwise, and all begin at once here.
    "php": ["php", "-d", "stomp.default_read_timeout_sec=10", str(HERE / "judge.php")],
    "java": [
        "java",
        "-Dfile.encoding=UTF-8",
        "-cp",
        ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS),
        str(HERE / "Judge.java"),
    ],
    "node": ["node", str(HERE / "js" / "node.js")],
}


class Ports(NamedTuple):
    """Where a broker listens."""

    tcp: int
    http: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a judge says of one check."""

    ok: bool
    detail: str


@dataclass(frozen=True)
class Trial:
    """A judge's run over all checks of one version, under way or done.

    Attributes:
        wait: returns what was reported, once there is nothing more to come.
        explain: what the program wrote beside its report, for an error's text.
    """

    wait: Callable[[], Iterable[Mapping[str, object]]]
    explain: Callable[[], str] = field(default=lambda: "")

    @cached_property
    def results(self) -> dict[str, Result]:
        """What was reported, by check. Waits until all is."""
        reported = self.wait()
        return {str(line["check"]): Result(bool(line["ok"]), str(line["detail"])) for line in reported}


def start_programs(
    stack: ExitStack, folder: Path, start_broker: Callable[[], Ports], namespace: str
) -> dict[tuple[str, str], Trial]:
    """Start each judge that is a program, once for each version, with a broker each; the stack ends them.

    Returns:
        The trials by judge and version.
    """
    trials = {}
    for judge, command in _COMMANDS.items():
        for version in VERSIONS:
            broker = start_broker()
            port = broker.http if judge == "node" else broker.tcp
            log = folder / f"{judge}-{version}.log"
            words = [str(port), version, f"{namespace}-{judge}-{version}", str(SILENCE_SECONDS)]
            process = stack.enter_context(
                running([*command, *words], log=log, environment={"LC_ALL": "C.UTF-8"})
            )
            trials[judge, version] = _program_trial(process, log)
    return trials


def _program_trial(process: Popen[bytes], log: Path) -> Trial:
    def wait() -> list[dict[str, object]]:
        # What it has reported until then counts.
        with suppress(TimeoutExpired):
            process.wait(_DEADLINE_SECONDS)
        lines = log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"check"')]

    return Trial(wait, lambda: tail(log))


def start_chromium(
    stack: ExitStack, folder: Path, start_broker: Callable[[], Ports], namespace: str, pages: PageServer
) -> dict[tuple[str, str], Trial]:
    """Start the judge in the browser, with a broker for each version; the stack ends it.

    Returns:
        The trials by judge and version; the version `stranger` is a page of a strange origin.
    """
    ports = [start_broker().http for _ in VERSIONS]
    plan = {
        "ports": ",".join(map(str, ports)),
        "namespace": f"{namespace}-chromium",
        "silence": SILENCE_SECONDS,
        "versions": ",".join(VERSIONS),
        "stranger": f"http://localhost:{pages.port}/page.html?{urlencode({'ports': ports[0]})}",
    }
    url = f"http://127.0.0.1:{pages.port}/page.html?{urlencode(plan)}"
    log = stack.enter_context(showing(url, folder))

    def trial(version: str) -> Trial:
        return Trial(lambda: pages.results(version, _DEADLINE_SECONDS), lambda: tail(log))

    return {("chromium", version): trial(version) for version in (*VERSIONS, "stranger")}
