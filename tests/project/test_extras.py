"""What works without the extras `broker` and `cli`, and what is said where one of them is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from nebula.optional import EXTRA_OF
from tests.cli.programs import DEADLINE, environment, nebula, running
from tests.missing_extras import ASK, PRICES
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_THE_BROKER = {library for library, extra in EXTRA_OF.items() if extra == "broker"} | {"uvloop"}
OF_THE_COMMAND = {library for library, extra in EXTRA_OF.items() if extra == "cli"} | {"uvloop"}


def blocking(libraries: set[str]) -> str:
    """A program whose imports of these libraries fail from then on."""
    return f"import sys\nsys.modules.update(dict.fromkeys({sorted(libraries)}))\n"


def without(libraries: set[str], program: str, *words: str, cwd: Path | None = None, url: str = "") -> str:
    """What a program writes where the libraries cannot be imported: stdout, stderr and its status."""
    env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{cwd or ''}"} | ({"NEBULA_BROKER": url} if url else {})
    ended = subprocess.run(
        [sys.executable, "-c", blocking(libraries) + program, *words],
        env=environment(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return f"{ended.stdout}{ended.stderr}{ended.returncode}"


COMMAND = "import nebula.__main__ as program; program.main()"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    port = str(free_port())
    with running("broker", "--port", port, "--store", "memory"):
        yield f"stomp://127.0.0.1:{port}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prices.py").write_text(PRICES)
    return tmp_path


def names_of(requirements: list[str]) -> set[str]:
    """The distributions that requirements name, as import metadata spells them."""
    return {re.split(r"[\[<>=;\s]", one)[0].lower().replace("_", "-") for one in requirements}


def test_libraries_of_the_extras_are_those_that_are_explained() -> None:
    distributions = packages_distributions()

    for extra in ("broker", "cli"):
        wanted = names_of(PROJECT["optional-dependencies"][extra]) - {"uvloop"}  # which is never needed
        libraries = [library for library, of in EXTRA_OF.items() if of == extra]
        found = {name.lower().replace("_", "-") for one in libraries for name in distributions[one]}

        assert found == wanted


def test_the_package_alone_asks_for_no_library_of_an_extra() -> None:
    extras = PROJECT["optional-dependencies"]

    assert not names_of(PROJECT["dependencies"]) & names_of(extras["broker"] + extras["cli"])
    assert extras["all"] == ["nebula-rpc[broker,cli]"]


def test_service_and_callers_need_no_extra(broker: str, folder: Path) -> None:
    said = without(OF_THE_BROKER | OF_THE_COMMAND, ASK, cwd=folder, url=broker)

    assert said == "25.0\n37.5\n0"


@pytest.mark.parametrize("name", ["embedded", "testing.TestClient", "testing.broker"])
def test_name_that_needs_the_broker_says_which_extra(name: str) -> None:
    said = without(OF_THE_BROKER, f"import nebula\ntry: nebula.{name}\nexcept ImportError as e: print(e)")

    sentence = rf"nebula\.{name} needs \w+, which is not installed: pip install 'nebula-rpc\[broker\]'\n0"
    assert re.fullmatch(sentence, said)


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("metrics", "prometheus_client", "prometheus"), ("tracing", "opentelemetry", "otel")],
)
def test_middleware_without_its_library_says_which_extra(module: str, library: str, extra: str) -> None:
    program = f"try: import nebula.rpc.middleware.{module}\nexcept ImportError as e: print(e)"

    assert without({library}, program) == (
        f"nebula.rpc.middleware.{module} needs {library}, which is not installed: "
        f"pip install 'nebula-rpc[{extra}]'\n0"
    )


def test_all_other_public_names_need_no_extra() -> None:
    program = """
import nebula
for name in nebula.__all__:
    try: getattr(nebula, name)
    except nebula.MissingExtra: print(name)
"""

    assert without(OF_THE_BROKER | OF_THE_COMMAND, program) == "embedded\n0"


def test_fakes_and_faults_need_no_extra() -> None:
    assert without(OF_THE_BROKER, "from nebula.testing import Faults, fake") == "0"


@pytest.mark.parametrize("words", [[], ["broker"], ["call", "prices", "quote"]])
def test_command_without_its_libraries_says_which_extra(words: list[str]) -> None:
    said = without(OF_THE_COMMAND, COMMAND, *words)

    assert said == (
        "nebula: the command nebula needs typer, which is not installed: pip install 'nebula-rpc[cli]'\n2"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["broker"],
        ["broker", "--print-settings"],
        ["run", "prices:app", "--http", "0"],
        ["cert", "ca"],
        ["store", "check"],
    ],
    ids=" ".join,
)
def test_command_that_needs_the_broker_says_which_extra(words: list[str], folder: Path) -> None:
    said = without(OF_THE_BROKER, COMMAND, *words, cwd=folder)

    assert re.fullmatch(
        r"nebula: this command needs \w+, which is not installed: pip install 'nebula-rpc\[broker\]'\n2", said
    )


def test_command_runs_and_calls_services_without_the_broker(broker: str, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(blocking(OF_THE_BROKER))
    env = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NEBULA_BROKER": broker}
    with running("run", "prices:app", env=env, cwd=folder):
        called = nebula("call", "prices", "quote", "symbol=ABC", "qty:=2", env=env)

    assert (called.stdout, called.stderr, called.returncode) == ("25.0\n", "", 0)


def test_missing_library_of_a_users_module_stays_the_users(folder: Path) -> None:
    (folder / "prices.py").write_text("import cryptography\n" + PRICES)

    said = without(OF_THE_BROKER, COMMAND, "run", "prices:app", cwd=folder)

    assert "nebula-rpc[" not in said
    assert "prices.py" in said
