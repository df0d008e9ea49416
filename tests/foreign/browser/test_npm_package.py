"""The npm package in an empty folder: typed calls compile with it, and run in Node with a broker of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nebula.version import __version__
from tests.cli.programs import running
from tests.foreign.install import install_program
from tests.foreign.judges.trials import HERE as JUDGES

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_OPTIONS = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "exactOptionalPropertyTypes": True,
    # What Node's own reader of TypeScript takes: types that can be left out, and nothing else.
    "erasableSyntaxOnly": True,
    "isolatedModules": True,
    "target": "ES2022",
    "module": "NodeNext",
    "lib": ["ES2023", "DOM"],
    "types": [],
    "outDir": "out",
}
# Before version 22 Node has no WebSocket of its own.
_RUN = 'import { WebSocket } from "ws";\nglobalThis.WebSocket = WebSocket;\nawait import("./out/typed.js");\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has installed the package, with what the tests of other programs use."""
    for program, package in {"node": "nodejs", "npm": "npm"}.items():
        install_program(program, package)
    path = tmp_path_factory.mktemp("project")
    made = subprocess.run(
        [sys.executable, _ROOT / ".ci/npm-package", path], capture_output=True, text=True, check=True
    )
    locked = json.loads((JUDGES / "js/package-lock.json").read_text())["packages"]
    wanted = [
        f"{name}@{locked[f'node_modules/{name}']['version']}"
        for name in ("@stomp/stompjs", "ws", "typescript")
    ]
    (path / "package.json").write_text('{"type": "module", "private": true}')
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", made.stdout.strip(), *wanted],
        cwd=path,
        check=True,
    )
    (path / "depot.ts").write_text((_ROOT / "tests/codegen/depot.ts").read_text())
    (path / "typed.ts").write_text((_HERE / "typed.ts").read_text())
    (path / "run.js").write_text(_RUN)
    return path


def compiled(folder: Path, **options: object) -> tuple[int, str]:
    """How TypeScript ends, and what it has to say."""
    project = {"compilerOptions": _OPTIONS | options, "files": ["typed.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc", "--project", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_package_has_our_version_and_types(folder: Path) -> None:
    package = json.loads((folder / "node_modules/@nebula-rpc/client/package.json").read_text())

    assert package["version"] == __version__
    assert {file.name for file in (folder / "node_modules/@nebula-rpc/client").iterdir()} == {
        "LICENSE", "README.md", "nebula.d.ts", "nebula.js", "package.json"
    }  # fmt: skip


def test_typed_calls_compile_and_wrong_ones_do_not(folder: Path) -> None:
    assert compiled(folder, noEmit=True) == (0, "")

    # Each of the wrong calls is an error, once nothing says that it is expected.
    text = (folder / "typed.ts").read_text()
    (folder / "typed.ts").write_text(text.replace("@ts-expect-error", "wrong"))
    ended, told = compiled(folder, noEmit=True)
    (folder / "typed.ts").write_text(text)
    assert ended != 0
    wrong = [at for at, line in enumerate(text.split("\n"), 1) if "@ts-expect-error" in line]
    assert {
        int(line.split("(")[1].split(",")[0]) - 1 for line in told.split("\n") if ": error" in line
    } == set(wrong)


def test_typed_calls_run_in_node(folder: Path) -> None:
    assert compiled(folder) == (0, "")
    words = ("broker", "--port", "0", "--http", "0", "--store", "memory", "--app", "tests.rpc.depot:app")
    with running(*words, cwd=_ROOT) as (process, _):
        assert process.stdout is not None
        urls = (json.loads(line)["url"] for line in iter(process.stdout.readline, ""))
        port = urlsplit(next(url for url in urls if url.startswith("ws:"))).port
        done = subprocess.run(
            ["node", "run.js", str(port)], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )

    assert (done.returncode, done.stderr) == (0, "")
    assert dict(map(json.loads, done.stdout.splitlines())) == {
        "decimals are strings": "-3.00",
        "models": ["4.50", "buy", {"kind": "cash", "coins": 2}, None, [], 0, None],
        "models again": "4.50",
        "unions": "7",
        "tuples": [{"fast": True}, "00000000-0000-0000-0000-000000000003"],
        "maps": 1,
        "arrays as a whole": [[2, 0], [1, 0]],
        "nothing": None,
        "streams": [5, 6, 7],
        "jobs": ["done", [0, 1]],
        "parameters that are left out": 2,
        "errors": {"left": 100},
    }
