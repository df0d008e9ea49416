"""The broker's own verbs, served at `/queue/nebula.broker` by a responder in its process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Field

from nebula.avro import Registry, Schema
from nebula.broker.assembly import Assembly
from nebula.broker.operations.flows import Flows
from nebula.broker.operations.history import History
from nebula.broker.operations.views import FlowRow, HistorySample
from nebula.broker.server.server import Server
from nebula.broker.settings import DEFAULT_FILE, SettingsSource
from nebula.broker.store.sqlite import SqliteStore
from nebula.errors import AvroError, SettingsError, StoreError
from nebula.headers import BROKER_QUEUE
from nebula.host.checking_verbs import add_checking_verbs
from nebula.host.operator_verbs import Desk, Limit, add_operator_verbs
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.settings import WrongSettings

# The principal of what is hosted is `app:` and its name; this one alone may serve reserved queues.
# The core's access rules have the same principal, `BROKERS_OWN`.
NAME = "nebula"

_RELOAD_SECONDS = 10.0

_log = get_logger("nebula.host")


class OwnRights(BaseModel):
    """Who a caller is to the broker, and which of the broker's verbs it may call.

    `value_prefixes` are those of last-value destinations, by which a client tells them from topics.
    `may_publish` and `may_subscribe` are about the destination that it asked for, and null without one.
    """

    principal: str
    verbs: list[str]
    value_prefixes: list[str]
    may_publish: bool | None
    may_subscribe: bool | None


class SchemaEntry(BaseModel):
    """A schema, as `schema.list` names it."""

    name: str
    fingerprint: str


class SettingsProblem(BaseModel):
    """A mistake in settings: where (`file`, a variable or a flag), and what is wrong, without the value."""

    source: str
    problem: str


class SettingsCheck(BaseModel):
    """What new settings would change: the names of those that a reload takes, and those for a restart."""

    reload: list[str]
    restart: list[str]
    problems: list[SettingsProblem]


# Bounds the time that the check of a text takes.
SettingsText: TypeAlias = Annotated[str, Field(max_length=100_000)]


class CopyMade(BaseModel):
    """A copy of the store: how large it is, and its name in the folder of copies."""

    name: str
    size_bytes: int


# The name of a file in one folder: it cannot lead out of the folder, nor be a name of SQLite's own files.
CopyName: TypeAlias = Annotated[
    str, Field(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*[A-Za-z0-9]$")
]


class SchemaBinding(BaseModel):
    """What the bodies of a destination must be: of the type `name`, in an `envelope` or `bare`."""

    name: str
    content: str


class SchemaText(SchemaEntry):
    """A schema with its definition."""

    definition: Any


def broker_responder(assembly: Assembly) -> Responder:
    """The responder of a broker that was assembled from settings. Host it with the others."""
    # A longer reply would end the connection of this service, and with it the broker.
    most = assembly.server.limits.max_body_bytes
    responder = Responder(NAME, queues=[BROKER_QUEUE], max_reply_bytes=most)
    may_call = _permission_check(assembly)

    @responder.verb(name="rights.reload")
    def reload(request: Request) -> None:
        """Read settings, certificates, deny lists, users and rights again, as SIGHUP does."""
        may_call(request, "rights.reload")
        try:
            # Verbs run in threads, and a reload runs on the broker's loop, between two inputs.
            asyncio.run_coroutine_threadsafe(_reload(assembly), assembly.server.runtime.loop).result(
                _RELOAD_SECONDS
            )
        except SettingsError as error:
            # Paths of this machine are for its operator only.
            _log.warning("reload failed", reason=str(error))
            raise VerbError("bad-file", "a file cannot be used; the broker's log says which") from error

    _add_own_rights(responder, assembly)
    _add_history(responder, assembly.history, may_call)
    if assembly.server.flows is not None:
        _add_flows(responder, assembly.server, assembly.server.flows, may_call)
    if assembly.source is not None:
        _add_check(responder, assembly, assembly.source, may_call)
    add_operator_verbs(responder, assembly.server, may_call)
    add_checking_verbs(responder, assembly, may_call)
    if assembly.store is not None and assembly.backups is not None:
        _add_backup(responder, assembly.store, assembly.backups, may_call)
    if assembly.registry is not None:
        _add_schemas(responder, assembly.registry, may_call)
        _add_bindings(responder, assembly)
    else:
        _refuse_schemas(responder)
    return responder


def _add_own_rights(responder: Responder, assembly: Assembly) -> None:
    @responder.verb(name="rights.mine")
    def mine(request: Request, destination: str | None = None) -> OwnRights:
        """The caller's principal, the verbs here that it may call, and what it may do with a destination."""
        statistics = responder.statistics()
        # None: the message has no `sender`, see `_permission_check`; and no verb is called before the start.
        if request.principal is None or statistics is None:
            raise VerbError("not-allowed", "an unknown principal has no rights")
        rights = assembly.access.rights_of(request.principal)
        # The built-in verbs, which every service has, have no dot.
        verbs = sorted(name for name in statistics.tallies if "." in name and rights.may_call(name))
        return OwnRights(
            principal=request.principal,
            verbs=verbs,
            value_prefixes=list(assembly.value_prefixes),
            may_publish=None if destination is None else rights.may_publish(destination),
            may_subscribe=None if destination is None else rights.may_subscribe(destination),
        )


def _add_history(responder: Responder, history: History, may_call: Callable[[Request, str], None]) -> None:
    @responder.verb(name="broker.history")
    def since(request: Request, after: Annotated[float, Field(ge=0)] = 0.0) -> list[HistorySample]:
        """Figures of the last hour, one sample each ten seconds, after the time `after` (since 1970)."""
        may_call(request, "broker.history")
        return history.since(after)


