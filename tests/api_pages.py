"""Writes the reference of the public names from their docstrings, a page for each package.

Griffe reads the sources and the sections of docstrings; here is what is public, and how it looks.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import griffe

from nebula.rpc.errors import CODES

ROOT: Final = Path(__file__).parent.parent
FOLDER: Final = ROOT / "docs" / "reference" / "api"

# A package lists its public names itself; of these two the modules are what is imported.
NAMES: Final[dict[str, dict[str, Sequence[str]]]] = {
    "nebula": {"nebula": ()},
    "nebula.rpc": {
        "nebula.rpc": (),
        "nebula.rpc.middleware.chain": ("Call", "CallMiddleware", "CallNext", "MakeCall", "Middleware"),
        "nebula.rpc.wire.reply_body": ("ReplyBody",),
        "nebula.rpc.middleware.limits": ("limit_requests",),
        "nebula.rpc.middleware.logs": ("log_calls", "log_requests"),
        "nebula.rpc.middleware.metrics": ("MeasureCalls", "MeasureRequests"),
        "nebula.rpc.middleware.tracing": ("trace_calls", "trace_job", "trace_requests"),
        "nebula.rpc.contract.call_options": ("CallOptions",),
        "nebula.rpc.contract.start_options": ("StartOptions",),
        "nebula.rpc.jobs": ("JobLimits", "JobOutput", "LogLine"),
        "nebula.rpc.jobs.verb": ("JobVerb",),
        "nebula.rpc.idempotency": (),
        "nebula.extras.redis_idempotency": ("RedisStore",),
        "nebula.rpc.client.cache": ("CacheStore", "KeptReply", "MemoryCache"),
        "nebula.extras.redis_cache": ("RedisCache",),
        "nebula.rpc.streams.reading": ("Stream",),
        "nebula.rpc.client.values": ("LastValue",),
        "nebula.rpc.client.typed_messages": ("Received", "Values"),
        "nebula.rpc.discovery": (),
        "nebula.rpc.errors": ("CODES", "ErrorCode"),
        "nebula.rpc.wire.deadlines": ("AMBIENT",),
    },
    "nebula.record": {"nebula.record": ()},
    "nebula.spark.reading": {"nebula.spark.reading": ()},
    "nebula.stomp": {
        "nebula.stomp.client": ("StompClient", "Receipt", "PushSubscription", "Subscription", "Transaction"),
        "nebula.stomp.client.messages": ("SubscribeOptions",),
        "nebula.stomp.client.link": ("Link", "Receiver"),
        "nebula.stomp.codec": ("FrameParser", "serialize"),
        "nebula.stomp.frames": ("Frame", "FrameLimits"),
        "nebula.stomp.dialects": ("Dialect", "negotiate"),
        "nebula.stomp.client_protocol": ("ClientProtocol",),
    },
    "nebula.sync": {"nebula.sync": ()},
    "nebula.testing": {"nebula.testing": ()},
}

_LONGEST: Final = 100

_TITLES: Final = {"parameters": "Parameters", "attributes": "Attributes", "raises": "Raises"}

# What is passed to a `with`, and not awaited.
_MANAGERS: Final = {"asynccontextmanager": "async with ", "contextmanager": "with "}


class Reference:
    """The sources of the package, read once."""

    def __init__(self) -> None:
        options: griffe.GoogleOptions = {"warnings": False}
        self._package = griffe.load(
            "nebula", search_paths=[str(ROOT)], docstring_parser="google", docstring_options=options
        )

    def things(self, package: str) -> Iterator[tuple[str, griffe.Object]]:
        """The public names of a package, each with the module that it is imported from."""
        for module, listed in NAMES[package].items():
            for name in listed or importlib.import_module(module).__all__:
                found = _itself(self._package[f"{module}.{name}".removeprefix("nebula.")])
                if not found.is_module:
                    yield module, found

    def page(self, package: str) -> str:
        """A package's page."""
        things = list(self.things(package))
        rows = (
            f"| [`{thing.name}`](#{thing.name.lower()}) | {_first_sentence(thing)} |" for _, thing in things
        )
        module = self._package if package == "nebula" else self._package[package.removeprefix("nebula.")]
        lines = [
            f"# `{package}`\n",
            "Written from the docstrings: `python -m tests.docs.test_api_pages` renews it.\n",
            f"{_text(_itself(module))}\n",
            *("| name | |", "| --- | --- |"),
            *rows,
            *(line for module, thing in things for line in _entry(module, thing)),
        ]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def members(owner: griffe.Object) -> Iterator[griffe.Object]:
    """The public methods and properties of a class, its own first, inherited ones of ours behind them."""
    if owner.is_class:
        found = {**owner.members, **owner.inherited_members}
        for name, member in found.items():
            thing = _itself(member)
            is_public = name == "__call__" or not name.startswith("_")
            if is_public and (thing.is_function or "property" in thing.labels):
                yield thing


