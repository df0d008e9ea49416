"""The broker's settings: one frozen model for file, environment and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import SlowSubscriber, WhenFull
from nebula.broker.core.shares import Resource
from nebula.broker.keys import check_key_pattern
from nebula.globs import compile_glob, is_glob
from nebula.headers import DEAD_LETTER_QUEUE, RESERVED_QUEUE_PREFIX
from nebula.logs import Level
from nebula.settings import Loaded, Settings, load

ENV_PREFIX = "NEBULA_SERVER_"
DEFAULT_FILE = Path("nebula.toml")

# A container has one listener and no file: its address can be given by two flat names.
_SHORTHANDS = {"host": ("listener", 0, "host"), "port": ("listener", 0, "port")}


def _glob(pattern: str) -> str:
    compile_glob(pattern)
    return pattern


def _queue(destination: str) -> str:
    if not destination.startswith("/queue/"):
        raise ValueError("does not begin with /queue/")
    return destination


def _plain_queue(destination: str) -> str:
    _queue(destination)
    if is_glob(destination) or destination.startswith(RESERVED_QUEUE_PREFIX):
        raise ValueError("is not the name of a queue that may hold copies")
    return destination


def _not_empty(listeners: tuple[ListenerSettings, ...]) -> tuple[ListenerSettings, ...]:
    if not listeners:
        raise ValueError("has no table: the broker would listen nowhere")
    return listeners


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListenerSettings(_Table):
    """`[[listener]]`: an address where the broker listens, and the rules that hold there."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address or name of an interface.")
    port: int = Field(default=61613, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    profile: Literal["standard", "maxam"] = Field(
        default="standard", description="How it behaves: see the page of profiles."
    )
    http: bool = Field(default=False, description="Speak HTTP, and STOMP over WebSocket at /stomp.")
    origins: tuple[str, ...] = Field(
        default=(), description="For `http`: whose web pages may connect, `https://shop.example`."
    )
    calls: bool = Field(default=False, description="For `http`: answer `POST /call/SERVICE/VERB`.")
    hosts: tuple[str, ...] = Field(
        default=(),
        description="For `http`: names that calls and `/metrics` may use besides `host`, `api.example`.",
    )
    tls_cert: Path | None = Field(
        default=None, description="The server's certificate chain, PEM. With it: TLS."
    )
    tls_key: Path | None = Field(default=None, description="Its private key, PEM.")
    client_ca: Path | None = Field(
        default=None,
        description="CA of clients, PEM: they need a certificate of it, which says who they are.",
    )
    deny: Path | None = Field(
        default=None, description="Fingerprints of client certificates that may not connect, a line each."
    )
    anonymous: bool | None = Field(
        default=None,
        description="Whether peers need not say who they are. By default on loopback, without users.",
    )
    durable_false_removes: bool = Field(
        default=False, description="UNSUBSCRIBE with `durable:false` removes, and anything else pauses."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("has one of tls_cert and tls_key: TLS needs both")
        if self.tls_cert is None and (self.client_ca is not None or self.deny is not None):
            raise ValueError("has client_ca or deny, which mean nothing without tls_cert and tls_key")
        if self.profile == "maxam" and self.client_ca is None:
            raise ValueError("has the profile maxam, which needs tls_cert, tls_key and client_ca")
        if self.calls and not self.http:
            raise ValueError("has calls, which come by HTTP: set http = true")
        return self


class IdentitySettings(_Table):
    """`[identity]`: how peers authenticate, and for how long that is valid."""

    users: Path | None = Field(default=None, description="TOML file of logins with hashed passcodes.")
    jwks: Path | None = Field(
        default=None,
        description="JWKS file: a passcode may be a JWT signed by its keys. Clocks may differ by 10 s.",
    )
    audience: str | None = Field(default=None, description="What a JWT's `aud` must be.")
    issuer: str | None = Field(default=None, description="What a JWT's `iss` must be.")
    verifications_per_second: float = Field(
        default=20.0, gt=0, description="Passcodes hashed in a second; more logins than that wait."
    )
    grace_seconds: float = Field(
        default=0.0,
        ge=0,
        description="How long a connection may go on after its certificate or token has expired, or its"
        " user or passcode has changed.",
    )
    max_connection_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Maximum age of a connection, less up to a tenth; then the client has to reconnect.",
    )


class DestinationSettings(_Table):
    """`[[destination]]`: what differs for those that a glob names. The first that matches counts."""

    pattern: Annotated[str, AfterValidator(_glob)] = Field(description="Glob of destinations.")
    max_messages: int | None = Field(default=None, ge=1, description="Messages that a queue holds.")
    max_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Bytes that a queue holds, in memory and on disk, counted as `max_queue_bytes` is.",
    )
    when_full: WhenFull = Field(
        default=WhenFull.REJECT,
        description="A message without room is refused, or the oldest is dropped or a dead letter: `reject`,"
        " `drop-oldest`, `dead-letter`.",
    )
    ttl: float | None = Field(
        default=None,
        gt=0,
        description="Seconds in a queue after which a message is a dead letter.",
    )
    priorities: bool = Field(
        default=False, description="Queues heed `priority`: of ten levels the highest goes first."
    )
    dedup_window: float | None = Field(
        default=None, gt=0, description="Seconds in which a `dedup-id` counts; else `dedup_seconds`."
    )
    copy_to: Annotated[str, AfterValidator(_plain_queue)] | None = Field(
        default=None, description="Queue that gets a copy of each message sent there, on disk."
    )
    slow_subscriber: SlowSubscriber = Field(
        default=SlowSubscriber.DISCONNECT,
        description="Who subscribes to topics by what `pattern` matches and does not keep up: `disconnect`,"
        " or `drop-oldest`.",
    )
    max_deliveries: int | None = Field(
        default=None,
        ge=1,
        description="Deliveries that may fail before a message goes to the dead-letter queue.",
    )
    avro: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the Avro type that bodies must have; needs `schemas`.",
    )
    content: Literal["envelope", "bare"] = Field(
        default="envelope", description="With `avro`: a body is a GenericEnvelope, or the datum alone."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        limits = (self.max_messages, self.max_bytes, self.max_deliveries, self.ttl, self.priorities or None)
        may_be_queues = self.pattern.startswith(("/queue/", "*")) or not self.pattern.startswith(("/", "X/"))
        if not may_be_queues and (any(limits) or self.when_full is not WhenFull.REJECT):
            raise ValueError("has limits, which only queues have: begin its pattern with /queue/")
        return self


class ShareSettings(_Table):
    """`[[share]]`: what principals that match a glob may use. The first match counts."""

    pattern: Annotated[str, AfterValidator(_glob)] = Field(
        description="Glob of principals; anonymous peers are called `anonymous@ADDRESS`."
    )
    fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Fraction of each bound that a single principal may use; by default `principal_share`.",
    )
    most: dict[Resource, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Fixed limits by resource, `{ memory = 100_000_000, connections = 10 }`.",
    )


