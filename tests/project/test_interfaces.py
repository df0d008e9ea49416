"""Interfaces of the package: each has two implementations, or a reason to be one nevertheless.

An interface that a single class implements is one more place to read. It earns that place where users or
other libraries implement it, or where its module must not import the class, as lower layers and pure rooms.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]

# Reasons for fewer than two implementations of our own.
_USER = "user: applications implement it"
_PEER = "peer: it is what we use of a library's object"
# A test proves this one: the class's module imports the one of the interface, or stands in a layer above it.
_ABOVE = "above: the class stands above the interface, whose module must not import it"
_REASONS = (_USER, _PEER, _ABOVE)

# By their places in `nebula`; implementations that begin with `tests.` are for tests.
_INTERFACES: dict[str, tuple[str, ...]] = {
    # Avro and schemas
    "avro.registry.SchemaSource": ("avro.registry.Registry", _USER),
    # The broker's core
    "broker.core.destinations.queue_store.Waiting": ("broker.core.destinations.queue.Queue", _ABOVE),
    "broker.core.messages.ValueOwner": ("broker.core.subscription.Receiver", _ABOVE),
    # The broker's server. A connection is above all that schedules, measures and ends it.
    "broker.server.fairness.Scheduled": ("broker.server.connection.Connection", _ABOVE),
    "broker.server.http.HttpPeer": ("broker.server.http_connection.HttpConnection", _ABOVE),
    "broker.server.http_posts.Pieces": ("host.http_streams.HttpStream", "host.http_results._Pieces"),
    "broker.server.inflight.Measured": ("broker.server.connection.Connection", _ABOVE),
    "broker.server.inflight.MeasuredPeer": ("broker.server.peer.Peer", _ABOVE),
    "broker.server.lifetimes.Expiring": (
        "broker.server.connection.Connection",
        "broker.server.http_connection.HttpConnection",
    ),
    "broker.server.pump.Pumped": ("broker.server.connection.Connection", _ABOVE),
    "broker.server.runtime.Managed": ("broker.server.connection.Connection", _ABOVE),
    "broker.store.store.Store": (
        "broker.store.sqlite.SqliteStore",
        "tests.broker.memory_store.MemoryStore",
        "tests.broker.log_store.LogStore",
    ),
    # Programs around the broker
    "host.apps.App": ("rpc.service.responder.Responder", "host.http_calls.HttpCalls"),
    "host.http_streams.Form": ("host.http_streams._Lines", "host.http_streams._Events"),
    # Recording. The module of zstandard has one name before Python 3.14, another one since.
    "record.codecs._Unpacker": (_PEER,),
    "record.codecs._Zstd": (_PEER,),
    # Clients and services
    "rpc.client.cache.CacheStore": ("rpc.client.cache.MemoryCache", "extras.redis_cache.RedisCache"),
    "rpc.contract.context.Cancellable": ("anyio.CancelScope", _PEER),
    "rpc.contract.job_context.Job": ("rpc.jobs.local.context.LocalJob", "spark.host.context.SparkJob"),
    "rpc.contract.job_runner.JobListener": (
        "rpc.jobs.service.runner_listener.RunnerListener",
        "rpc.middleware.job_spans._EndsSpans",
    ),
    "rpc.contract.job_runner.JobMiddleware": ("rpc.middleware.tracing._TraceRequests", _USER),
    "rpc.contract.job_runner.JobRunner": (
        "rpc.jobs.local.runner.LocalRunner",
        "rpc.middleware.job_spans.TracedRunner",
        "spark.runner.SparkRunner",
    ),
    "rpc.contract.job_runner.Started": ("anyio.Event", _PEER),
    "rpc.contract.verbs.Endpoint": ("rpc.contract.verbs.Verb", "rpc.service.declared_jobs.JobEndpoint"),
    "rpc.discovery.presence.Presence": ("rpc.discovery.presence._Told", "rpc.discovery.presence._Asked"),
    "rpc.idempotency.store.IdempotencyStore": (
        "rpc.idempotency.memory.MemoryStore",
        "rpc.idempotency.sqlite.SqliteStore",
        "extras.redis_idempotency.RedisStore",
    ),
    "rpc.jobs.holder.JobClient": ("rpc.client.client.Client", _ABOVE),
    "rpc.jobs.holder.Message": (
        "stomp.client.messages.Message",
        "tests.rpc.jobs.handles.FakeMessage",
    ),
    "rpc.jobs.holder.Stomp": (
        "stomp.client.stomp_client.StompClient",
        "tests.rpc.jobs.handles.FakeStomp",
    ),
    "rpc.jobs.registry.registry.JobRegistry": (
        "rpc.jobs.registry.sqlite.SqliteJobRegistry",
        "extras.postgres_registry.PostgresJobRegistry",
    ),
    "rpc.jobs.registry.shared.ChangeListener": ("extras.postgres_listener.PostgresListener", _ABOVE),
    "rpc.jobs.registry.shared.SharedDatabase": ("extras.postgres.PostgresJobs", _ABOVE),
    "rpc.jobs.results.formats.RowWriter": (
        "rpc.jobs.results.formats._Lines",
        "rpc.jobs.results.formats._Csv",
        "rpc.jobs.results.formats._Parquet",
    ),
    # The scheduler is pure, and the verb is not.
    "rpc.jobs.scheduler.open_job.JobRules": ("rpc.jobs.verb.JobVerb", "testing.fake_jobs._FakeJob"),
    "rpc.middleware.chain.CallingMiddleware": ("rpc.middleware.tracing._TraceRequests", _USER),
    "rpc.middleware.chain.PublishingMiddleware": ("rpc.middleware.tracing._TraceCalls", _USER),
    "rpc.service.declared_jobs.Engine": ("spark.engine.Spark", _ABOVE),
    "rpc.service.subscribers.HasSubscribers": ("rpc.service.responder.Responder", _ABOVE),
    "rpc.streams.reading.Line": ("rpc.client.inbox.Inbox", _ABOVE),
    "rpc.wire.replies.Reply": ("stomp.client.messages.Message", "rpc.client.cache.KeptReply"),
    "spark.host.session.Place": ("spark.host.classic.ClassicPlace", "spark.host.connect.ConnectPlace"),
    "spark.host.session.Session": ("spark.host.classic.ClassicSession", "spark.host.connect.ConnectSession"),
    "spark.reading.decoding.Decoder": (
        "spark.reading.decoding.PolarsDecoder",
        "spark.reading.decoding.FastavroDecoder",
    ),
    # The client for any broker
    "stomp.client.link.Link": (
        "stomp.client.network_links.AsyncioLink",
        "stomp.client.network_links.AnyioLink",
        "stomp.client.websocket_link.WebSocketLink",
    ),
    "stomp.client.link.Receiver": (
        "stomp.client.connection.ClientConnection",
        "stomp.client.websocket_link.WebSocketLink",
    ),
    "stomp.client.memory_links.OpenLink": ("testing.running.RunningBroker._open_link", _ABOVE),
    "stomp.client.messages.SubscriptionConnection": ("stomp.client.connection.ClientConnection", _ABOVE),
    "waiter.Waiter": ("waiter._FutureWaiter", "waiter._EventWaiter"),
}

# The type of a function or bound method, where `Callable` cannot say its keywords or type variables. What is
# handed in is a method, a `partial` or a nested function, so there is no class that could stand here.
_FUNCTIONS = {
    "rpc.discovery.scatter.Ask",
    "rpc.jobs.registry.registry.DoOnRegistry",
    "rpc.service.serving.Connect",
    "testing.apps.Serve",
}


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((_ROOT / "nebula").rglob("*.py")):
        yield _module_of(path), ast.parse(path.read_text())


def _module_of(path: Path) -> str:
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def _interfaces() -> dict[str, ast.ClassDef]:
    """All protocols and abstract classes of the package, without `nebula.`.

    Classes on top of another abstract class are variants of it, and `asyncio.Protocol` is no interface.
    """
    return {
        f"{module}.{node.name}".removeprefix("nebula."): node
        for module, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _is_interface(node)
    }


def _is_interface(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
    is_abstract = any("ABCMeta" in ast.unparse(one) for one in node.keywords)
    return is_abstract or bool(bases & {"Protocol", "typing.Protocol", "ABC", "abc.ABC"})


@cache
def _imports() -> dict[str, set[str]]:
    """What each module imports of the package, also lazily."""
    trees = dict(_trees())
    found: dict[str, set[str]] = {}
    for module, tree in trees.items():
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        found[module] = names & trees.keys()
    return found


def _reaches(above: str, below: str) -> bool:
    seen, left = {above}, [above]
    while left:
        new = _imports()[left.pop()] - seen
        seen |= new
        left += new
    return below in seen


def _layer(module: str) -> int:
    """The line of a module's layer in the contract of `nebula`, 0 for the top one."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    (contract,) = [
        one for one in settings["tool"]["importlinter"]["contracts"] if one.get("containers") == ["nebula"]
    ]
    return next(
        number for number, line in enumerate(contract["layers"]) if module.split(".")[1] in line.split(" | ")
    )


