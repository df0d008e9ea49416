"""Calls of loggers in the code: the name, level and fields of each event, read from the syntax tree."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import nebula

PACKAGE = Path(nebula.__file__).parent

LOGGER = re.compile(r"(^|\.)_?(log|events)(\(\))?$")
LEVELS = {name: name for name in ("debug", "info", "warning", "error", "critical")} | {"exception": "error"}

# Functions that log an event whose name is an argument: by file and name, its place among the arguments, the
# level, and fields of their own.
FORWARDERS: dict[str, dict[str, tuple[int, set[str], set[str]]]] = {
    "host/operator_verbs.py": {"acting": (1, {"info"}, {"principal"})},
    "broker/operations/event_log.py": {"tell": (0, set(), set())},
}

# The engine host is too small for structlog: its names and fields are in the text, `job begun job=%s`.
TEXT = re.compile(r"(.*?)((?: \w+=%[sr])*)$")

# Fields that `logging` makes of others.
RENAMED = {"exc_info": "exception"}

# How far a field is followed through functions.
_MOST_STEPS = 6

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class LogCall:
    """One place that logs.

    Attributes:
        place: file and line.
        name: of the event. None: it is no literal.
        levels: as far as the call says them.
        fields: names that it may give.
        is_forwarded: the name is a parameter of the function around it.
    """

    place: str
    name: str | None
    levels: frozenset[str]
    fields: frozenset[str]
    is_forwarded: bool = False

    @property
    def file(self) -> str:
        """The file, relative to the package."""
        return self.place.partition(":")[0]


@functools.cache
def _trees() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    return {str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8")) for file in files}


@functools.cache
def _functions() -> dict[str, dict[str, list[Function]]]:
    """All functions of the package by name and file."""
    found: dict[str, dict[str, list[Function]]] = {}
    for file, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                found.setdefault(node.name, {}).setdefault(file, []).append(node)
    return found


@functools.cache
def log_calls() -> Sequence[LogCall]:
    """All calls of loggers in the package."""
    return [call for file, tree in _trees().items() for call in calls_in(file, tree)]


def calls_in(file: str, tree: ast.AST, around: Function | None = None) -> Iterator[LogCall]:
    """The calls of loggers in one file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield from _read(file, node, around)
        yield from calls_in(file, node, node if isinstance(node, Function) else around)


def _read(file: str, node: ast.Call, around: Function | None) -> Iterator[LogCall]:
    """The event that a call logs: several if its name is chosen between."""
    loggers = _loggers(node.func)
    own = FORWARDERS.get(file, {})
    if loggers:
        place = 1 if loggers[0].attr == "log" else 0
        levels = {LEVELS[logger.attr] for logger in loggers if logger.attr in LEVELS}
        fields = {"exception"} if any(logger.attr == "exception" for logger in loggers) else set()
    elif isinstance(node.func, ast.Name) and node.func.id in own:
        place, levels, more = own[node.func.id]
        fields = more | _yielded(node, around)
    else:
        return
    for keyword in node.keywords:
        fields |= {keyword.arg} if keyword.arg else _keys(keyword.value, file, around)
    for logger in loggers:
        fields |= _bound(logger.value, file, around)
    told = frozenset(RENAMED.get(field, field) for field in fields)
    name, where = node.args[place], f"{file}:{node.lineno}"
    names = [name.body, name.orelse] if isinstance(name, ast.IfExp) else [name]
    for one in names:
        text = one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else None
        if text is not None and (split := TEXT.fullmatch(text)):
            text, told = split[1], told | set(re.findall(r"(\w+)=%", split[2]))
        yield LogCall(where, text, frozenset(levels), told, _is_parameter(one, around))


