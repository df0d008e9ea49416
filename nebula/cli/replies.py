"""Validation of the replies that commands read: a peer may send anything.

A reply is validated before anything of it is shown, and then used as it came, because `--json` shows all of
it. Only the fields that a command relies on are required; table cells show any value, see `Column.text`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nebula.rpc.errors import UnexpectedReply

__all__ = [
    "Connections",
    "DeadLetters",
    "Details",
    "Engines",
    "Job",
    "Jobs",
    "Message",
    "Messages",
    "Number",
    "Objects",
    "Page",
    "Principals",
    "Purged",
    "Queues",
    "Replayed",
    "SettingsCheck",
    "Status",
    "checked",
]

# A number that all formats and calculations accept: an int of 400 digits does not fit into a float, and
# Python refuses to print one of 4,301.
_MOST: Final = 2.0**63

Number: TypeAlias = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
"""A number that can be calculated with and formatted."""

_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**63)]
_Object: TypeAlias = dict[str, Any]
Objects: TypeAlias = list[_Object]
"""Rows whose cells are shown as they are."""


class _Form(BaseModel):
    # Fields that are not named here are shown as they come. Only the few that a command needs are validated.
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class Page(_Form):
    """A page of one of the broker's lists."""

    rows: Objects
    matched: _Count
    after: str | None = None
    hidden: _Count = 0


class _Problem(_Form):
    source: str
    problem: str


class SettingsCheck(_Form):
    """What new settings would change, and what is wrong with them."""

    reload: list[str]
    restart: list[str]
    problems: list[_Problem]


class Details(_Form):
    """One connection, session or topic with its subscriptions."""

    summary: _Object
    subscriptions: Objects


class Message(_Form):
    """A waiting message, or a dead letter."""

    number: int
    sender: str
    headers: dict[str, str]
    body: str
    body_bytes: Number
    is_cut: bool


Messages: TypeAlias = list[Message]
"""Waiting messages."""


class DeadLetters(_Form):
    """The dead letters of the broker."""

    rows: Objects
    on_disk: _Count


class Purged(_Form):
    """How many dead letters were dropped."""

    purged: _Count
    on_disk: _Count


class Replayed(_Form):
    """The outcome of a replay of dead letters."""

    replayed: _Count
    full: _Count
    without_queue: _Count
    not_permitted: _Count
    on_disk: _Count


class _StoreStatus(_Form):
    commits: Number
    rows: Number
    seconds: Number


class _Kind(_Form):
    destinations: Number


class _Pool(_Form):
    limit: Number
    used: Number


class Status(_Form):
    """A broker in numbers."""

    version: str
    not_ready: str | None
    uptime_seconds: Number
    received: Number
    sent_frames: Number
    read_bytes: Number
    written_bytes: Number
    connections: Number
    held_back: Number
    delayed: Number
    dead_letters: Number
    memory_bytes: Number
    max_memory_bytes: Number
    kinds: dict[str, _Kind]
    dropped: dict[str, Number]
    # Older brokers do not have this field.
    pools: dict[str, _Pool] = {}
    # None: the broker has no store.
    store: _StoreStatus | None


# Only the fields that `nebula top` calculates with.
class _Queue(_Form):
    queue: str
    taken: Number
    depth: Number


class Queues(_Form):
    """Queues, for calculating rates."""

    rows: list[_Queue]
    hidden: _Count = 0


class _Link(_Form):
    read_bytes: Number
    written_bytes: Number
    sent_frames: Number


class _Connection(_Form):
    session: str
    link: _Link


class Connections(_Form):
    """Connections, for calculating rates."""

    rows: list[_Connection]


class _Principal(_Form):
    principal: str
    used_fraction: Number


class Principals(_Form):
    """Principals, for naming the one that uses most of its share."""

    rows: list[_Principal]


# `jobs` has plain objects; `Column.text` checks each cell when it shows it.
class Jobs(_Form):
    """A page of the jobs of a service."""

    jobs: Objects
    next: str | None = None


class _Step(_Form):
    started_at: Number
    ended_at: Number | None


class _Line(_Form):
    at: Number
    text: str
    number: int


class Job(_Form):
    """Everything that is known of a job."""

    job: str
    state: str
    result: _Object | None = None
    not_before: Number | None = None
    expires_at: Number | None = None
    steps: list[_Step] | None = None
    log: list[_Line] | None = None


class _Isolated(_Form):
    rss_bytes: Number | None = None


class _EngineJobs(_Form):
    open: Number = 0


class _Engine(_Form):
    isolated: list[_Isolated] = []
    # Not `_EngineJobs()`, which would build its deferred validator at each start of the program.
    jobs: _EngineJobs = _EngineJobs.model_construct()
    rss_bytes: Number | None = None


Engines: TypeAlias = dict[str, _Engine]
"""The engines of an instance, by name."""


def checked(form: Any, reply: Any, service: str, verb: str) -> Any:
    """Validate a reply and return it unchanged.

    Raises:
        UnexpectedReply: it is not valid. The message names the service, the verb, the field and the reason,
            not the value.
    """
    try:
        _adapter(form).validate_python(reply)
    except ValidationError as error:
        # The first error is enough: the peer has another version, or is no such service.
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = f"{place}: {first['msg']}" if place else first["msg"]
        # Without the value, which may be of any size.
        raise UnexpectedReply(f"the answer of {service} to {verb} is not usable: {reason}") from None
    return reply


# Cached, because building an adapter takes longer than checking most replies.
@lru_cache(maxsize=64)
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)
