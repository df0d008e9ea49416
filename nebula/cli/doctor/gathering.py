"""Questions to a broker and to services, and the facts in their answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from nebula.cli.doctor.facts import (
    Build,
    Certificate,
    Clock,
    DiskFacts,
    InstanceFacts,
    LimitFacts,
    ListenerFacts,
    QueueFacts,
    RightsFacts,
    SettingsFacts,
    StatusFacts,
)
from nebula.cli.doctor.findings import Known, Outcome, Unknown
from nebula.cli.operators import SERVICE
from nebula.cli.replies import Number, Objects, checked
from nebula.errors import CallTimeout, NebulaError, NoResponder, RemoteError
from nebula.rpc.errors import UnexpectedReply

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client
    from nebula.rpc.discovery import Instance, InstanceReply

__all__ = ["Machine", "Site", "gather"]

# Deepest queues that are looked at.
_MOST_QUEUES: Final = 1_000

# What lies between the question to several instances and the one to a single instance.
_SCATTER_SECONDS: Final = 0.05

# Up to the year 9890: a number that becomes a date in every time zone.
_Moment: TypeAlias = Annotated[float, Field(ge=0, le=250e9, allow_inf_nan=False)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**63)]
_Names: TypeAlias = list[str]


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class _Disk(_Form):
    schema_: Annotated[_Count, Field(alias="schema")]
    file_system: str | None
    free_bytes: _Count | None
    min_free_bytes: _Count


class _Listener(_Form):
    url: str
    is_loopback: bool
    is_anonymous: bool
    certificate_ends_at: _Moment | None
    client_ca_ends_at: _Moment | None


class _Machine(_Form):
    nebula: str
    python: str
    build: str
    time: _Moment
    open_files_limit: _Count | None
    wanted_files: _Count
    memory_limit_bytes: _Count | None
    counted_bytes: _Count
    backlog: _Count | None
    first_port: _Count | None
    last_port: _Count | None
    stale_files: _Names
    dead_letter: str
    store: _Disk | None
    listeners: list[_Listener]


class _Rights(_Form):
    is_open: bool
    capabilities: _Count
    identities: _Count
    unused_capabilities: _Names
    without_rights: _Names
    unknown_verbs: _Names
    unmatched: _Names
    anonymous_verbs: _Names


class _Problem(_Form):
    source: str
    problem: str


class _Settings(_Form):
    reload: _Names
    restart: _Names
    problems: list[_Problem]


class _Pool(_Form):
    limit: Number
    used: Number
    refusals: _Count = 0


class _Store(_Form):
    commits: Number
    seconds: Number


class _Status(_Form):
    not_ready: str | None
    dead_letters: _Count
    held_back: _Count
    # Older brokers do not have this field.
    pools: dict[str, _Pool] = {}
    store: _Store | None


class _Queue(_Form):
    queue: str
    depth: _Count
    unacked: _Count
    consumers: _Count


class _Queues(_Form):
    rows: list[_Queue]


class _Process(_Form):
    nebula: str
    python: str
    build: str
    time: _Moment
    failing: _Names | None


class _Stats(_Form):
    # Older instances do not have this field.
    process: _Process | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What the broker says about what it runs on.

    Attributes:
        disk: of its store; None: it has no store.
        certificates: of its listeners.
        client_cas: of its listeners.
        stale_files: settings whose files have changed since they were read.
        dead_letter: its dead-letter queue.
    """

    build: Build
    clock: Clock
    limits: LimitFacts
    disk: DiskFacts | None
    listeners: Sequence[ListenerFacts]
    certificates: Sequence[Certificate]
    client_cas: Sequence[Certificate]
    stale_files: Sequence[str]
    dead_letter: str


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that the broker and the services have told.

    Attributes:
        builds: of the instances.
        clocks: of the instances.
    """

    machine: Known[Machine]
    status: Known[StatusFacts]
    rights: Known[RightsFacts]
    settings: Known[SettingsFacts]
    queues: Known[Sequence[QueueFacts]]
    instances: Known[Sequence[InstanceFacts]]
    builds: Sequence[Build] = ()
    clocks: Sequence[Clock] = ()


@dataclass(slots=True)
class _Told:
    """What instances have told, as it comes."""

    instances: list[InstanceFacts] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)


async def gather(client: Client, seconds: float) -> Site:
    """Ask the broker and all services that the client may call.

    A question that fails leaves a fact unknown; the others are still asked.

    Args:
        client: connected.
        seconds: that each question may take.
    """
    machine = await _machine(client, seconds)
    status = await _ask(client, "broker.status", _Status, seconds)
    rights = await _ask(client, "rights.check", _Rights, seconds)
    settings = await _ask(client, "settings.check", _Settings, seconds)
    wanted = {"order": "depth", "limit": _MOST_QUEUES, "internal": False}
    queues = await _ask(client, "queues.list", _Queues, seconds, wanted)
    told = await _services(client, seconds)
    unknown = isinstance(told, Unknown)
    return Site(
        machine=machine,
        status=status if isinstance(status, Unknown) else _status(status),
        rights=rights if isinstance(rights, Unknown) else _rights(rights),
        settings=settings if isinstance(settings, Unknown) else _settings(settings),
        queues=queues if isinstance(queues, Unknown) else _queues(queues),
        instances=told if isinstance(told, Unknown) else told.instances,
        builds=() if unknown or isinstance(told, Unknown) else told.builds,
        clocks=() if unknown or isinstance(told, Unknown) else told.clocks,
    )


async def _ask(
    client: Client, verb: str, form: Any, seconds: float, parameters: Mapping[str, Any] | None = None
) -> Any:
    """The reply of the broker to one of its verbs; or why it is not known."""
    try:
        reply = await client.call(SERVICE, verb, dict(parameters or {}), timeout=seconds)
        return checked(form, reply, SERVICE, verb)
    except NebulaError as error:
        return _why(error, verb)


def _why(error: NebulaError, verb: str) -> Unknown:
    match error:
        case RemoteError(code="not-allowed"):
            return Unknown(f"you may not call {verb}", f'grant it: call = ["{verb}"]')
        case RemoteError(code="unknown-verb"):
            # The embedded broker has no file of settings; an older one lacks the newer verbs.
            return Unknown(f"this broker has no verb {verb}", "")
        case NoResponder():
            return Unknown("this broker has no verbs for operators: it is not one of nebula broker's", "")
        case CallTimeout():
            cure = "see whether the broker is overloaded (nebula top), or give it longer with --timeout"
            return Unknown(f"the broker did not reply to {verb} in time", cure, Outcome.ERROR)
        case UnexpectedReply():
            return Unknown(str(error), "bring broker and command to one version", Outcome.ERROR)
        case _:
            return Unknown(f"{verb}: {error}", "", Outcome.ERROR)


async def _machine(client: Client, seconds: float) -> Known[Machine]:
    began = time.time()
    told = await _ask(client, "broker.machine", _Machine, seconds)
    took = time.time() - began
    if isinstance(told, Unknown):
        return told
    disk = told["store"]
    ports = told["first_port"], told["last_port"]
    listeners = told["listeners"]
    return Machine(
        build=Build("the broker", told["nebula"], told["python"], told["build"]),
        clock=Clock("the broker", told["time"] - (began + took / 2), took / 2),
        limits=LimitFacts(
            told["open_files_limit"],
            told["wanted_files"],
            told["memory_limit_bytes"],
            told["counted_bytes"],
            told["backlog"],
            None if None in ports else ports,
            [port for each in listeners if (port := _port_of(each["url"])) is not None],
        ),
        disk=None
        if disk is None
        else DiskFacts(disk["file_system"], disk["free_bytes"], disk["min_free_bytes"], disk["schema"]),
        listeners=[
            ListenerFacts(each["url"], each["is_loopback"], each["is_anonymous"]) for each in listeners
        ],
        certificates=_certificates(listeners, "certificate_ends_at", "the certificate of"),
        client_cas=_certificates(listeners, "client_ca_ends_at", "the CA of clients of"),
        stale_files=told["stale_files"],
        dead_letter=told["dead_letter"],
    )


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def _certificates(listeners: Objects, name: str, whose: str) -> list[Certificate]:
    return [Certificate(f"{whose} {each['url']}", each[name]) for each in listeners if each[name] is not None]


def _status(told: Mapping[str, Any]) -> StatusFacts:
    store = told["store"]
    return StatusFacts(
        told["not_ready"],
        told["dead_letters"],
        told["held_back"],
        {
            # A limit of 0 would be no limit that could be used up.
            name: (pool["used"] / pool["limit"] if pool["limit"] > 0 else 0.0, pool.get("refusals", 0))
            for name, pool in told.get("pools", {}).items()
        },
        store["seconds"] / store["commits"] if store and store["commits"] > 0 else None,
    )


def _rights(told: Mapping[str, Any]) -> RightsFacts:
    return RightsFacts(
        told["is_open"],
        told["capabilities"],
        told["identities"],
        told["unused_capabilities"],
        told["without_rights"],
        told["unknown_verbs"],
        told["unmatched"],
        told["anonymous_verbs"],
    )


def _settings(told: Mapping[str, Any]) -> SettingsFacts:
    problems = [
        each["problem"] if each["source"] == "file" else f"{each['source']}: {each['problem']}"
        for each in told["problems"]
    ]
    return SettingsFacts(told["reload"], told["restart"], problems)


def _queues(told: Mapping[str, Any]) -> list[QueueFacts]:
    return [QueueFacts(row["queue"], row["depth"], row["unacked"], row["consumers"]) for row in told["rows"]]


# --- services ---


async def _services(client: Client, seconds: float) -> Known[_Told]:
    try:
        instances = await client.services(timeout=seconds)
    except NebulaError as error:
        return Unknown(f"the instances of services are not known: {error}", "")
    told = _Told()
    for service in sorted({one.service for one in instances}):
        own = [one for one in instances if one.service == service]
        try:
            await _ask_instances(client, service, own, seconds, told)
        except NebulaError as error:
            # Another service may still reply.
            told.instances += [_instance(one, None, None) for one in own]
            if isinstance(error, UnexpectedReply):
                return Unknown(str(error), "bring service and command to one version", Outcome.ERROR)
    return told


async def _ask_instances(
    client: Client, service: str, own: Sequence[Instance], seconds: float, told: _Told
) -> None:
    pings = await client.call_all(service, "ping", timeout=seconds)
    times = {one.instance.name: one.seconds for one in pings.answers}
    began = time.time()
    stats = await client.call_all(service, "stats", {"health": True}, timeout=seconds)
    answers = {one.instance.name: one for one in stats.answers}
    if any(isinstance(one.error, RemoteError) for one in stats.answers):
        # Older instances know no parameter `health`.
        began = time.time()
        stats = await client.call_all(service, "stats", timeout=seconds)
        older = {one.instance.name: one for one in stats.answers}
        answers = {name: one if one.error is None else older.get(name, one) for name, one in answers.items()}
    for one in own:
        process = _process(service, answers.get(one.name), began, told, one.name)
        told.instances.append(_instance(one, times.get(one.name), process))


def _process(
    service: str, answer: InstanceReply[Any] | None, began: float, told: _Told, name: str
) -> Mapping[str, Any] | None:
    """What an instance reports about its process; None: nothing."""
    if answer is None or answer.error is not None:
        return None
    reply: Mapping[str, Any] = checked(_Stats, answer.value, service, "stats")
    process: Mapping[str, Any] | None = reply.get("process")
    if process is None:
        return None
    who = f"{service}/{name}"
    told.builds.append(Build(who, process["nebula"], process["python"], process["build"]))
    half = answer.seconds / 2
    told.clocks.append(Clock(who, process["time"] - (began + half), half + _SCATTER_SECONDS))
    return process


def _instance(one: Instance, seconds: float | None, process: Mapping[str, Any] | None) -> InstanceFacts:
    failing = None if process is None else process["failing"]
    return InstanceFacts(one.service, one.name, one.version, one.schemas, seconds, failing)
