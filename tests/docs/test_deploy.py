"""What `deploy/` and the Dockerfile name is there: flags, settings, files, limits, exit statuses."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from nebula import Responder
from nebula.broker.core.limits import Limits
from nebula.broker.settings import ENV_PREFIX, BrokerSettings
from nebula.broker.store.sqlite_schema import VERSION
from nebula.cli.exits import Exit
from nebula.cli.supervising import Supervisor
from nebula.settings import load
from tests.broker.service_manager import Manager
from tests.cli.programs import nebula, running
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "nebula"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of a Dockerfile: `COPY --from=build /a /b`."""

    name: str
    flags: tuple[str, ...]
    words: str


def instructions() -> list[Instruction]:
    """Those of our Dockerfile, without comments and continuations."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    found = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, words = line.partition(" ")
        flags = re.match(r"(?:--\S+\s+)*", words)
        assert flags is not None
        if name:
            found.append(Instruction(name, tuple(flags[0].split()), words[flags.end() :].strip()))
    return found


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, its FROM first."""
    found: list[list[Instruction]] = []
    for each in instructions():
        if each.name == "FROM":
            found.append([])
        if found:
            found[-1].append(each)
    return found


def words_of(name: str, stage: list[Instruction]) -> list[str]:
    return [each.words for each in stage if each.name == name]


def unit(path: Path) -> dict[str, list[str]]:
    """All values of each key of a unit, `Section.Key`, in order."""
    values: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text().splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            values.setdefault(f"{section}.{key}", []).append(value)
    return values


def commands() -> Iterator[list[str]]:
    """Each `nebula` command line in the units."""
    for path in UNITS:
        for key, values in unit(path).items():
            if key.startswith("Service.Exec"):
                words = [shlex.split(value) for value in values]
                yield from (each[1:] for each in words if each[0].endswith("/nebula"))


# ----- The image


def test_image_is_built_in_a_stage_that_is_left_behind() -> None:
    build, last = stages()

    assert build[0].words.endswith(" AS build")
    assert all("pip" not in words for words in words_of("RUN", last))
    assert [each.words.split()[0] for each in last if "--from=build" in each.flags] == ["/opt/nebula"]


def test_image_runs_as_nobody_in_particular_and_keeps_its_state_in_a_volume() -> None:
    last = stages()[-1]
    (volume,) = words_of("VOLUME", last)
    (variables,) = words_of("ENV", last)

    assert words_of("USER", last) == ["10001:10001"]
    assert f"NEBULA_SERVER_DATA={volume}" in shlex.split(variables)
    assert words_of("STOPSIGNAL", last) == ["SIGTERM"]


def test_image_installs_nothing_but_what_is_pinned() -> None:
    installs = [
        part for words in words_of("RUN", stages()[0]) for part in words.split("&&") if " install " in part
    ]

    assert len(installs) == 2
    assert all("--constraint constraints.txt" in part for part in installs)


def test_image_names_no_registry() -> None:
    (image,) = words_of("ARG", instructions())

    # A first part with a dot or a colon is a host.
    assert re.fullmatch(r"PYTHON_IMAGE=python:[\w.-]+", image)
    assert [each[0].words.split()[0] for each in stages()] == ["${PYTHON_IMAGE}"] * 2


def test_all_that_the_image_copies_is_there_and_is_sent_to_the_builder() -> None:
    copied = [
        source
        for each in instructions()
        if each.name == "COPY" and not each.flags
        for source in each.words.split()[:-1]
    ]
    ignored, *sent = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"]

    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert ignored == "*"
    assert {f"!{source}" for source in copied} == {line for line in sent if line.startswith("!")}


def test_settings_of_the_image_want_logins_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text((DEPLOY / "container.toml").read_text())
    variables = dict(word.split("=", 1) for word in shlex.split(words_of("ENV", stages()[-1])[0]))
    own = {name: value for name, value in variables.items() if name.startswith("NEBULA_")}

    done = nebula("broker", "--data", "data", "--http", "0", cwd=tmp_path, env=own)
    assert done.returncode == Exit.USAGE
    assert "users.toml" in done.stderr

    (tmp_path / "users.toml").touch()
    words = ("broker", "--data", "data", "--http", "0", "--port", "0")
    with running(*words, cwd=tmp_path, env=own) as (_, line):
        assert line["event"] == "listening"


