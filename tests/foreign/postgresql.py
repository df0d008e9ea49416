"""A PostgreSQL of our own: Debian's programs, a folder and a port for this test run alone."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psutil
import psycopg

from nebula.extras.postgres_database import Database
from tests.foreign.install import install_package
from tests.ports import free_port

_DEADLINE: Final = 30.0
_PROGRAMS: Final = Path("/usr/lib/postgresql")

# It refuses to run as root.
_USER: Final = "postgres"

# What must be found nowhere.
PASSWORD: Final = "open/sesame"
_ENCODED: Final = "open%2Fsesame"


class PostgresServer:
    """A running server. Every process that it has is ended by `close`.

    Args:
        is_durable: it waits for the disk, as those that are used do.
    """

    def __init__(self, *, is_durable: bool = False) -> None:
        self._fsync = "on" if is_durable else "off"
        install_package("postgresql")
        # The latest version that is installed.
        self._programs = max(_PROGRAMS.iterdir(), key=lambda path: float(path.name)) / "bin"
        self._user = _USER if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="nebula-postgresql-"))
        self.port = free_port()
        self._make()
        self.start()

    def _make(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            for path in (self._folder, secret):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        words = ["--username=nebula", f"--pwfile={secret}", "--auth=scram-sha-256", "--encoding=UTF8"]
        done = self._run("initdb", f"--pgdata={self._data}", *words, "--no-sync")
        assert done.wait(_DEADLINE) == 0, "initdb failed"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        log = (self._folder / "log").open("ab")
        return subprocess.Popen(
            [self._programs / program, *words],
            user=self._user, cwd=self._folder, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip

    def start(self) -> None:
        """Start it, and wait until it answers. After a kill, too, however long its remains are in the way."""
        until = time.monotonic() + _DEADLINE
        words = ["-D", str(self._data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1"]
        words += ["-c", f"unix_socket_directories={self._folder}", "-c", f"fsync={self._fsync}"]
        self._process = self._run("postgres", *words)
        while True:
            assert time.monotonic() < until, f"PostgreSQL does not start: {self.log()[-2000:]}"
            if self._process.poll() is not None:
                self._process = self._run("postgres", *words)
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it at once, with everything that it was doing."""
        self._process.kill()
        self._process.wait(_DEADLINE)

    def freeze(self) -> None:
        """Let it hang: connections stay, and nobody answers. `thaw` ends that."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        """See `freeze`."""
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _family(self) -> list[psutil.Process]:
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def close(self) -> None:
        """End it and remove what it kept."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_DEADLINE)
        shutil.rmtree(self._folder)

    def log(self) -> str:
        """What it wrote."""
        return (self._folder / "log").read_text(errors="replace")

    def url(self, database: str) -> str:
        """The address of one of its databases, password and all."""
        return f"postgresql://nebula:{_ENCODED}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a fresh one."""
        name = f"jobs_{uuid4().hex}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} STRATEGY file_copy".encode())
        return self.url(name)


class SlowDatabase(Database):
    """One to which no connection comes about while its gate is shut, as while a host's name is looked up."""

    gate: threading.Event
    is_tried: threading.Event

    def __init__(self, url: str) -> None:
        super().__init__(url)
        # It is frozen.
        object.__setattr__(self, "gate", threading.Event())
        object.__setattr__(self, "is_tried", threading.Event())
        self.gate.set()

    def connect(self, name: str, seconds: float = 5.0) -> psycopg.Connection[Any]:
        self.is_tried.set()
        assert self.gate.wait(_DEADLINE)
        return super().connect(name, seconds)

    def shut(self) -> None:
        """From now on."""
        self.gate.clear()
        self.is_tried.clear()
