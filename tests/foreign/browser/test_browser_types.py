"""The types of `nebula.js`, by TypeScript: a page compiles with them, and they say what the module does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from nebula.browser import MODULE, TYPES
from tests.foreign.install import install_node_modules, install_program
from tests.foreign.judges.trials import HERE as JUDGES

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_OPTIONS = {
    "strict": True,
    "noEmit": True,
    "target": "ES2022",
    "module": "ESNext",
    "moduleResolution": "bundler",
    "lib": ["ES2023", "DOM"],
    "types": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as a user has it: the module, its types, and what npm has installed."""
    for program, package in {"node": "nodejs", "npm": "npm"}.items():
        install_program(program, package)
    install_node_modules(JUDGES / "js")
    path = tmp_path_factory.mktemp("page")
    (path / "node_modules").symlink_to(JUDGES / "js" / "node_modules")
    for file in (MODULE, TYPES, _HERE / "page.ts"):
        (path / file.name).write_text(file.read_text())
    return path


def compiled(folder: Path, *files: str, **options: object) -> tuple[int, str]:
    """How TypeScript ends, and what it has to say."""
    project = {"compilerOptions": _OPTIONS | options, "files": files}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    command = ["node", "node_modules/typescript/bin/tsc", "--project", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_page_compiles_and_its_mistakes_are_found(folder: Path) -> None:
    assert compiled(folder, "page.ts") == (0, "")

    (folder / "other.ts").write_text((_HERE / "page.ts").read_text().replace("@ts-expect-error", "wrong"))
    status, told = compiled(folder, "other.ts")
    assert status != 0
    assert told.count(": error TS") == (_HERE / "page.ts").read_text().count("@ts-expect-error")


def test_module_has_what_its_types_say_and_nothing_else(folder: Path) -> None:
    # Of the module itself, as JavaScript: each class is to fit the one of the types, and the other way round.
    (folder / "module.js").write_text(MODULE.read_text())
    names = ("Nebula", "Job", "NebulaError")
    lines = ['import * as module from "./module.js";', 'import * as types from "./nebula.js";']
    for name in names:
        lines += [
            f"export const {name}There: Keys<types.{name}> = {{}} as Keys<module.{name}>;",
            f"export const {name}Back: Keys<module.{name}> = {{}} as Keys<types.{name}>;",
        ]
    lines.append("type Keys<T> = { [K in keyof T]: K };")
    lines += [
        "export const exports: Record<keyof typeof module, 1> = {} as Record<keyof typeof types, 1>;",
        "export const back: Record<keyof typeof types, 1> = {} as Record<keyof typeof module, 1>;",
    ]
    (folder / "same.ts").write_text("\n".join(lines))

    assert compiled(folder, "same.ts", allowJs=True) == (0, "")
    for one, other in (("  stream<T", "  streams<T"), ("readonly retryable", "readonly retried")):
        (folder / "nebula.d.ts").write_text(TYPES.read_text().replace(one, other))
        status, told = compiled(folder, "same.ts", allowJs=True)
        assert status != 0
        assert "same.ts(" in told