class LastValueSettings(_Table):
    """`[last_value]`: last-value destinations."""

    prefixes: tuple[str, ...] = Field(
        default=("X/",), min_length=1, description="What their names begin with."
    )
    key_patterns: tuple[Annotated[str, AfterValidator(check_key_pattern)], ...] = Field(
        default=(),
        description="Subjects with a `<part>` that a value is not kept under, `EGM.<protocol>.**`.",
    )


# A dataclass of pydantic's is checked when it is made; the core's plain one stays free of third parties.
@dataclass(config=ConfigDict(extra="forbid", allow_inf_nan=False), frozen=True)
class LimitsSettings(Limits):
    """`[limits]`: the broker's `Limits`, checked."""


class BrokerSettings(Settings):
    """Everything that `nebula broker` can be told."""

    listener: Annotated[tuple[ListenerSettings, ...], AfterValidator(_not_empty)] = (ListenerSettings(),)
    identity: IdentitySettings = IdentitySettings()
    destination: tuple[DestinationSettings, ...] = ()
    share: tuple[ShareSettings, ...] = ()
    last_value: LastValueSettings = LastValueSettings()
    limits: LimitsSettings = LimitsSettings()
    http: int | None = Field(
        default=None, ge=0, le=65535, description="Port of an HTTP listener on 127.0.0.1; 0 takes a free one."
    )
    http_calls: bool = Field(
        default=False, description="The listener of `http` answers `POST /call/SERVICE/VERB` too."
    )
    metrics_token: Path | None = Field(
        default=None,
        description="File with the token that `/metrics` wants as `Authorization: Bearer`; else none.",
    )
    store: Literal["sqlite", "memory"] = Field(default="sqlite", description="Where messages are kept.")
    data: Path | None = Field(
        default=None, description="Folder of the store. By default `broker` in the user's state folder."
    )
    backups: Path | None = Field(
        default=None,
        description="Folder where the verb `store.backup` puts its copies. Without it the verb is not there.",
    )
    rights: tuple[Path, ...] | None = Field(
        default=None, description="TOML files of capabilities. Without them everybody may do everything."
    )
    dead_letter: Annotated[str, AfterValidator(_queue)] = Field(
        default=DEAD_LETTER_QUEUE, description="Queue of the messages that nobody consumed."
    )
    schemas: Path | None = Field(default=None, description="Folder of Avro schemas, *.avsc.")
    app: tuple[str, ...] = Field(default=(), description="Services to host in this process, as module:app.")
    log_level: Level = Field(default=Level.INFO, description="Least important events that are logged.")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if any(each.copy_to == self.dead_letter for each in self.destination):
            raise ValueError("a [[destination]] has copy_to, which must not be the queue of dead letters")
        if self.http_calls and self.http is None:
            raise ValueError("has http_calls, which means nothing without http")
        if self.schemas is None and any(each.avro is not None for each in self.destination):
            raise ValueError("a [[destination]] has avro, which needs schemas")
        return self


def load_broker_settings(file: Path | None = None, **flags: Any) -> Loaded[BrokerSettings]:
    """Gather the broker's settings: flags, then `NEBULA_SERVER_…`, then the file, then defaults.

    Args:
        file: a TOML file that has to exist; without it `./nebula.toml`, if there is one.
        flags: settings by name; `host` and `port` are those of the first listener. None: not given.

    Raises:
        SettingsError: a line for each mistake.
    """
    if file is None and DEFAULT_FILE.exists():
        file = DEFAULT_FILE
    return load(BrokerSettings, env_prefix=ENV_PREFIX, file=file, flags=flags, shorthands=_SHORTHANDS)
