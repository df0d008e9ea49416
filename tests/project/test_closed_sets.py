"""Choices over closed sets: each `match` over an enum, a union or a `Literal` of ours ends in `assert_never`.

So a new member of a set is an error of the type checker in each place that has to decide about it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_PACKAGE: Final = Path(__file__).parents[2] / "nebula"

# Functions that take some members themselves and hand each other one on, with the function that decides.
_HAND_ON: Final = {
    "spark/engine_process.py: _note": "spark/job_table.py: hear",
    "spark/isolated.py: _hear": "spark/job_table.py: hear",
    "spark/runner.py: _hear": "spark/job_table.py: hear",
}


class _ClosedSets:
    """The members of each enum, union of classes and `Literal` alias that the modules define."""

    def __init__(self, modules: list[ast.Module]) -> None:
        found = [one for module in modules for one in module.body if isinstance(one, ast.ClassDef)]
        self.enums = {one.name for one in found if _is_enum(one)}
        classes = {one.name for one in found}
        self._unions: dict[str, set[str]] = {}
        self._literals: list[set[str]] = []
        for module in modules:
            for name, value in _aliases(module):
                members = self._members(value)
                if len(members) > 1 and members <= classes | {"None"}:
                    self._unions[name] = members - {"None"}
                if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal":
                    self._literals.append({ast.unparse(one) for one in _items(value.slice)})

    def _members(self, value: ast.expr) -> set[str]:
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
            return self._members(value.left) | self._members(value.right)
        name = ast.unparse(value)
        return self._unions.get(name, {name})

    def hold(self, patterns: list[ast.pattern]) -> bool:
        """Whether the patterns choose among members of one set."""
        kinds = {kind for pattern in patterns for kind in _kinds(pattern)} - {"None"}
        if not kinds or "" in kinds:
            return False
        if all(kind.partition(".")[0] in self.enums for kind in kinds):
            return True
        # Two sets may share a class, as errors do: some union has to hold all of them.
        sets = [*self._unions.values(), *self._literals]
        return len(kinds) > 1 and any(kinds <= one for one in sets)


def _is_enum(one: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("Enum") for base in one.bases)


def _aliases(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _items(slice_: ast.expr) -> list[ast.expr]:
    return slice_.elts if isinstance(slice_, ast.Tuple) else [slice_]


def _kinds(pattern: ast.pattern) -> Iterator[str]:
    """The classes, enum members or texts that a pattern takes; the empty text for any other form."""
    match pattern:
        case ast.MatchOr():
            for one in pattern.patterns:
                yield from _kinds(one)
        case ast.MatchAs() if pattern.pattern is not None:
            yield from _kinds(pattern.pattern)
        case ast.MatchClass():
            yield ast.unparse(pattern.cls).rpartition(".")[2]
        case ast.MatchValue():
            yield ast.unparse(pattern.value)
        case ast.MatchSingleton():
            yield str(pattern.value)
        case _:
            yield ""


def _is_closed(last: ast.match_case) -> bool:
    return (
        isinstance(last.pattern, ast.MatchAs)
        and last.guard is None
        and ast.unparse(last.body[0]).startswith("assert_never(")
    )


def _takes_anything(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _matches(module: ast.Module) -> Iterator[tuple[str, ast.Match]]:
    """Each `match` of a module, with the innermost function around it."""
    functions = [one for one in ast.walk(module) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    within = {node: one.name for one in functions for node in ast.walk(one) if isinstance(node, ast.Match)}
    yield from ((function, node) for node, function in within.items())


def _open_ended(sources: dict[str, str]) -> set[str]:
    """The functions with a `match` over a closed set that does not end in `assert_never`."""
    modules = {path: ast.parse(source) for path, source in sources.items()}
    sets = _ClosedSets([*modules.values()])
    return {
        f"{path}: {function}"
        for path, module in modules.items()
        if "match " in sources[path]
        for function, node in _matches(module)
        if not _is_closed(node.cases[-1])
        and sets.hold([case.pattern for case in node.cases if not _takes_anything(case)])
    }


def test_each_match_over_a_closed_set_ends_in_assert_never() -> None:
    sources = {
        path.relative_to(_PACKAGE).as_posix(): path.read_text() for path in sorted(_PACKAGE.rglob("*.py"))
    }

    open_ended = _open_ended(sources)

    assert open_ended == _HAND_ON.keys()
    assert not open_ended & {*_HAND_ON.values()}


_SETS = """
class Color(StrEnum):
    RED = "red"
    BLUE = "blue"
class Start: ...
class Stop: ...
class Other: ...
Command = Start | Stop
Word: TypeAlias = Literal["on", "off"]
"""


@pytest.mark.parametrize(
    "cases",
    ["case Color.RED: pass", "case Start(): pass\n  case Stop(): pass", "case 'on' | 'off': pass"],
    ids=["enum", "union", "literal"],
)
def test_match_over_a_closed_set_without_assert_never_is_found(cases: str) -> None:
    plain = f"{_SETS}\ndef choose(it):\n match it:\n  {cases}"

    assert _open_ended({"a.py": plain}) == {"a.py: choose"}
    assert _open_ended({"a.py": f"{plain}\n  case _: pass"}) == {"a.py: choose"}
    assert _open_ended({"a.py": f"{plain}\n  case _: assert_never(it)"}) == set()


def test_match_over_an_open_set_may_have_any_end() -> None:
    cases = "case Other(): pass\n  case Stop(): pass\n  case _: pass"

    assert _open_ended({"a.py": f"{_SETS}\ndef choose(it):\n match it:\n  {cases}"}) == set()
