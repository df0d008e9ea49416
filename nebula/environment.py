"""Environment variables that Nebula reads, in one model for each program.

A field of a model declares the variable's name, its default and a sentence; `docs/reference/settings.md`
lists them. Other modules take values from a model, at the time when they need one: a program may set
variables until then. An empty variable counts as unset.

The settings of the broker (`NEBULA_SERVER_…`) are in `nebula.broker.settings`. What an engine's processes
hand on to Spark is no setting of Nebula, and is not listed here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, TypeVar, get_type_hints

__all__ = [
    "BrokerEnvironment",
    "BuildEnvironment",
    "ClientEnvironment",
    "CommandEnvironment",
    "EngineEnvironment",
    "Environment",
    "ServiceEnvironment",
    "Variable",
]

E = TypeVar("E", bound="Environment")

_FOLDER: Final = "nebula"


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable.

    Attributes:
        name: of the variable.
        about: a sentence.
        default: its value if it is unset or empty.
        usual: the default as people write it, where it is worked out.
    """

    name: str
    about: str
    default: str = ""
    usual: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that a program reads: each field is one of them, as text."""

    @classmethod
    def variables(cls) -> Mapping[str, Variable]:
        """The variables by the names of their fields."""
        return _variables(cls)  # type: ignore[arg-type]  # mypy looks at the hash of instances

    @classmethod
    def read(cls: type[E], environ: Mapping[str, str] | None = None) -> E:
        """The values now.

        Args:
            environ: instead of the environment of the process.
        """
        # Read at each call and not at import, because a program or a test may set variables until then.
        source = os.environ if environ is None else environ
        # An empty variable counts as unset.
        values = {name: source.get(one.name) or one.default for name, one in cls.variables().items()}
        return cls(**values)


@lru_cache(maxsize=16)
def _variables(model: type[Environment]) -> Mapping[str, Variable]:
    # Declared in `Annotated`, from which the reference page of variables is written.
    hints = get_type_hints(model, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(model)}


@dataclass(frozen=True, slots=True)
class BuildEnvironment(Environment):
    """What all programs read when they import `nebula`."""

    compiled: Annotated[
        str,
        Variable(
            "NEBULA_COMPILED",
            "`no`: the Python modules run, also where compiled ones are installed. `require`: the import"
            " fails unless they are compiled.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ClientEnvironment(Environment):
    """What programs read that connect to a broker: clients, services, the recorder, the command line."""

    broker: Annotated[
        str,
        Variable(
            "NEBULA_BROKER",
            "The address of the broker; it may have login and passcode.",
            usual="stomp://127.0.0.1:61613",
        ),
    ]
    ca: Annotated[str, Variable("NEBULA_CA", "TLS: a file with the certificates of trusted authorities.")]
    cert: Annotated[str, Variable("NEBULA_CERT", "TLS: a file with the program's own certificate.")]
    key: Annotated[str, Variable("NEBULA_KEY", "TLS: the file of its key, if the certificate's has none.")]
    pin: Annotated[
        str, Variable("NEBULA_PIN", "TLS: the SHA-256 fingerprint of the one certificate to trust.")
    ]
    verify_host: Annotated[
        str,
        Variable("NEBULA_VERIFY_HOST", "TLS: whether the certificate has to name the broker's host.", "true"),
    ]


@dataclass(frozen=True, slots=True)
class _StateEnvironment(Environment):
    state: Annotated[
        str,
        Variable(
            "NEBULA_STATE",
            "The folder of what must outlive a program: jobs and their results, a broker's store.",
            usual="~/.local/state/nebula",
        ),
    ]
    xdg_state_home: Annotated[
        str, Variable("XDG_STATE_HOME", "The user's folder of state.", usual="~/.local/state")
    ]

    @property
    def state_root(self) -> Path:
        """The folder of persistent state."""
        if self.state:
            return Path(self.state)
        return _home(self.xdg_state_home, ".local", "state") / _FOLDER


@dataclass(frozen=True, slots=True)
class ServiceEnvironment(_StateEnvironment):
    """What services read, in addition to `ClientEnvironment`."""

    results: Annotated[
        str,
        Variable(
            "NEBULA_RESULTS",
            "The folder where workers of a cluster write the tables that jobs return; without it they are"
            " in the state folder.",
        ),
    ]
    jobs: Annotated[
        str,
        Variable(
            "NEBULA_JOBS",
            "`postgresql://…`: the database in which the instances of a service share their jobs. Leave the"
            " password to `PGPASSFILE`.",
        ),
    ]
    spark: Annotated[
        str,
        Variable("NEBULA_SPARK", "Where Spark runs: a cluster, a Connect server, this machine.", "local[*]"),
    ]
    cache: Annotated[
        str,
        Variable(
            "NEBULA_CACHE",
            "The folder of what a program can make again, such as archives of Java classes.",
            usual="~/.cache/nebula",
        ),
    ]
    xdg_cache_home: Annotated[str, Variable("XDG_CACHE_HOME", "The user's cache folder.", usual="~/.cache")]

    @property
    def cache_root(self) -> Path:
        """The cache folder."""
        if self.cache:
            # Absolute, because child processes of an engine may have another working directory.
            return Path(self.cache).absolute()
        return _home(self.xdg_cache_home, ".cache") / _FOLDER

    @property
    def results_root(self) -> Path | None:
        """The folder for tables that jobs return; None: each service's state folder."""
        return Path(self.results).absolute() if self.results else None

    @property
    def spark_place(self) -> str:
        """Where engines run whose declaration names neither master nor remote."""
        # Files of variables may leave blanks around it.
        return self.spark.strip() or type(self).variables()["spark"].default


