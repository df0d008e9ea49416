"""A service and a broker's own service that others wrote, and commands that ask them on a forced terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import structlog
from typer.main import get_command

from nebula import cli
from nebula.broker.server.server import Listener, Server
from nebula.headers import IN_REPLY_TO, REPLY_ID, REPLY_TO, RESPONSE
from nebula.rpc.client.client import Client
from nebula.testing import RunningBroker

# What terminals obey, or read in another order: C0, C1, bidirectional controls, line separators; and markup.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\u200f\u061c\u2028\x7f\r[red]:skull:"
# What is to be seen of it, also in a narrow column.
SEEN = ("\\x1b]0", "\\u001b]0")

_COMMAND = get_command(cli.app)

ULID = "01JD3Z7VTP5W0Q4YH2X8K6M9NB"
JOB = f"shop/{ULID}"
INSTANCE = "i1"
QUEUES = {
    "/queue/shop": "anonymous",
    f"/queue/shop.{INSTANCE}": "anonymous",
    "/queue/nebula.broker": "app%3Anebula",
}
_DEADLINE = 20.0

# Colours of the log, and what draws over what was drawn; none of them is in `EVIL`.
_OWN_CODES = re.compile(r"\x1b\[([0-9;]*m|\?25[hl]|2K|[0-9]*A)|\r(?=\x1b)")


class Failure(NamedTuple):
    """An answer that is an error."""

    code: str
    message: str
    details: Any = None


class Stranger:
    """Answers each verb with what `answers` says, and any other one with `otherwise`."""

    def __init__(self, broker: RunningBroker, *, is_known: bool = True) -> None:
        self.broker = broker
        self.answers: Mapping[str, Any] = {}
        self.otherwise: Any = None
        self.instance: Any = {
            "service": "shop", "name": INSTANCE, "queue": f"/queue/shop.{INSTANCE}", "queues": [EVIL],
            "verbs": [EVIL], "schemas": EVIL, "version": EVIL, "started_at": 1.0,
        }  # fmt: skip
        self._is_known = is_known

    @contextmanager
    def serving(self) -> Iterator[Stranger]:
        """Answer during the block."""
        ready = threading.Semaphore(0)
        over = threading.Event()
        thread = threading.Thread(target=lambda: anyio.run(partial(self._serve, ready, over)), daemon=True)
        thread.start()
        try:
            for _ in QUEUES:
                assert ready.acquire(timeout=_DEADLINE)
            yield self
        finally:
            over.set()
            thread.join(_DEADLINE)

    async def _serve(self, ready: threading.Semaphore, over: threading.Event) -> None:
        async with anyio.create_task_group() as tasks:
            for queue, principal in QUEUES.items():
                tasks.start_soon(self._answer, queue, principal, ready)
            await anyio.to_thread.run_sync(over.wait)
            tasks.cancel_scope.cancel()

    async def _answer(self, queue: str, principal: str, ready: threading.Semaphore) -> None:
        url = self.broker.memory_url.replace("://", f"://{principal}@")
        async with Client(url) as client, client.subscribe(queue) as requests:
            if self._is_known and queue.endswith(INSTANCE):
                where = f"X/nebula.services.shop.{INSTANCE}"
                await client.publish(where, self.instance, headers={"ephemeral": "true"})
            ready.release()
            async for request in requests:
                asked = request.headers
                if REPLY_TO not in asked:
                    continue
                about = {IN_REPLY_TO: asked[REPLY_ID], RESPONSE: "true"}
                body = self.answer_to(json.loads(request.body)["verb"])
                # As JSON that is ASCII, whatever it holds.
                await client.publish(
                    asked[REPLY_TO], body.encode(), content_type="application/json", headers=about
                )

    def answer_to(self, verb: str) -> str:
        """The body of the answer."""
        answer = self.answers.get(verb, self.otherwise)
        if isinstance(answer, str) and answer.startswith("raw:"):
            return f'{{"verb": "{verb}response", "parameters": {answer.removeprefix("raw:")}}}'
        if isinstance(answer, Failure):
            error = {"code": answer.code, "message": answer.message, "details": answer.details}
            return json.dumps({"verb": "error", "parameters": error})
        return json.dumps({"verb": f"{verb}response", "parameters": answer})


@contextmanager
def strangers(*, is_known: bool = True) -> Iterator[Stranger]:
    """A broker without verbs of its own, and who answers in its name and that of `shop`."""
    server = Server([Listener("127.0.0.1", 0)])
    # The broker is in the process of the commands, and their streams are no place for its log.
    ours = logging.getLogger("nebula")
    before = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        with running_strangers(server, is_known=is_known) as stranger:
            yield stranger
    finally:
        ours.setLevel(before)


@contextmanager
def running_strangers(server: Server, *, is_known: bool) -> Iterator[Stranger]:
    """The same, whatever becomes of the log."""
    with RunningBroker(server=server) as broker, Stranger(broker, is_known=is_known).serving() as stranger:
        yield stranger


class Stream(io.TextIOWrapper):
    """A stream of this process as a command sees it.

    Args:
        is_terminal: whether it says that it is one.
        stop_at: Ctrl-C is pressed when this is shown.
    """

    def __init__(self, *, is_terminal: bool, stop_at: str = "") -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._is_terminal, self._stop_at = is_terminal, stop_at

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if self._stop_at and self._stop_at in self.text:
            self._stop_at = ""
            raise KeyboardInterrupt
        return count

    @property
    def text(self) -> str:
        """What was written."""
        data = self.buffer
        assert isinstance(data, io.BytesIO)
        return data.getvalue().decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


def run(
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
    env: Mapping[str, str],
    is_terminal: bool = True,
    typed: str | bytes = "",
    stop_at: str = "",
) -> Ended:
    """Run a command in this process, to its end: what is no exit of it is the test's failure."""
    out, err = Stream(is_terminal=is_terminal, stop_at=stop_at), Stream(is_terminal=is_terminal)
    data = typed if isinstance(typed, bytes) else typed.encode()
    root, ours = logging.getLogger(), logging.getLogger("nebula")
    own_level = ours.level
    handlers, level, config = list(root.handlers), root.level, structlog.get_config()
    with monkeypatch.context() as patch:
        for name, value in {
            "COLUMNS": "400",
            "NO_COLOR": "1",
            "TERM": "xterm" if stop_at else "dumb",
            **env,
        }.items():
            patch.setenv(name, value)
        # Made of the app anew each time, it takes longer than a command.
        patch.setattr(cli, "app", _COMMAND)
        patch.setattr(sys, "argv", ["nebula", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setattr(threading, "excepthook", threading.excepthook)
        environ = dict(os.environ)
        try:
            cli.main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            os.environ.clear()
            os.environ.update(environ)
            structlog.configure(**config)
            root.handlers[:] = handlers
            root.setLevel(level)
            ours.setLevel(own_level)
    return Ended(status, *(_OWN_CODES.sub("", stream.text) for stream in (out, err)))


def environment_in(folder: Path, stranger: Stranger) -> dict[str, str]:
    """Where commands find the strangers, and nothing of this machine."""
    return {
        "NEBULA_BROKER": stranger.broker.memory_url,
        "NEBULA_CONTEXTS": str(folder / "contexts.toml"),
        "NEBULA_STATE": str(folder / "state"),
    }


_STATUS: dict[str, Any] = {
    "job": JOB, "seq": 1, "state": "failed", "progress": 0.5, "note": EVIL, "step": [1, 2, EVIL],
    "tasks": {"done": 1, "known": 2, "active": 0}, "position": 1, "via": "",
    "error": {"code": EVIL, "message": EVIL, "sqlstate": EVIL}, "counters": {EVIL: 1},
}  # fmt: skip
_QUEUE: dict[str, Any] = {
    "queue": EVIL, "depth": 1, "unacked": 1, "paged_out": 1, "stored_bytes": 1, "paged_bytes": 1,
    "consumers": 1, "taken": 1, "oldest_seconds": 1.0, "postponed": 1,
}  # fmt: skip
_LINK: dict[str, Any] = {
    "peer": EVIL, "scheme": EVIL, "profile": EVIL, "version": EVIL, "since_seconds": 1.0, "read_bytes": 1,
    "written_bytes": 1, "sent_frames": 1, "buffered_bytes": 1, "is_held_back": False,
}  # fmt: skip
_CONNECTION: dict[str, Any] = {
    "session": EVIL, "principal": EVIL, "unacked": 1, "outbox_bytes": 1, "link": _LINK,
}  # fmt: skip
_SUBSCRIPTION: dict[str, Any] = {
    "session": EVIL, "principal": EVIL, "id": EVIL, "destination": EVIL, "ack": EVIL, "prefetch": 1,
    "unacked": 1, "is_active": True, "waiting": 1, "stored_bytes": 1,
}  # fmt: skip
_TOPIC: dict[str, Any] = {
    "topic": EVIL, "kind": EVIL, "subscribers": 1, "waiting": 1, "stored_bytes": 1, "has_value": True,
    "changed_seconds": 1.0, "sender": EVIL, "owner": EVIL,
}  # fmt: skip
_SESSION: dict[str, Any] = {
    "session": EVIL, "principal": EVIL, "away_seconds": 1.0, "subscriptions": 1, "waiting": 1,
    "stored_bytes": 1,
}  # fmt: skip
_PRINCIPAL: dict[str, Any] = {
    "principal": EVIL, "used_fraction": 0.74, "refusals": 1, "is_operator": True, "memory_bytes": 1,
    "disk_bytes": 1, "connections": 1, "destinations": 1, "subscriptions": 1, "globs": 1,
    "durable_sessions": 1, "durable_subscriptions": 1, "delayed_messages": 1, "dedup_ids": 1,
}  # fmt: skip
_DELAYED: dict[str, Any] = {
    "number": 1, "destination": EVIL, "principal": EVIL, "due_seconds": 1.0, "size_bytes": 1,
    "is_persistent": True,
}  # fmt: skip
_MESSAGE: dict[str, Any] = {
    "number": 1, "destination": EVIL, "sender": EVIL, "headers": {EVIL: EVIL}, "body": f"{EVIL}\n{EVIL}",
    "encoding": EVIL, "body_bytes": 1, "is_cut": True, "is_persistent": True, "attempts": 0,
    "age_seconds": 1.0, "expires_in_seconds": 1.0,
}  # fmt: skip
_TALLY = {"errors": 1, "mean_seconds": 0.1, "longest_seconds": 0.1}

HOSTILE: Mapping[str, Any] = {
    "quote": {"state": EVIL, EVIL: EVIL, "list": [EVIL, {EVIL: EVIL}]},
    "ping": EVIL,
    "describe": {
        "service": "shop",
        "version": EVIL,
        "queues": [EVIL],
        "verbs": [
            {
                "verb": EVIL,
                "response": EVIL,
                "errors": [{"code": EVIL, "description": EVIL, "retryable": False}],
                "parameters": {"type": "object", "properties": {EVIL: {"default": EVIL, "title": EVIL}}},
                "result": {"type": "string", "description": EVIL},
                "description": EVIL,
            }
        ],
        "listens": [{"destination": EVIL, "handler": EVIL, "description": EVIL, "message": {}}],
    },
    "stats": {
        "uptime_seconds": 1.0, "busy": 1, "waiting": 1,
        "process": {"nebula": EVIL, "python": EVIL, "build": EVIL, "time": 1.0, "failing": [EVIL]},
        "verbs": {EVIL: {"requests": 2, **_TALLY}},
        "listens": [
            {"destination": EVIL, "handler": EVIL, "messages": 1, "unreadable": 1, "given_up": 1,
             "waiting": 1, **_TALLY}
        ],
    },
    "job.list": {
        "jobs": [{"job": EVIL, "verb": EVIL, "state": EVIL, "progress": 0.5, "accepted_at": 1.0, EVIL: EVIL}],
        "next": EVIL,
    },
    "job.status": _STATUS,
    "job.cancel": {**_STATUS, "state": EVIL},
    "job.show": {
        **_STATUS, "verb": EVIL, "owner": EVIL, "parameters": {EVIL: EVIL}, "attempt": 1, "priority": 1,
        "exclusive": EVIL, "accepted_at": 1.0, "started_at": 1.0, "ended_at": 2.0, "rerun_of": EVIL,
        "state": EVIL, "not_before": None, "expires_at": None,
        "steps": [{"number": 1, "total": 2, "name": EVIL, "started_at": 1.0, "ended_at": 2.0}],
        "result": {"path": EVIL, "preview": [{EVIL: EVIL, "state": EVIL}]},
        "log": [{"at": 1.0, "text": f"{EVIL}\n{EVIL}", "number": 1}],
    },
    "job.result": {"value": EVIL, "data": [{EVIL: EVIL}], "schema": None, "total": 1, "next": None},
    "job.log": {"lines": [{"at": 1.0, "text": EVIL, "number": 1}], "next": 1, "is_over": True},
    "job.rerun": {"job": JOB, "state": EVIL},
    "engine.status": {
        EVIL: {
            "state": EVIL, "up_seconds": 1.0, "isolated": [{"rss_bytes": 1, EVIL: EVIL}],
            "jobs": {"open": 1, "waiting": 1}, "jobs_since_start": 1, "starts": 1, "rss_bytes": 1,
            "broken": EVIL, "last_end": EVIL,
        }
    },
    "engine.restart": EVIL,
    "broker.status": {
        "version": EVIL, "uptime_seconds": 1.0, "not_ready": EVIL, "connections": 1, "max_connections": 1,
        "sessions": 1, "received": 1, "sent_frames": 1, "read_bytes": 1, "written_bytes": 1,
        "memory_bytes": 1, "max_memory_bytes": 1, "outbox_bytes": 1, "held_back": 1, "delayed": 1,
        "dead_letters": 1, "dropped": {EVIL: 1}, "events": {EVIL: 1}, "ended": {EVIL: 1},
        "kinds": {EVIL: {"destinations": 1}}, "principals": 1,
        "pools": {EVIL: {"limit": 1, "reserved": 1, "used": 1, "largest": 1, "refusals": 1}},
        "store": {"commits": 1, "rows": 1, "seconds": 1.0, "backlog": 1, "waiting": 1},
    },
    "queues.list": {"rows": [_QUEUE], "matched": 2, "after": None},
    "queue.show": {
        "summary": _QUEUE, "max_messages": 1, "max_bytes": 1, "is_exclusive": False, "auto_delete": False,
        "subscriptions": [_SUBSCRIPTION],
    },
    "queue.peek": [_MESSAGE],
    "queue.purge": 1,
    "connections.list": {"rows": [_CONNECTION], "matched": 2, "after": None},
    "connection.show": {"summary": _CONNECTION, "transactions": 1, "subscriptions": [_SUBSCRIPTION]},
    "connection.end": None,
    "sessions.list": {"rows": [_SESSION], "matched": 2, "after": None},
    "session.show": {"summary": _SESSION, "subscriptions": [_SUBSCRIPTION]},
    "session.end": None,
    "session.purge": 1,
    "principals.list": {"rows": [_PRINCIPAL], "matched": 2, "after": None},
    "delayed.list": {"rows": [_DELAYED], "matched": 2, "after": None},
    "delayed.purge": 1,
    "settings.check": {
        "reload": [EVIL], "restart": [EVIL], "problems": [{"source": EVIL, "problem": EVIL}],
    },
    "broker.machine": {
        "nebula": EVIL, "python": EVIL, "build": EVIL, "time": 1.0, "open_files_limit": 1, "wanted_files": 2,
        "memory_limit_bytes": 1, "counted_bytes": 2, "backlog": 1, "first_port": 1, "last_port": 2,
        "stale_files": [EVIL], "dead_letter": EVIL,
        "store": {"schema": 1, "file_system": EVIL, "free_bytes": 1, "min_free_bytes": 2},
        "listeners": [
            {"url": EVIL, "is_loopback": False, "is_anonymous": True, "certificate_ends_at": 1.0,
             "client_ca_ends_at": 1.0}
        ],
    },
    "rights.check": {
        "is_open": False, "capabilities": 1, "identities": 1, "unused_capabilities": [EVIL],
        "without_rights": [EVIL], "unknown_verbs": [EVIL], "unmatched": [EVIL], "anonymous_verbs": [EVIL],
    },
    "topics.list": {"rows": [_TOPIC], "matched": 2, "after": None},
    "topic.show": {"summary": _TOPIC, "subscriptions": [_SUBSCRIPTION]},
    "dlq.list": {
        "rows": [
            {"number": 1, "source": EVIL, "reason": EVIL, "died_at": 1.0, "deliveries": 1,
             "code": EVIL, "text": EVIL, "handler": EVIL, "sender": EVIL,
             "body_bytes": 1, "is_persistent": True}
        ],
        "on_disk": 1,
    },
    "dlq.show": _MESSAGE,
    "dlq.replay": {
        "replayed": 1, "full": 1, "without_queue": 1, "not_permitted": 1, "on_disk": 1, EVIL: EVIL,
    },
    "dlq.purge": {"purged": 1, "on_disk": 1, EVIL: EVIL},
}  # fmt: skip
"""Answers of the right form, with hostile text in each field and name."""