def _add_flows(
    responder: Responder, server: Server, counted: Flows, may_call: Callable[[Request, str], None]
) -> None:
    desk = Desk(server)

    @responder.verb(name="flows.list")
    def flows(request: Request, limit: Limit = 200) -> list[FlowRow]:
        """Counts of messages by sender and destination, with the subscribers: those with most messages."""
        may_call(request, "flows.list")
        return desk.walk(lambda: desk.administration.flows(counted, limit))


def _add_check(
    responder: Responder,
    assembly: Assembly,
    source: SettingsSource,
    may_call: Callable[[Request, str], None],
) -> None:
    @responder.verb(name="settings.check")
    def check(request: Request, text: SettingsText | None = None) -> SettingsCheck:
        """Check the settings file, or a new text: all errors, or what would change. Changes nothing."""
        may_call(request, "settings.check")
        try:
            found = assembly.check(source, text)
        except WrongSettings as error:
            # Values may be secret, and paths of this machine are for its operator only.
            own = str(source.file or DEFAULT_FILE)
            problems = [
                SettingsProblem(source="file" if each.source == own else each.source, problem=each.public)
                for each in error.problems
            ]
            return SettingsCheck(reload=[], restart=[], problems=problems)
        return SettingsCheck(reload=list(found.reload), restart=list(found.restart), problems=[])


def _add_backup(
    responder: Responder, store: SqliteStore, folder: Path, may_call: Callable[[Request, str], None]
) -> None:
    # One copy at a time: each reads the whole file and needs its space once more.
    turn = threading.Lock()

    @responder.verb(name="store.backup")
    def backup(name: CopyName, request: Request) -> CopyMade:
        """Copy the store as it is now, and replace an earlier copy of this name. The broker goes on."""
        may_call(request, "store.backup")
        # Refused instead of queued, because a copy may take minutes.
        if not turn.acquire(blocking=False):
            raise VerbError("busy", "another copy is being made")
        try:
            file = store.backup(folder / name)
            return CopyMade(name=name, size_bytes=file.stat().st_size)
        except StoreError as error:
            # Paths of this machine are for its operator only.
            _log.warning("backup failed", name=name, reason=str(error))
            raise VerbError(
                "not-copied", "the store could not be copied; the broker's log says why"
            ) from error
        finally:
            turn.release()


def _add_schemas(responder: Responder, registry: Registry, may_call: Callable[[Request, str], None]) -> None:
    @responder.verb(name="schema.list")
    def list_schemas(name: str | None = None) -> list[SchemaEntry]:
        """All schemas, or those of the types of one name."""
        found = registry if name is None else registry.by_name(name)
        return [_entry(schema) for schema in found]

    @responder.verb(name="schema.get")
    def get(fingerprint: str) -> SchemaText:
        """The schema of a fingerprint: 16 hexadecimal digits, the highest first."""
        try:
            schema = registry.by_fingerprint(int(fingerprint, 16))
        except ValueError:
            schema = None
        if schema is None:
            raise VerbError("not-found", f"no schema has the fingerprint {fingerprint[:40]}")
        return SchemaText(**_entry(schema).model_dump(), definition=schema.definition)

    @responder.verb(name="schema.register")
    def register(definition: Any, request: Request) -> SchemaEntry:
        """Register a schema. Those of one name must be readable by each other."""
        may_call(request, "schema.register")
        try:
            return _entry(registry.register(definition))
        except AvroError as error:
            raise VerbError("bad-schema", str(error)) from error


def _refuse_schemas(responder: Responder) -> None:
    """Register `schema.*` in a broker without `--schemas`, to answer what they need."""
    for verb in ("schema.list", "schema.get", "schema.register"):
        responder.verb(name=verb)(_no_schemas)


def _no_schemas(definition: Any = None, fingerprint: str | None = None, name: str | None = None) -> None:  # noqa: ARG001
    """Not available: this broker was started without `--schemas`."""
    # Avro readers depend on this code, which means that there is no such verb.
    raise VerbError(
        "unknown-verb",
        'this broker keeps no schemas: start it with --schemas DIR, or with schemas = "DIR" in its settings',
    )


def _add_bindings(responder: Responder, assembly: Assembly) -> None:
    @responder.verb(name="schema.bound")
    def bound(destination: str, request: Request) -> SchemaBinding | None:
        """The type that bodies of a destination must have, and their `content`; null: any may be sent."""
        # A principal that may use a destination may know what is sent there.
        rights = None if request.principal is None else assembly.access.rights_of(request.principal)
        if rights is None or not (rights.may_subscribe(destination) or rights.may_publish(destination)):
            raise VerbError("not-allowed", f"neither to be published to nor subscribed to: {destination}")
        found = assembly.binding_of(destination)
        return None if found is None else SchemaBinding(name=found[0], content=found[1])


def _entry(schema: Schema) -> SchemaEntry:
    return SchemaEntry(name=schema.name, fingerprint=schema.fingerprint_hex)


def _permission_check(assembly: Assembly) -> Callable[[Request, str], None]:
    """The check of the right to call a verb (B.7): the broker's verbs make it themselves."""

    def may_call(request: Request, verb: str) -> None:
        # None: the message has no `sender`, which this broker stamps on every message (G.sender).
        principal = request.principal
        if principal is None or not assembly.access.rights_of(principal).may_call(verb):
            raise VerbError("not-allowed", f"{principal or 'an unknown principal'} may not call {verb}")

    return may_call


async def _reload(assembly: Assembly) -> None:
    assembly.reload()