def _loggers(func: ast.expr) -> Sequence[ast.Attribute]:
    """The methods of loggers that a call may go to: two for `(log.info if … else log.warning)(…)`."""
    if isinstance(func, ast.IfExp):
        return [*_loggers(func.body), *_loggers(func.orelse)]
    if not isinstance(func, ast.Attribute) or func.attr not in {*LEVELS, "log"}:
        return []
    is_logger = LOGGER.search(ast.unparse(func.value)) or "getLogger" in ast.unparse(func.value)
    return [func] if is_logger else []


def _is_parameter(name: ast.expr, around: Function | None) -> bool:
    return (
        around is not None
        and isinstance(name, ast.Name)
        and name.id in {one.arg for one in ast.walk(around.args) if isinstance(one, ast.arg)}
    )


def _yielded(node: ast.Call, around: Function | None) -> set[str]:
    """Fields that are set in the block: `with acting(…) as known: known["count"] = …`."""
    items = (
        [item for inner in ast.walk(around) if isinstance(inner, ast.With) for item in inner.items]
        if around
        else []
    )
    names = [item.optional_vars for item in items if item.context_expr is node]
    return set().union(*(_stored(name.id, around) for name in names if isinstance(name, ast.Name)))


def _bound(logger: ast.expr, file: str, around: Function | None) -> set[str]:
    """Fields that were bound to a local logger: `log = _log.bind(…)`."""
    found: set[str] = set()
    for value in _assigned(logger, around):
        # A logger is bound further on its way: `log = log.bind(…)`.
        for node in ast.walk(value) if value.lineno < logger.lineno else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "bind"
            ):
                for keyword in node.keywords:
                    found |= {keyword.arg} if keyword.arg else _keys(keyword.value, file, around)
    return found


def _assigned(name: ast.expr, around: Function | None) -> Iterator[ast.expr]:
    """What a function assigns to a name."""
    if around is None or not isinstance(name, ast.Name):
        return
    for node in ast.walk(around):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(one, ast.Name) and one.id == name.id for one in targets):
            yield node.value


def _keys(value: ast.expr, file: str, around: Function | None, depth: int = 0) -> set[str]:
    """The keys of what is unpacked with `**`: of dicts, of names given to them, and of functions' results."""
    further: Sequence[ast.expr] = ()
    found: set[str] = set()
    match value:
        case ast.Dict():
            found = {str(key.value) for key in value.keys if isinstance(key, ast.Constant)}
            further = [one for key, one in zip(value.keys, value.values, strict=True) if key is None]
        case ast.Name():
            found, further = _stored(value.id, around), list(_assigned(value, around))
        case ast.IfExp():
            further = [value.body, value.orelse]
        case ast.BinOp():
            further = [value.left, value.right]
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=items)))]):
            further = [items]
        case ast.Call():
            further = [one for one in value.args if isinstance(one, ast.Name | ast.Dict)]
    if depth > _MOST_STEPS:
        return found
    for one in further:
        found |= _keys(one, file, around, depth + 1)
    for function in _called(value, file):
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                found |= _keys(node.value, file, function, depth + 1)
    return found


def _called(node: ast.AST, file: str) -> Sequence[Function]:
    """The functions or properties of the package that an expression may mean, those of its own file first."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.Attribute(attr=name):
            found = _functions().get(name, {})
            return found.get(_home(name, file)) or [one for functions in found.values() for one in functions]
    return []


@functools.cache
def _home(name: str, file: str) -> str:
    """The file that a name is imported from, or its own file."""
    for node in ast.walk(_trees()[file]) if file in _trees() else ():
        if isinstance(node, ast.ImportFrom) and node.module and name in {one.name for one in node.names}:
            return node.module.removeprefix("nebula.").replace(".", "/") + ".py"
    return file


def _stored(name: str, around: Function | None) -> set[str]:
    """Keys that are set one by one: `facts["count"] = …`."""
    nodes = ast.walk(around) if around is not None else ()
    return {
        str(node.slice.value)
        for node in nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == name
        and isinstance(node.slice, ast.Constant)
    }