def test_image_can_be_tried_without_settings_as_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    found = re.search(r"--env '(NEBULA_SERVER_LISTENER)=(.*)' nebula (broker .*)", page)
    assert found is not None

    words = [*found[3].split(), "--port", "0", "--host", "127.0.0.1"]
    with running(*words, cwd=tmp_path, env={found[1]: found[2]}) as (_, line):
        assert line["url"].startswith("stomp://127.0.0.1:")


def test_health_check_of_the_image_is_0_while_the_broker_is_well_and_1_when_it_is_gone(
    tmp_path: Path,
) -> None:
    (check,) = words_of("HEALTHCHECK", stages()[-1])
    assert "NEBULA_SERVER_HTTP=8080" in words_of("ENV", stages()[-1])[0]
    program, *flags, script = re.findall(r'"([^"]*)"', check)

    def status(port: str) -> int:
        words = [sys.executable, *flags, script.replace("8080", port)]
        return subprocess.run(words, capture_output=True, timeout=20, check=False).returncode

    assert program == "python3"
    with running("broker", "--port", "0", "--http", "0", cwd=tmp_path) as (process, line):
        assert process.stdout is not None
        lines = [line["url"], process.stdout.readline()]
        port = next(found[1] for text in lines if (found := re.search(r"ws://[^:]*:(\d+)", text)))

        assert status(port) == 0
    assert status(port) == 1


# ----- The units


