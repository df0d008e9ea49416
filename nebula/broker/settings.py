"""The broker's settings: one frozen model for file, environment and flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from pydantic.dataclasses import dataclass
from pydantic.json_schema import JsonSchemaValue

from nebula.broker.core import limits
from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import SlowSubscriber, WhenFull
from nebula.broker.core.shares import Resource
from nebula.broker.keys import check_key_pattern
from nebula.broker.limit_comments import limit_comments
from nebula.globs import compile_glob, is_glob
from nebula.headers import DEAD_LETTER_QUEUE, RESERVED_QUEUE_PREFIX
from nebula.logs import Level
from nebula.settings import AT_RELOAD, Loaded, Reload, Settings, load

ENV_PREFIX = "NEBULA_SERVER_"
DEFAULT_FILE = Path("nebula.toml")

# A container has one listener and no file: its address can be given by two flat names.
_SHORTHANDS = {"host": ("listener", 0, "host"), "port": ("listener", 0, "port")}


def _glob(pattern: str) -> str:
    # Only to raise for a malformed glob; the core compiles it again.
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
    # With an empty list the broker would start without an error and be out of reach.
    if not listeners:
        raise ValueError("has no table, so the broker would listen nowhere: write [[listener]]")
    return listeners


class _Table(BaseModel):
    # `forbid`: a misspelled setting must be an error.
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListenerSettings(_Table):
    """`[[listener]]`: an address where the broker listens, and its rules."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address or name of an interface.")
    port: int = Field(default=61613, ge=0, le=65535, description="TCP port; 0 takes a free one.")
    profile: Literal["standard", "maxam"] = Field(
        default="standard", description="The set of rules that it follows; see the page on profiles."
    )
    http: bool = Field(default=False, description="Speak HTTP, and STOMP over WebSocket at /stomp.")
    origins: tuple[str, ...] = Field(
        default=(),
        examples=[["https://shop.example"]],
        description="For `http`: web origins whose pages may connect, such as `https://shop.example`.",
    )
    calls: bool = Field(default=False, description="For `http`: serve `POST /call/SERVICE/VERB`.")
    console: bool = Field(default=False, description="For `http`: serve the console at /console/.")
    hosts: tuple[str, ...] = Field(
        default=(),
        examples=[["api.example"]],
        description="For `http`: host names that calls, the console and `/metrics` may use in addition to"
        " `host`, such as `api.example`.",
    )
    tls_cert: Path | None = Field(
        default=None,
        examples=["server.pem"],
        description="The server's certificate chain, PEM. Turns TLS on.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    tls_key: Path | None = Field(
        default=None,
        examples=["server.key"],
        description="The private key of `tls_cert`, PEM.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    client_ca: Path | None = Field(
        default=None,
        examples=["ca.pem"],
        description="CA of clients, PEM. Clients need a certificate of this CA, which is their identity.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    deny: Path | None = Field(
        default=None,
        examples=["deny.txt"],
        description="File with the fingerprints of client certificates that are refused, one on each line.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    # `assembly` decides what None means, by the address, `client_ca` and `[identity]`.
    anonymous: bool | None = Field(
        default=None,
        examples=[False],
        description="Whether peers may connect without authentication. The default is true on loopback if"
        " there are no users, otherwise false.",
    )
    durable_false_removes: bool = Field(
        default=False,
        description="UNSUBSCRIBE with `durable:false` removes a durable subscription; anything else pauses"
        " it.",
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            one, other = ("tls_cert", "tls_key") if self.tls_key is None else ("tls_key", "tls_cert")
            raise ValueError(f"has one of tls_cert and tls_key: add {other}, or remove {one}")
        # Without TLS these files would seem to protect the listener and do nothing.
        for name in ("client_ca", "deny"):
            if self.tls_cert is None and getattr(self, name) is not None:
                raise ValueError(f"needs tls_cert and tls_key: add them, or remove {name}")
        if self.profile == "maxam" and self.client_ca is None:
            raise ValueError("has the profile maxam: add tls_cert, tls_key and client_ca, or remove profile")
        if self.calls and not self.http:
            raise ValueError("has calls, which come by HTTP: write http = true")
        if self.console and not self.http:
            raise ValueError("has console, which is served by HTTP: write http = true")
        return self


class IdentitySettings(_Table):
    """`[identity]`: how peers authenticate, and how long that is valid."""

    users: Path | None = Field(
        default=None,
        examples=["users.toml"],
        description="TOML file with logins and hashed passcodes.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    jwks: Path | None = Field(
        default=None,
        examples=["keys.json"],
        description="JWKS file. A passcode may be a JWT that one of its keys has signed. Clocks may differ"
        " by 10 s.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    audience: str | None = Field(
        default=None, examples=["nebula"], description="The `aud` that JWTs must have."
    )
    issuer: str | None = Field(
        default=None, examples=["https://login.example"], description="The `iss` that JWTs must have."
    )
    verifications_per_second: float = Field(
        default=20.0, gt=0, description="How many passcodes are hashed per second; further logins wait."
    )
    grace_seconds: float = Field(
        default=0.0,
        ge=0,
        description="How long a connection may go on after its certificate or token has expired, or its"
        " user or passcode has changed.",
    )
    max_connection_seconds: float | None = Field(
        default=None,
        examples=[86_400.0],
        gt=0,
        description="Maximum age of a connection, after which the client has to reconnect. Up to a tenth is"
        " subtracted at random.",
    )


class DestinationSettings(_Table):
    """`[[destination]]`: settings of the destinations that match a glob. The first match counts."""

    pattern: Annotated[str, AfterValidator(_glob)] = Field(
        examples=["/queue/orders.*"], description="Glob of destinations."
    )
    max_messages: int | None = Field(
        default=None, ge=1, examples=[10_000], description="Maximum number of messages in a queue."
    )
    max_bytes: int | None = Field(
        default=None,
        examples=[100_000_000],
        ge=1,
        description="Maximum size of a queue, in memory and on disk, counted like `max_queue_bytes`.",
    )
    when_full: WhenFull = Field(
        default=WhenFull.REJECT,
        description="What happens when a queue is full: the new message is refused (`reject`), the oldest is"
        " dropped (`drop-oldest`), or the oldest becomes a dead letter (`dead-letter`).",
    )
    ttl: float | None = Field(
        default=None,
        examples=[3_600.0],
        gt=0,
        description="Seconds after which a message in a queue becomes a dead letter.",
    )
    priorities: bool = Field(
        default=False,
        description="Queues use the header `priority`: ten levels, the highest is delivered first.",
    )
    dedup_window: float | None = Field(
        default=None,
        examples=[60.0],
        gt=0,
        description="Seconds for which a `dedup-id` is remembered. The default is `dedup_seconds`.",
    )
    copy_to: Annotated[str, AfterValidator(_plain_queue)] | None = Field(
        default=None,
        examples=["/queue/copies"],
        description="Queue that receives a copy of each message, stored on disk.",
    )
    slow_subscriber: SlowSubscriber = Field(
        default=SlowSubscriber.DISCONNECT,
        description="What happens to a subscriber of a topic that does not keep up: `disconnect`, or"
        " `drop-oldest`. `pattern` is compared with what it subscribed to.",
    )
    max_deliveries: int | None = Field(
        default=None,
        examples=[5],
        ge=1,
        description="How many deliveries may fail before a message becomes a dead letter.",
    )
    avro: str | None = Field(
        default=None,
        examples=["shop.Order_v1"],
        min_length=1,
        description="Name of the Avro type that bodies must have; needs `schemas`.",
    )
    content: Literal["envelope", "bare"] = Field(
        default="envelope", description="With `avro`: a body is a GenericEnvelope, or only the datum."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        limits = (self.max_messages, self.max_bytes, self.max_deliveries, self.ttl, self.priorities or None)
        # Globs without a prefix can reach bare names, which are queues (D.10).
        may_be_queues = self.pattern.startswith(("/queue/", "*")) or not self.pattern.startswith(("/", "X/"))
        if not may_be_queues and (any(limits) or self.when_full is not WhenFull.REJECT):
            raise ValueError("has limits, which only queues have: begin its pattern with /queue/")
        return self


class ShareSettings(_Table):
    """`[[share]]`: how much the principals that match a glob may use. The first match counts."""

    pattern: Annotated[str, AfterValidator(_glob)] = Field(
        examples=["sensor-*"],
        description="Glob of principals; anonymous peers are called `anonymous@ADDRESS`.",
    )
    fraction: float | None = Field(
        default=None,
        examples=[0.05],
        gt=0,
        le=1,
        description="Fraction of each limit that a single principal may use. The default is"
        " `principal_share`.",
    )
    most: dict[Resource, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        examples=[{"memory": 100_000_000, "connections": 10}],
        description="Fixed limits by resource, such as `{ memory = 100_000_000, connections = 10 }`.",
    )


class LastValueSettings(_Table):
    """`[last_value]`: last-value destinations."""

    prefixes: tuple[str, ...] = Field(default=("X/",), min_length=1, description="Prefixes of their names.")
    key_patterns: tuple[Annotated[str, AfterValidator(check_key_pattern)], ...] = Field(
        default=(),
        examples=[["EGM.<protocol>.**"]],
        description="Patterns of subjects, in which a `<part>` is left out of the key, such as"
        " `EGM.<protocol>.**`.",
    )


# A pydantic dataclass checks its values; the core's plain one stays free of third parties.
# `allow_inf_nan=False`: comparisons with NaN are always false, and an infinite limit limits nothing.
@dataclass(config=ConfigDict(extra="forbid", allow_inf_nan=False), frozen=True)
class LimitsSettings(Limits):
    """`[limits]`: what a peer may use at most. Times are seconds."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe each limit by the comment above it."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, comment in limit_comments(limits).items():
            why = comment.why[0].upper() + comment.why[1:]
            schema["properties"][name]["description"] = f"{why}. At it: {comment.at_it}."
        return schema


class BrokerSettings(Settings):
    """All settings of `nebula broker`."""

    listener: Annotated[tuple[ListenerSettings, ...], AfterValidator(_not_empty)] = (ListenerSettings(),)
    identity: IdentitySettings = IdentitySettings()
    destination: tuple[DestinationSettings, ...] = ()
    share: tuple[ShareSettings, ...] = ()
    last_value: LastValueSettings = LastValueSettings()
    limits: LimitsSettings = LimitsSettings()
    http: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        examples=[8080],
        description="Port of an HTTP listener on 127.0.0.1; 0 takes a free one.",
    )
    http_calls: bool = Field(
        default=False, description="The listener of `http` also serves `POST /call/SERVICE/VERB`."
    )
    console: bool = Field(default=False, description="The listener of `http` also serves the console.")
    # `assembly` decides what None means, by the listeners.
    count_flows: bool | None = Field(
        default=None,
        examples=[True],
        description="Whether messages are counted by sender and destination, for the map of the console. The"
        " default is true if a listener serves the console, otherwise false.",
    )
    metrics_token: Path | None = Field(
        default=None,
        examples=["metrics.token"],
        description="File with the token that requests for `/metrics` need, as `Authorization: Bearer`."
        " Without it they need none.",
        json_schema_extra={AT_RELOAD: Reload.CONTENTS},
    )
    store: Literal["sqlite", "memory"] = Field(
        default="sqlite",
        description="Where messages are stored: in SQLite on disk, or only in memory.",
    )
    data: Path | None = Field(
        default=None,
        examples=["/var/lib/nebula"],
        description="Folder of the store. The default is `broker` in the user's state folder.",
    )
    backups: Path | None = Field(
        default=None,
        examples=["/var/backups/nebula"],
        description="Folder for the copies that the verb `store.backup` makes. Without it the verb does not"
        " exist.",
    )
    rights: tuple[Path, ...] | None = Field(
        default=None,
        examples=[["rights.toml"]],
        description="TOML files with capabilities. Without them every principal may do everything.",
        json_schema_extra={AT_RELOAD: Reload.VALUE},
    )
    dead_letter: Annotated[str, AfterValidator(_queue)] = Field(
        default=DEAD_LETTER_QUEUE, description="Queue for dead letters."
    )
    schemas: Path | None = Field(
        default=None, examples=["schemas"], description="Folder with Avro schemas, *.avsc."
    )
    app: tuple[str, ...] = Field(
        default=(),
        examples=[["prices:app"]],
        description="Services to host in this process, as module:app.",
    )
    log_level: Level = Field(
        default=Level.INFO,
        description="Lowest level of events that are logged.",
        json_schema_extra={AT_RELOAD: Reload.VALUE},
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for number, each in enumerate(self.destination, 1):
            # A copy there would be a dead letter that has not died.
            if each.copy_to == self.dead_letter:
                raise ValueError(
                    f"[[destination]] {number} copies to the queue of dead letters: remove copy_to"
                )
            if self.schemas is None and each.avro is not None:
                raise ValueError(f"[[destination]] {number} needs schemas for avro: add it, or remove avro")
        if self.http_calls and self.http is None:
            raise ValueError("http_calls needs http: add it, or remove http_calls")
        if self.console and self.http is None:
            raise ValueError("console needs http: add it, or remove console")
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class SettingsSource:
    """Where the settings of a running broker come from, so that they can be read again.

    Args:
        file: as for `load_broker_settings`.
        flags: likewise.

    Attributes:
        file: the file that is read, the default one if it was there at the start; None: no file.
    """

    file: Path | None
    flags: Mapping[str, Any]

    def __post_init__(self) -> None:
        # Once: if the file is away at a reload, that is a mistake, and not a broker without rights.
        if self.file is None and DEFAULT_FILE.exists():
            object.__setattr__(self, "file", DEFAULT_FILE)

    def read(self, text: str | None = None) -> Loaded[BrokerSettings]:
        """The settings as they are now in the file, the environment and the flags.

        Args:
            text: instead of what is in the file, which then need not exist.

        Raises:
            WrongSettings: a line for each mistake.
        """
        return load(
            BrokerSettings,
            env_prefix=ENV_PREFIX,
            file=self.file if text is None else self.file or DEFAULT_FILE,
            flags=self.flags,
            shorthands=_SHORTHANDS,
            text=text,
        )


def load_broker_settings(file: Path | None = None, **flags: Any) -> Loaded[BrokerSettings]:
    """Gather the broker's settings: flags, then `NEBULA_SERVER_…`, then the file, then defaults.

    Args:
        file: a TOML file that has to exist; without it `./nebula.toml`, if there is one.
        flags: settings by name; `host` and `port` are those of the first listener. None: not given.

    Raises:
        SettingsError: a line for each mistake.
    """
    return SettingsSource(file, flags).read()