def _itself(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _text(thing: griffe.Object) -> str:
    return "" if thing.docstring is None else thing.docstring.value


def _entry(module: str, thing: griffe.Object) -> Iterator[str]:
    yield f"\n## {thing.name}\n"
    yield f"`from {module} import {thing.name}`\n"
    yield from _told(thing, "\n".join(_heads(thing)))
    yield from _values(thing)
    if thing.name == "CODES":
        yield from ("| code | retryable | |", "| --- | --- | --- |")
        yield from (
            f"| `{one.code}` | {'yes' * one.is_retryable} | {one.meaning} |" for one in CODES.values()
        )
    for member in members(thing):
        yield f"\n### {thing.name}.{member.name}\n"
        yield from _told(member, "\n".join(_heads(member)))


def _told(thing: griffe.Object, head: str) -> Iterator[str]:
    if head:
        yield f"```python\n{head}\n```\n"
    yield from _sections(thing.docstring.parsed if thing.docstring is not None else ())


def _heads(thing: griffe.Object) -> Iterator[str]:
    """How it is called, or what it is."""
    if isinstance(thing, griffe.Class):
        bases = ", ".join(str(base) for base in thing.bases if _is_of_interest(base))
        is_made = "__init__" in thing.all_members
        if bases or not is_made:
            yield f"class {thing.name}({bases})" if bases else f"class {thing.name}"
        if is_made:
            yield _folded(thing.signature())
    elif isinstance(thing, griffe.Function):
        for each in thing.overloads or [thing]:
            yield _prefix(thing) + _folded(each.signature())
    elif isinstance(thing, griffe.Attribute):
        is_alias = str(thing.annotation) == "TypeAlias"
        value = str(thing.value).replace("'", '"')  # as the formatter has it, which looks at pages, too
        yield f"{thing.name} = {value}" if is_alias else f"{thing.name}: {thing.annotation}"


def _is_of_interest(base: Any) -> bool:
    """A class that its reader knows: of Python, or an error of ours. Others are how we share code."""
    path = str(getattr(base, "canonical_path", base))
    return path.startswith("nebula.errors.") or not path.startswith(("nebula.", "typing.Generic", "abc.ABC"))


def _prefix(function: griffe.Function) -> str:
    names = [decorator.callable_path.rpartition(".")[2] for decorator in function.decorators]
    found = next((_MANAGERS[name] for name in names if name in _MANAGERS), None)
    is_async = any("async" in one.labels for one in (function, *(function.overloads or ())))
    return found or ("await " if is_async else "")


def _folded(signature: str) -> str:
    """A signature on one line if it is short, else with a parameter on each."""
    if len(signature) <= _LONGEST:
        return signature
    name, _, rest = signature.partition("(")
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(rest):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            parts.append(rest[begin:place])
            return f"{name}(\n" + "".join(f"    {part.strip()},\n" for part in parts) + rest[place:]
        if character == "," and not depth:
            parts.append(rest[begin:place])
            begin = place + 1
    raise ValueError(signature)


def _sections(sections: Sequence[griffe.DocstringSection]) -> Iterator[str]:
    for section in sections:
        kind = section.kind.value
        if kind == "text":
            yield f"{section.value}\n"
        elif kind in _TITLES:
            yield f"**{_TITLES[kind]}**\n"
            yield from (f"- {_name(one)}: {_line(one.description)}" for one in section.value)
            yield ""
        elif kind in ("returns", "yields"):
            yield f"**Returns** {' '.join(_line(one.description) for one in section.value)}\n"
        else:
            raise ValueError(f"a docstring has a section {kind!r}: {section.value}")


def _values(thing: griffe.Object) -> Iterator[str]:
    """The members of an enumeration, and what else a class says of its attributes one by one."""
    if not isinstance(thing, griffe.Class):
        return
    is_enum = any("Enum" in str(base) for base in thing.bases)
    for one in map(_itself, thing.members.values()):
        if not isinstance(one, griffe.Attribute) or "property" in one.labels or one.name.startswith("_"):
            continue
        if is_enum or one.docstring is not None:
            yield f"- `{one.name}`{f' = `{one.value}`' if is_enum else ''}: {_line(_text(one))}".rstrip(": ")
    yield ""


def _name(one: Any) -> str:
    # `Raises` may name several that mean the same.
    found = getattr(one, "name", None) or str(one.annotation)
    return ", ".join(f"`{part.strip()}`" for part in found.strip("()").split(","))


def _line(text: str) -> str:
    return " ".join(text.split())


def _first_sentence(thing: griffe.Object) -> str:
    text = _line(_text(thing).split("\n\n")[0])
    found = re.match(r"(.+?\.)(?: |$)", text)
    return (found[1] if found else text.rstrip(":")).replace("|", "\\|")