@dataclass(frozen=True, slots=True)
class EngineEnvironment(Environment):
    """What Spark's engines read, in addition to `ServiceEnvironment`. Spark itself reads more."""

    java_home: Annotated[str, Variable("JAVA_HOME", "The folder of the Java that engines try first.")]
    spark_home: Annotated[
        str,
        Variable("SPARK_HOME", "The folder of a Spark to use instead of PySpark's own, of the same version."),
    ]
    pyspark_python: Annotated[
        str,
        Variable(
            "PYSPARK_PYTHON",
            "The Python of workers on other machines. The default is the path of the service's own Python.",
        ),
    ]
    spark_conf_dir: Annotated[str, Variable("SPARK_CONF_DIR", "The folder of Spark's own settings.")]
    hadoop_conf_dir: Annotated[str, Variable("HADOOP_CONF_DIR", "The folder of Hadoop's settings.")]
    yarn_conf_dir: Annotated[str, Variable("YARN_CONF_DIR", "The folder of YARN's settings.")]
    spark_dist_classpath: Annotated[
        str, Variable("SPARK_DIST_CLASSPATH", "Java libraries that a Spark without Hadoop needs.")
    ]
    java_tool_options: Annotated[str, Variable("JAVA_TOOL_OPTIONS", "Options for every Java process.")]


@dataclass(frozen=True, slots=True)
class BrokerEnvironment(_StateEnvironment):
    """What the broker reads, in addition to its settings."""

    notify_socket: Annotated[
        str, Variable("NOTIFY_SOCKET", "Set by systemd: where the broker reports that it is ready.")
    ]
    watchdog_usec: Annotated[
        str,
        Variable("WATCHDOG_USEC", "Set by systemd: microseconds after which it restarts a silent broker."),
    ]
    watchdog_pid: Annotated[str, Variable("WATCHDOG_PID", "Set by systemd: the process that it watches.")]

    @property
    def watchdog_seconds(self) -> float | None:
        """How long the program may be silent; None: as long as it likes."""
        # Child processes inherit the variables, which are not meant for them.
        is_meant = self.watchdog_pid in ("", str(os.getpid()))
        text = self.watchdog_usec
        # `isdigit` alone takes digits of other scripts, which `int` reads; 0 microseconds is no interval.
        if not is_meant or not (text.isascii() and text.isdigit()) or not int(text):
            return None
        return int(text) / 1e6


@dataclass(frozen=True, slots=True)
class CommandEnvironment(Environment):
    """What the command line reads, in addition to `ClientEnvironment`."""

    contexts: Annotated[
        str,
        Variable(
            "NEBULA_CONTEXTS",
            "The file in which the command line keeps the brokers that it knows.",
            usual="~/.config/nebula/contexts.toml",
        ),
    ]
    xdg_config_home: Annotated[
        str, Variable("XDG_CONFIG_HOME", "The user's folder of settings.", usual="~/.config")
    ]
    completes: Annotated[str, Variable("_NEBULA_COMPLETE", "Set by a shell that completes a word.")]

    @property
    def contexts_file(self) -> Path:
        """The file of contexts, whether or not it exists."""
        if self.contexts:
            return Path(self.contexts)
        return _home(self.xdg_config_home, ".config") / _FOLDER / "contexts.toml"


def _home(named: str, *usual: str) -> Path:
    # The XDG base directory specification says to ignore relative paths.
    home = Path(named)
    return home if home.is_absolute() else Path.home().joinpath(*usual)
