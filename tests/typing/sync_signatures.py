"""Signatures of `nebula.sync`, derived from those of the async classes.

``python -m tests.typing.test_sync_signatures`` writes them into the modules. So they are ordinary source for
type checkers, editors and `help()`. Docstrings and bodies are written by hand.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nebula.rpc.client.client import Client
from nebula.rpc.client.values import LastValue
from nebula.rpc.discovery import Presence
from nebula.rpc.jobs.handle import JobHandle
from nebula.stomp.client.subscription import Subscription
from nebula.sync import calls, client, discovery, jobs, messages

# Each class with a part of the client in it, and the async class that has the same methods.
PAIRS: Final[dict[type[Any], type[Any]]] = {
    calls.Calls: Client,
    client.Client: Client,
    jobs.JobHandle: JobHandle,
    messages.Subscription: Subscription,
    messages.LastValue: LastValue,
    discovery.Presence: Presence,
}
MODULES: Final = (calls, client, discovery, jobs, messages)

# The items of this one are messages or values; an async subscription has one class for each.
_OWN_SIGNATURE: Final = {(messages.Subscription, "snapshot")}
# The constructor's only option that cannot cross threads.
_ASYNC_ONLY: Final = re.compile(r"^ +link: .*\n", re.MULTILINE)

_RESULTS: Final = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncGenerator": "Generator",
    "Scatter": "ScatterResult",
    "Stream": "Generator",
    "Subscription": "Subscription[Message]",
    "_T": "T",
    "_U": "U",
}


class _WithoutAwait(ast.NodeTransformer):
    """What a caller gets from the async method once it has awaited it."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match ast.unparse(node.value):
            case "Awaitable":
                return node.slice
            case "Values":
                return _expression(f"Subscription[Received[{ast.unparse(node.slice)}]]")
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _expression(_RESULTS.get(node.id, node.id))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


class _Method:
    """The definitions of one method, its overloads included, as lines of their module."""

    def __init__(self, source: str, definitions: list[ast.FunctionDef | ast.AsyncFunctionDef]) -> None:
        self._lines = source.splitlines(keepends=True)
        self._definitions = definitions
        first, last = definitions[0], definitions[-1]
        self.begin = min(one.lineno for one in (first, *first.decorator_list)) - 1
        # The header's last line ends behind the result: with the colon, and comments for type checkers.
        assert last.returns is not None
        self.end = last.returns.end_lineno or 0

    def text(self) -> str:
        return "".join(self._lines[self.begin : self.end])

    def without_await(self) -> str:
        """The signature of the same method without `await`."""
        lines = self._lines.copy()
        for one in self._definitions:
            result = one.returns
            assert result is not None
            assert result.lineno == result.end_lineno, f"{one.name}: its result takes more than one line"
            line = lines[result.lineno - 1].encode()
            told = ast.unparse(_WithoutAwait().visit(result)).encode()
            lines[result.lineno - 1] = (
                line[: result.col_offset] + told + line[result.end_col_offset :]
            ).decode()
            lines[one.lineno - 1] = lines[one.lineno - 1].replace("async def", "def")
        return _ASYNC_ONLY.sub("", re.sub(r"\b_([TU])\b", r"\1", "".join(lines[self.begin : self.end])))


def _methods(owner: type[Any]) -> Iterator[tuple[str, _Method]]:
    """The methods that a class defines itself."""
    path = inspect.getsourcefile(owner)
    assert path is not None
    source = Path(path).read_text()
    found = next(
        one for one in ast.parse(source).body if isinstance(one, ast.ClassDef) and one.name == owner.__name__
    )
    groups: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for one in found.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            groups.setdefault(one.name, []).append(one)
    return ((name, _Method(source, definitions)) for name, definitions in groups.items())


def _is_derived(name: str, owner: type[Any]) -> bool:
    if name == "__init__":
        return owner is client.Client
    return not name.startswith("_") and (owner, name) not in _OWN_SIGNATURE


def derived(module: ModuleType) -> str:
    """The source of a module of `nebula.sync` with the signatures that it should have."""
    assert module.__file__ is not None
    text = Path(module.__file__).read_text()
    for owner, original in PAIRS.items():
        if owner.__module__ != module.__name__:
            continue
        known = {
            name: one
            for base in reversed(original.__mro__[:-1])
            if _is_ours(base)
            for name, one in _methods(base)
        }
        for name, method in _methods(owner):
            if name in known and _is_derived(name, owner):
                assert text.count(method.text()) == 1, f"{owner.__name__}.{name}: its definition occurs twice"
                text = text.replace(method.text(), known[name].without_await())
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", module.__file__, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _is_ours(base: type[Any]) -> bool:
    return base.__module__.startswith("nebula.")
