"""An imitation of macOS or Windows in a fresh process: what those systems do not have is taken away.

    python -m tests.platforms.imitation win32 MODULE [ARGUMENTS...]

runs a module as `python -m MODULE` does, with `sys.platform` set, and without the modules, functions and
constants that CPython's documentation says are missing there. It shows what our code reaches for. It cannot
show how the system behaves: libraries are imported before, and paths, files and sockets stay those of this
machine. CI runs the same program on the real systems.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_LINUX_ONLY: Final[dict[ModuleType, Sequence[str]]] = {
    os: (
        "eventfd", "getrandom", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate",
        "sched_getaffinity", "sched_setaffinity", "setns", "splice", "unshare", "O_TMPFILE", "O_PATH",
    ),
    signal: ("SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo"),
    socket: (
        "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_BINDTODEVICE", "SO_PEERCRED", "SO_PASSCRED",
        "TCP_DEFER_ACCEPT", "TCP_INFO", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
    ),
    select: ("epoll",),
}  # fmt: skip
_POSIX_ONLY: Final[dict[ModuleType, Sequence[str]]] = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "WNOHANG", "chown",
        "chroot", "confstr", "ctermid", "fchdir", "fchmod", "fchown", "fork", "forkpty", "fstatvfs",
        "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority",
        "getsid", "getuid", "initgroups", "killpg", "lchown", "lockf", "mkfifo", "nice", "openpty",
        "pathconf", "posix_spawn", "pread", "preadv", "pwrite", "register_at_fork", "sendfile", "setgid",
        "setpgid", "setpriority", "setsid", "setuid", "statvfs", "sync", "sysconf", "tcgetpgrp", "uname",
        "wait", "wait3", "wait4", "waitid",
    ),
    signal: (
        "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGIO", "SIGKILL", "SIGPIPE", "SIGPROF",
        "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGWINCH",
        "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
    ),
    socket: ("AF_UNIX", "SO_REUSEPORT", "MSG_DONTWAIT", "MSG_NOSIGNAL", "SCM_RIGHTS", "CMSG_LEN"),
    select: ("poll",),
}  # fmt: skip
_POSIX_MODULES: Final = frozenset(
    {
        "curses",
        "fcntl",
        "grp",
        "posix",
        "pty",
        "pwd",
        "readline",
        "resource",
        "syslog",
        "termios",
        "tty",
        "uvloop",
    }
)
# What clients use of others. Imported before anything is taken away: these libraries know both systems.
_LIBRARIES: Final = (
    "anyio._backends._asyncio", "argon2", "asyncio", "cachetools", "cryptography.x509", "fastavro", "h11",
    "httpx2", "jwt", "prometheus_client", "pydantic", "pydantic_settings", "pytest", "rich.console",
    "rich.live", "rich.progress", "rich.table", "sqlite3", "structlog", "subprocess", "tempfile", "typer",
    "typer.testing", "websockets", "websockets.asyncio.client", "websockets.client", "websockets.server",
)  # fmt: skip


class _Missing(MetaPathFinder):
    """Finds no module that only POSIX has."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in _POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def imitate(platform: str) -> None:
    """Take away what the platform does not have.

    Args:
        platform: as `sys.platform` names it: "darwin" or "win32".
    """
    for name in _LIBRARIES:
        importlib.import_module(name)
    # Windows makes its pairs of sockets otherwise.
    socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)
    lost = [_LINUX_ONLY, _POSIX_ONLY] if platform == "win32" else [_LINUX_ONLY]
    for module, names in ((module, names) for one in lost for module, names in one.items()):
        for name in names:
            vars(module).pop(name, None)
    if platform == "win32":
        for name in _POSIX_MODULES:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, _Missing())
        # As its event loops say.
        for method in ("add_signal_handler", "remove_signal_handler"):
            setattr(asyncio.SelectorEventLoop, method, _not_implemented)
    sys.platform = platform


def _not_implemented(*_: Any) -> None:
    raise NotImplementedError


if __name__ == "__main__":
    imitate(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