@pytest.mark.parametrize("path", UNITS, ids=lambda path: str(path.name))
def test_systemd_finds_nothing_wrong_with_the_units(path: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd is not installed")
    # It looks for the programs too: the one of this machine stands for the one that is installed.
    for each in UNITS:
        text = each.read_text().replace("/opt/nebula/bin/nebula", sys.executable)
        (tmp_path / each.name).write_text(text)

    done = subprocess.run(
        [tool, "verify", "--man=no", tmp_path / path.name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_commands_of_the_units_exist_with_their_flags() -> None:
    found = list(commands())

    assert len(found) >= 2
    for words in found:
        # A template's own words come from its instance.
        names = list(takewhile(lambda word: word[0] not in "-%$", words))
        said = nebula(*names, "--help").stdout
        assert [flag for flag in words if flag.startswith("--") and f"{flag} " not in said] == []


def test_unit_stands_where_its_settings_are_and_keeps_state_where_it_may_write() -> None:
    broker = unit(DEPLOY / "nebula-broker.service")
    (command,) = broker["Service.ExecStart"]
    words = shlex.split(command)
    folders = {f"/var/lib/{name}" for name in broker["Service.StateDirectory"][0].split()}
    settings = tomllib.loads((DEPLOY / "nebula.toml").read_text())

    assert Path(words[words.index("--config") + 1]).parent == Path(broker["Service.WorkingDirectory"][0])
    assert {words[words.index("--data") + 1], settings["backups"]} == folders
    assert settings["data"] in folders
    assert broker["Service.ProtectSystem"] == ["strict"]


def test_unit_is_not_started_again_after_wrong_settings() -> None:
    broker = unit(DEPLOY / "nebula-broker.service")

    assert broker["Service.Restart"] == ["on-failure"]
    assert broker["Service.RestartPreventExitStatus"] == [str(int(Exit.USAGE))]


def test_unit_gives_what_the_limits_of_the_broker_take() -> None:
    broker, limits = unit(DEPLOY / "nebula-broker.service"), Limits()
    memory = re.fullmatch(r"(\d+)G", broker["Service.MemoryMax"][0])
    assert memory is not None

    files = limits.max_connections + limits.max_http_requests + limits.max_http_calls
    assert int(broker["Service.LimitNOFILE"][0]) >= files + 1000
    # What Python needs for itself and for what it has freed comes on top.
    assert int(memory[1]) * 2**30 >= 1.5 * (limits.max_memory_bytes + limits.max_transit_bytes)
    assert int(broker["Service.TimeoutStopSec"][0]) >= 2 * limits.drain_seconds


def test_broker_tells_systemd_what_the_unit_waits_for(tmp_path: Path) -> None:
    broker = unit(DEPLOY / "nebula-broker.service")
    manager = Manager(str(tmp_path / "notify"))
    seconds = int(broker["Service.WatchdogSec"][0])
    told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(seconds * 1_000_000)}

    assert broker["Service.Type"] == ["notify"]
    with manager.socket, running("broker", "--port", "0", cwd=tmp_path, env=told) as (process, _):
        assert {manager.hear(), manager.hear()} == {"READY=1", "WATCHDOG=1"}
        process.terminate()
        assert manager.hears("STOPPING=1")
        assert process.wait(20) == 0


def test_example_of_settings_is_right() -> None:
    settings = load(BrokerSettings, env_prefix=ENV_PREFIX, file=DEPLOY / "nebula.toml", environ={}).value

    assert [(each.host, each.port) for each in settings.listener] == [
        ("0.0.0.0", 61614),
        ("127.0.0.1", 61613),
    ]


def test_service_has_longer_to_end_than_its_requests_and_workers_may_take() -> None:
    service = unit(DEPLOY / "nebula-service@.service")
    grace = inspect.signature(Responder.run).parameters["grace"].default
    worker = inspect.signature(Supervisor).parameters["stop_seconds"].default

    assert int(service["Service.TimeoutStopSec"][0]) > max(grace, worker) + 5


def test_service_is_started_again_without_a_broker_and_not_after_wrong_flags(tmp_path: Path) -> None:
    service = unit(DEPLOY / "nebula-service@.service")
    words = shlex.split(service["Service.ExecStart"][0].replace("%i", "prices"))[1:-1]
    (tmp_path / "prices.py").write_text("from nebula import Responder\n\napp = Responder('prices')\n")
    nowhere = {"NEBULA_BROKER": f"stomp://127.0.0.1:{free_port()}"}

    assert nebula(*words, cwd=tmp_path, env=nowhere).returncode == Exit.UNREACHED
    assert nebula(*words, "--http", "wrong", cwd=tmp_path, env=nowhere).returncode == Exit.USAGE
    assert service["Service.Restart"] == ["on-failure"]
    assert service["Service.RestartPreventExitStatus"] == [str(int(Exit.USAGE))]
    assert service["Unit.StartLimitIntervalSec"] == ["0"]


def test_service_in_a_container_is_probed_where_the_image_asks() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    (check,) = words_of("HEALTHCHECK", stages()[-1])
    run = re.search(r'CMD \["run", .*"--http", "0\.0\.0\.0:(\d+)"\]', page)
    assert run is not None

    assert f"'127.0.0.1', {run[1]}," in check
    assert f"containerPort: {run[1]}" in page


# ----- The Helm chart; `tests/foreign/test_helm_chart.py` renders it


def chart_values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def test_default_values_of_the_chart_are_those_that_its_schema_takes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    jsonschema.validate(chart_values(), schema)
    # Each value has a default, and `global` is Helm's.
    assert set(schema["properties"]) - {"global"} == set(chart_values())


def test_limits_of_the_chart_are_limits_of_the_broker() -> None:
    limits = Limits(**chart_values()["limits"])

    assert limits.drain_seconds == Limits().drain_seconds


def test_page_of_the_chart_names_each_of_its_values() -> None:
    page = (CHART / "README.md").read_text()

    assert [name for name in chart_values() if f"`{name}" not in page] == []


def test_chart_knows_a_version_and_names_no_registry() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert re.fullmatch(r"\d+\.\d+\.\d+", chart["appVersion"])
    # A first part with a dot or a colon is a host.
    assert re.fullmatch(r"[\w-]+", chart_values()["image"]["repository"])


# ----- The page on compatibility


def test_page_on_compatibility_names_the_versions_that_are_pinned_and_promised() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text()
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [word.rpartition(" ")[2] for word in project["classifiers"] if re.search(r":: 3\.\d+$", word)]

    for name in ("stomp.py", "stompest", "stompman"):
        assert f"{name} {pins[name]}" in page
    assert [name for name in names if f"| {name}." not in page] == []
    assert f"version {VERSION}" in page
