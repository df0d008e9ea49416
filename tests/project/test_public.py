"""The public names: that they are all there, and that a name costs no more than what it needs."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nebula

PACKAGES = ["nebula"] + [one.name for one in pkgutil.walk_packages(nebula.__path__, "nebula.") if one.ispkg]
WITH_NAMES = [name for name in PACKAGES if hasattr(importlib.import_module(name), "__all__")]
LAZY = [name for name in WITH_NAMES if hasattr(importlib.import_module(name), "__getattr__")]


def declared_for_type_checkers(module: ModuleType) -> set[str]:
    """What the module imports for type checkers: all that they know of a package that loads lazily."""
    names: set[str] = set()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                names |= {alias.asname or alias.name for alias in line.names}
    return names


def modules_after(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after a statement, but for the version, which is one line."""
    program = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    return set(ended.stdout.split()) - {"nebula.version"}


def test_the_packages_that_load_lazily_are_these() -> None:
    assert {
        "nebula",
        "nebula.record",
        "nebula.rpc",
        "nebula.rpc.jobs",
        "nebula.spark",
        "nebula.spark.reading",
        "nebula.testing",
    } == set(LAZY)


@pytest.mark.parametrize("package", WITH_NAMES)
def test_every_public_name_resolves_and_is_itself_public(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)

        assert not name.startswith("_")
        assert value is not None or name == "OMITTED"
        if inspect.isclass(value):
            assert value.__name__ == name


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_exactly_the_public_names(package: str) -> None:
    module = importlib.import_module(package)

    assert declared_for_type_checkers(module) == set(module.__all__)
    assert list(module.__all__) == sorted(module.__all__)


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - set(WITH_NAMES)))
def test_package_without_a_list_has_no_names_of_its_own(package: str) -> None:
    module = importlib.import_module(package)
    own = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }

    assert own == set()


@pytest.mark.parametrize("package", WITH_NAMES)
def test_name_that_is_not_there_is_an_attribute_error_that_says_so(package: str) -> None:
    module = importlib.import_module(package)

    with pytest.raises(AttributeError, match=rf"'{package}' has no attribute 'nonsense'"):
        _ = module.nonsense


def test_star_import_brings_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from nebula import *", names)

    assert set(nebula.__all__) <= set(names)


def test_dir_shows_the_public_names() -> None:
    assert set(nebula.__all__) <= set(dir(nebula))


@pytest.mark.parametrize(
    ("name", "home"),
    [("sync.Client", "nebula.sync.client"), ("testing.TestClient", "nebula.testing.app_client")],
)
def test_module_is_an_attribute_without_being_imported(name: str, home: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"import nebula; print(nebula.{name}.__module__)"],
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip

    assert ended.stdout.strip() == home


def raised_by(owner: type) -> set[str]:
    """The errors that the docstrings of a public class and its methods name, without Python's own."""
    names: set[str] = set()
    own = [each for each in owner.__mro__ if each.__module__.startswith("nebula.")]
    members = (value for each in own for name, value in vars(each).items() if not name.startswith("__"))
    for one in [owner, *members]:
        _, _, section = (inspect.getdoc(one) or "").partition("Raises:\n")
        for line in re.findall(r"^ {4}(\w+(?:, \w+)*):", section.split("\n\n")[0], re.MULTILINE):
            names |= set(line.split(", "))
    return {name for name in names if not hasattr(builtins, name)}


PUBLIC_CLASSES = [
    value for name in nebula.__all__ if inspect.isclass(value := getattr(nebula, name)) and raised_by(value)
]


@pytest.mark.parametrize("owner", PUBLIC_CLASSES)
def test_every_error_that_a_public_class_documents_is_public(owner: type) -> None:
    assert raised_by(owner) <= set(nebula.__all__)


def test_documented_errors_are_found_at_all() -> None:
    assert {"RemoteError", "NoResponder", "UnexpectedReply"} <= raised_by(nebula.Client)
    assert nebula.Responder in PUBLIC_CLASSES


def test_importing_nebula_loads_nothing_heavy() -> None:
    loaded = modules_after("import nebula")

    heavy = {"anyio", "asyncio", "fastavro", "pydantic", "pyspark", "rich", "structlog", "typer", "uvloop"}
    assert not loaded & heavy
    assert {name for name in loaded if name.startswith("nebula.")} == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import nebula.rpc.client.client",
        "from nebula import Client",
        "from nebula import Responder",
        "from nebula import Spark",
        "import nebula; nebula.sync",
    ],
)
def test_client_or_service_loads_no_broker_and_no_spark(statement: str) -> None:
    loaded = modules_after(statement)

    foreign = ("nebula.broker", "nebula.host", "nebula.cli", "pyspark", "pandas", "typer", "uvloop")
    assert [name for name in loaded if name.startswith(foreign)] == []


def test_broker_loads_no_client() -> None:
    loaded = modules_after("import nebula.broker.server.server")

    foreign = ("nebula.rpc", "nebula.spark", "nebula.stomp.client", "anyio", "pydantic")
    assert [name for name in loaded if name.startswith(foreign)] == []


def test_pytest_plugin_loads_nothing_of_ours_but_itself() -> None:
    loaded = modules_after("import nebula.testing.plugin")

    ours = {name for name in loaded if name.startswith("nebula.")}
    assert ours == {"nebula.testing", "nebula.testing.plugin"}
    assert not loaded & {"pydantic", "structlog", "uvloop"}


def test_errors_load_nothing_of_ours() -> None:
    loaded = modules_after("from nebula import NoResponder")

    assert {name for name in loaded if name.startswith("nebula.")} == {"nebula.errors"}
