"""The broker's settings: one frozen model for file, environment and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass

from nebula.broker.limits import Limits
from nebula.logs import Level
from nebula.settings import Loaded, Settings, load

ENV_PREFIX = "NEBULA_SERVER_"
DEFAULT_FILE = Path("nebula.toml")

# A container has one listener and no file: its address can be given by two flat names.
_SHORTHANDS = {"host": ("listener", 0, "host"), "port": ("listener", 0, "port")}


def _queue_pattern(pattern: str) -> str:
    if not pattern.startswith("/queue/"):
        raise ValueError("does not begin with /queue/, and only queues have limits")
    return pattern


def _not_empty(listeners: tuple[ListenerSettings, ...]) -> tuple[ListenerSettings, ...]:
    if not listeners:
        raise ValueError("has no table: the broker would listen nowhere")
    return listeners


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ListenerSettings(_Table):
    """`[[listener]]`: an address where the broker listens."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address or name of an interface.")
    port: int = Field(default=61613, ge=0, le=65535, description="TCP port; 0 takes a free one.")


class DestinationSettings(_Table):
    """`[[destination]]`: what differs for the queues that a glob names. The first that matches counts."""

    pattern: Annotated[str, AfterValidator(_queue_pattern)] = Field(description="Glob of queues.")
    max_messages: int | None = Field(default=None, ge=1, description="Messages that a queue holds.")
    max_bytes: int | None = Field(
        default=None, ge=1, description="Bytes of bodies and headers that a queue holds."
    )
    max_deliveries: int | None = Field(
        default=None, ge=1, description="Deliveries that may fail before a drop."
    )


# A dataclass of pydantic's is checked when it is made; the core's plain one stays free of third parties.
@dataclass(config=ConfigDict(extra="forbid", allow_inf_nan=False), frozen=True)
class LimitsSettings(Limits):
    """`[limits]`: the broker's `Limits`, checked."""


class BrokerSettings(Settings):
    """Everything that `nebula broker` can be told."""

    listener: Annotated[tuple[ListenerSettings, ...], AfterValidator(_not_empty)] = (ListenerSettings(),)
    destination: tuple[DestinationSettings, ...] = ()
    limits: LimitsSettings = LimitsSettings()
    store: Literal["memory"] = Field(default="memory", description="Where messages are kept.")
    app: tuple[str, ...] = Field(default=(), description="Services to host in this process, as module:app.")
    log_level: Level = Field(default=Level.INFO, description="Least important events that are logged.")


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