def _resolved(place: str) -> Any:
    """The class or function of this place, in `nebula` if there is such a module."""
    first = _ROOT / "nebula" / place.partition(".")[0]
    is_ours = first.is_dir() or first.with_suffix(".py").is_file()
    parts = (f"nebula.{place}" if is_ours else place).split(".")
    for most in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:most]))
        except ModuleNotFoundError:
            continue
        for name in parts[most:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(place)


def _members(interface: Any) -> set[str]:
    """The names that an implementation needs: methods, properties and annotated attributes."""
    if not getattr(interface, "_is_protocol", False):
        return set(interface.__abstractmethods__)
    names: set[str] = set()
    for one in interface.__mro__:
        if getattr(one, "_is_protocol", False) and one.__module__ != "typing":
            names |= {
                name for name, value in vars(one).items() if callable(value) or isinstance(value, property)
            }
            names |= set(inspect.get_annotations(one))
    return {
        name for name in names if not name.startswith("_") or name in {"__call__", "__enter__", "__exit__"}
    }


def _has(implementation: Any, name: str) -> bool:
    """Whether its instances have a member: of the class, annotated, or assigned in a method."""
    if hasattr(implementation, name):
        return True
    for one in implementation.__mro__:
        if name in vars(one).get("__annotations__", {}):
            return True
        if one.__module__.startswith(("nebula", "tests")) and re.search(
            rf"\bself\.{name}(: [^=\n]+)? = |\bself\.{name}, |, self\.{name}\b", inspect.getsource(one)
        ):
            return True
    return False


def test_every_interface_is_in_the_table_and_no_other_name() -> None:
    assert set(_INTERFACES) | _FUNCTIONS == set(_interfaces())


@pytest.mark.parametrize("name", sorted(_FUNCTIONS))
def test_a_function_type_says_what_callable_cannot(name: str) -> None:
    (call,) = [one for one in _interfaces()[name].body if not isinstance(one, ast.Expr)]
    assert isinstance(call, ast.FunctionDef | ast.AsyncFunctionDef)
    assert call.name == "__call__"

    takes_names = bool(call.args.kwonlyargs or call.args.vararg or call.args.defaults)
    is_generic = re.search(r"\b_T\b", ast.unparse(call)) is not None
    assert takes_names or is_generic, f"{name} says no more than a Callable: make it an alias"


@pytest.mark.parametrize("interface", sorted(_INTERFACES))
def test_an_interface_has_two_implementations_or_a_reason(interface: str) -> None:
    row = _INTERFACES[interface]
    own = [one for one in row if one not in _REASONS]

    assert len(own) >= 2 or set(row) & set(_REASONS), (
        f"{interface} has one implementation: take the class itself or a Callable, or give a reason"
    )
    if _ABOVE in row:
        (one,) = own
        below = f"nebula.{interface.rpartition('.')[0]}"
        above = _resolved(one).__module__
        assert above != below, f"{interface} and {one} share a module: take the class itself"
        assert _reaches(above, below) or _layer(above) < _layer(below), (
            f"{below} may import {above}: take the class itself"
        )


@pytest.mark.parametrize(
    ("interface", "implementation"),
    [(name, one) for name, row in sorted(_INTERFACES.items()) for one in row if one not in _REASONS],
)
def test_an_implementation_has_all_that_its_interface_asks_for(interface: str, implementation: str) -> None:
    found = _resolved(implementation)
    asked = _members(_resolved(interface))

    assert asked
    assert not [name for name in sorted(asked) if not _has(found, name)]
