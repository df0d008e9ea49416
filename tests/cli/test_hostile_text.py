"""Hostile text in every field of what each command shows: nothing of it may command a terminal."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nebula.broker.store.sqlite import STORE_FILE, SqliteStore
from nebula.cli import app
from nebula.cli.contexts import complete_names
from nebula.cli.record import _Shown
from nebula.cli.render import Output
from nebula.cli.terminal import Screen, tracebacks_made_visible
from nebula.errors import RemoteError
from nebula.record.status import RecorderStatus
from nebula.sync import Client
from nebula.testing.stored import message, put_message
from tests.cli.asking import ASKING, Asking
from tests.cli.programs import DEADLINE, NEBULA, environment
from tests.cli.strangers import (
    EVIL,
    HOSTILE,
    JOB,
    SEEN,
    Ended,
    Failure,
    Stranger,
    Stream,
    environment_in,
    run,
    strangers,
)
from tests.faults.served import Wire

Run = Callable[..., Ended]


# These show what comes otherwise than by an answer. Each has a test below, of its name.
OTHERS = {
    "broker", "console", "run", "services", "send", "pub", "sub", "record", "contexts", "passcode",
    "bench pub", "cert ca", "cert server", "cert client", "store check", "store compact", "store export",
    "store import", "store backup", "settings schema", "settings example",
}  # fmt: skip


# Two names of one command.
SHORT = {"job list": "jobs", "job watch": "watch", "job cancel": "cancel", "engine list": "engines"}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """All of the command line, such as `jobs` and `job show`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name))


def test_each_command_has_a_case_here() -> None:
    assert {*ASKING, *OTHERS, *SHORT} == set(commands(get_command(app)))
    assert {*SHORT.values()} < {*ASKING}
    assert not {*ASKING} & OTHERS


@pytest.mark.parametrize("command", sorted(OTHERS))
def test_each_command_that_asks_nothing_has_a_test_of_its_name(command: str) -> None:
    assert any(name.startswith(f"test_{command.replace(' ', '_')}_") for name in globals())


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    with strangers() as stranger:
        stranger.answers = HOSTILE
        yield stranger


@pytest.fixture
def env(tmp_path: Path, stranger: Stranger) -> dict[str, str]:
    return environment_in(tmp_path, stranger)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> Run:
    """Run a command in this process, with a terminal unless told."""
    return lambda *words, **more: run(monkeypatch, *words, **{"env": env, **more})


def check_harmless(*shown: str) -> None:
    for text in shown:
        odd = {each for each in text if not (each.isprintable() or each in "\n\t")}
        assert not odd, (odd, text)


def is_seen(shown: str) -> bool:
    return any(each in shown for each in SEEN)


ALL = [pytest.param(case, id=" ".join(case.words)) for cases in ASKING.values() for case in cases]


@pytest.mark.parametrize("case", ALL)
def test_answer_is_only_text(ask: Run, case: Asking) -> None:
    ended = ask(*case.words, stop_at=case.stop_at)

    check_harmless(ended.out, ended.err)
    # A verb of such a name cannot be a function; of one that can be the text is checked below.
    has_failed = case.words[0] in ("watch", "stubs", "settings", "doctor") or case.words[:2] == (
        "job",
        "result",
    )
    assert (
        ended.err.strip() == ""
        or case.stop_at
        or (has_failed and case.words[0] not in ("watch", "settings", "doctor"))
    )
    assert ended.status == (130 if case.stop_at else int(has_failed))
    assert is_seen(ended.out + ended.err) or not case.shows
    assert "[red]:skull:" in ended.out or case.words[0] != "call"


@pytest.mark.parametrize("case", ALL)
def test_answer_in_json_on_a_terminal_is_only_text_and_the_same_value(ask: Run, case: Asking) -> None:
    on = ask(*case.words, "--json", stop_at=case.stop_at)
    off = ask(*case.words, "--json", is_terminal=False, stop_at=case.stop_at)

    check_harmless(on.out, on.err)
    assert is_seen(on.out) or not case.shows
    if not case.stop_at and case.words[0] not in ("bench", "top", "ping"):
        assert [json.loads(line) for line in on.out.splitlines()] == [
            json.loads(line) for line in off.out.split("\n") if line
        ]


def test_terminal_that_shall_not_be_taken_for_one_is_shown_only_text(ask: Run, env: dict[str, str]) -> None:
    ended = ask("call", "shop", "quote", env={**env, "TTY_COMPATIBLE": "0"})

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out)


@pytest.mark.parametrize("case", [each for each in ALL if "--watch" not in str(each.id)])
def test_error_is_only_text(ask: Run, stranger: Stranger, case: Asking) -> None:
    details = [{"field": EVIL, "message": EVIL}, EVIL]
    stranger.answers, stranger.otherwise = {}, Failure(EVIL, f"{EVIL}\n{EVIL}", details)
    try:
        ended = ask(*case.words)
    finally:
        stranger.answers, stranger.otherwise = HOSTILE, None

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out + ended.err) or case.words[0] == "ping"


def test_stubs_are_only_text_on_a_terminal_and_python_in_a_file(ask: Run, stranger: Stranger) -> None:
    (verb,) = HOSTILE["describe"]["verbs"]
    parameters = {"type": "object", "properties": {"item": {"type": "string", "default": EVIL}}}
    told = verb | {"verb": "quote", "parameters": parameters}
    stranger.answers = {"describe": HOSTILE["describe"] | {"verbs": [told], "queues": ["/queue/shop"]}}
    try:
        on = ask("stubs", "shop")
        off = ask("stubs", "shop", is_terminal=False)
    finally:
        stranger.answers = HOSTILE

    check_harmless(on.out, on.err)
    assert (on.status, off.status) == (0, 0)
    assert is_seen(on.out)
    compile(off.out, "stubs", "exec")


def test_job_that_ends_with_a_hostile_result_is_only_text(ask: Run, stranger: Stranger) -> None:
    stranger.answers = {**HOSTILE, "job.status": {**HOSTILE["job.status"], "state": "done", "error": None}}
    try:
        ended = ask("watch", JOB, "--result")
    finally:
        stranger.answers = HOSTILE

    check_harmless(ended.out, ended.err)
    assert ended.status == 0
    assert sum(ended.out.count(each) for each in SEEN) == 2


@contextmanager
def broker_that_says(data: bytes) -> Iterator[str]:
    """Whoever connects is told this."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"stomp://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(DEADLINE)


def test_error_frame_of_a_broker_is_only_text(ask: Run, env: dict[str, str]) -> None:
    text = EVIL.replace(":", "").replace("\r", "")
    with broker_that_says(f"ERROR\nmessage:{text}\n\n{EVIL}\0".encode()) as url:
        ended = ask("queues", env={**env, "NEBULA_BROKER": url})

    check_harmless(ended.out, ended.err)
    assert ended.status == 3
    assert is_seen(ended.err)


def test_words_that_are_wrong_are_only_text(ask: Run) -> None:
    for words in (("watch", EVIL), ("call", "shop", "quote", EVIL), (EVIL,), ("jobs", "shop", EVIL)):
        ended = ask(*words)

        check_harmless(ended.out, ended.err)
        assert ended.status == 2
        assert is_seen(ended.err)


def test_job_id_from_a_pipe_is_only_text(ask: Run) -> None:
    ended = ask("watch", "-", typed=json.dumps({"job": EVIL}))

    check_harmless(ended.err)
    assert ended.status == 2
    assert is_seen(ended.err)


def test_unhandled_traceback_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    error = RuntimeError(EVIL)
    error.add_note(EVIL)

    tracebacks_made_visible()
    sys.excepthook(RuntimeError, error, None)
    threading.excepthook(threading.ExceptHookArgs((RuntimeError, error, None, None)))

    check_harmless(stream.text)
    assert stream.text.count(SEEN[0]) == 4


# --- what comes otherwise ---


def test_services_are_only_text(ask: Run) -> None:
    for words in (("services",), ("services", "shop"), ("services", "--json")):
        ended = ask(*words)

        check_harmless(ended.out, ended.err)
        assert ended.status == 0
        assert is_seen(ended.out)


def test_send_shows_only_text(ask: Run) -> None:
    ended = ask("send", f"other{EVIL}", "remind")

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out + ended.err)


def test_pub_shows_only_text(ask: Run) -> None:
    ended = ask("pub", f"/queue/other{EVIL}", "1")

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out + ended.err)


def toml(text: str) -> str:
    """A string of TOML, which wants DEL escaped, too."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _publish(stranger: Stranger, queue: str) -> None:
    with Client(stranger.broker.memory_url) as client:
        client.publish(queue, EVIL, headers={"kind": EVIL, EVIL.replace(":", ""): "1"})
        client.publish(queue, "plain \u202e text".encode(), content_type="text/plain")
        client.publish(queue, "the last one")


def test_sub_shows_only_text(ask: Run, stranger: Stranger) -> None:
    _publish(stranger, "/queue/seen")
    ended = ask("sub", "/queue/seen", stop_at="the last one")

    check_harmless(ended.out, ended.err)
    assert ended.out.count("\n") == 3


def test_sub_in_json_on_a_terminal_is_only_text(ask: Run, stranger: Stranger) -> None:
    _publish(stranger, "/queue/seen")
    ended = ask("sub", "/queue/seen", "--json", stop_at="the last one")

    check_harmless(ended.out, ended.err)
    assert json.loads(ended.out.splitlines()[0])["headers"]["kind"] == EVIL
    assert is_seen(ended.out)


def test_sub_into_a_pipe_has_what_was_sent(ask: Run, stranger: Stranger) -> None:
    _publish(stranger, "/queue/seen")
    ended = ask("sub", "/queue/seen", is_terminal=False, stop_at="the last one")

    first, second, *_ = (json.loads(line) for line in ended.out.split("\n") if line)
    assert first["headers"]["kind"] == EVIL
    assert base64.b64decode(second["body_base64"]).decode() == "plain \u202e text"
    assert "\u202e" in ended.out


def test_record_shows_only_text(ask: Run, tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    ended = ask("record", f"/queue/r{EVIL}", "--into", str(folder), "--idle-seconds", "0.1")
    state = folder / ".recorder" / "other"
    state.mkdir(parents=True)
    told = RecorderStatus(EVIL, destinations=[EVIL], failure=EVIL)
    (state / "status.json").write_text(json.dumps(told.as_dict()))
    for words in ((), ("--json",)):
        shown = ask("record", "--status", "--into", str(folder), *words)

        check_harmless(shown.out, shown.err)
        assert is_seen(shown.out)
    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out)


def test_recorder_at_work_shows_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=True)
    screen = Screen(file=stream, force_terminal=True, color_system=None, width=400)
    shown = _Shown(Output(console=screen))

    shown.tell(RecorderStatus("recorder", failure=EVIL))
    shown.end()

    text = re.sub(r"\x1b\[(\?25[hl]|2K|1A)|\r", "", stream.text)  # the line is drawn over
    check_harmless(text)
    assert SEEN[0] in text
    assert "[red]:skull:" in text


def test_contexts_are_only_text(ask: Run, tmp_path: Path, env: dict[str, str]) -> None:
    name = toml(EVIL)
    login = re.sub(r"[:/?#\[\]\r]", "", EVIL)
    place = toml(f"stomp://{login}@127.0.0.1")
    file = tmp_path / "contexts.toml"
    file.write_text(f"default = {name}\n[contexts.{name}]\nbroker = {place}\n")
    for words in ((), ("--json",)):
        ended = ask("contexts", *words)

        check_harmless(ended.out, ended.err)
        assert is_seen(ended.out + ended.err)
    file.write_text(f"[contexts.{name}]\nbroker = 7\n")
    ended = ask("contexts")

    check_harmless(ended.err)
    assert is_seen(ended.err)


def test_context_that_no_shell_could_show_is_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contexts.toml"
    file.write_text(
        f'[contexts.{toml("v" + EVIL)}]\nbroker = "stomp://a"\n[contexts.venue]\nbroker = "stomp://a"\n'
    )
    monkeypatch.setenv("NEBULA_CONTEXTS", str(file))

    assert complete_names("v") == ["venue"]


def test_passcode_shows_only_text(ask: Run) -> None:
    for words in ((), ("--json",)):
        ended = ask("passcode", EVIL, *words, typed=f"pass{EVIL}\n".replace("\r", ""))

        check_harmless(ended.out, ended.err)
        assert "owned" in ended.out + ended.err


def test_bench_pub_shows_only_text(ask: Run) -> None:
    ended = ask("bench", "pub", f"/topic/b{EVIL}", "--seconds", "0.01")

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out + ended.err)


def test_settings_schema_shows_only_text(ask: Run) -> None:
    for words in ((), ("--json",)):
        ended = ask("settings", "schema", *words)

        check_harmless(ended.out, ended.err)
        assert "max_body_bytes" in ended.out


def test_settings_example_shows_only_text(ask: Run) -> None:
    for words in ((), ("--json",)):
        ended = ask("settings", "example", "--schema", EVIL, *words)

        check_harmless(ended.out, ended.err)
        assert "owned" in ended.out + ended.err


def test_cert_ca_shows_only_text(ask: Run, tmp_path: Path) -> None:
    ended = ask("cert", "ca", EVIL, "--folder", str(tmp_path / EVIL.replace("/", "")))

    check_harmless(ended.out, ended.err)
    assert "owned" in ended.out + ended.err


def test_cert_server_shows_only_text(ask: Run, tmp_path: Path) -> None:
    ask("cert", "ca", "site", "--folder", str(tmp_path))
    ended = ask("cert", "server", "--host", "localhost", "--name", EVIL, "--folder", str(tmp_path))

    check_harmless(ended.out, ended.err)
    assert "owned" in ended.out + ended.err


def test_cert_client_shows_only_text(ask: Run, tmp_path: Path) -> None:
    ask("cert", "ca", "site", "--folder", str(tmp_path))
    ended = ask("cert", "client", EVIL, "--folder", str(tmp_path))

    check_harmless(ended.out, ended.err)
    assert "owned" in ended.out + ended.err


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store of a hostile name, with a message that is hostile in each field."""
    folder = tmp_path / EVIL.replace("/", "")
    store = SqliteStore(folder)
    store.load()
    store.apply([put_message(f"/queue/{EVIL}", message(1))])
    store.close()
    return folder


def test_store_check_shows_only_text(ask: Run, data: Path) -> None:
    ended = ask("store", "check", "--data", str(data))
    (data / STORE_FILE).write_bytes(b"something else")
    broken = ask("store", "check", "--data", str(data))

    check_harmless(ended.out, ended.err, broken.out, broken.err)
    assert is_seen(ended.out)
    assert is_seen(broken.err)


def test_store_compact_shows_only_text(ask: Run, data: Path) -> None:
    ended = ask("store", "compact", "--data", str(data))

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out)


def test_store_export_shows_only_text_on_a_terminal(ask: Run, data: Path) -> None:
    on = ask("store", "export", "--data", str(data))
    off = ask("store", "export", "--data", str(data), is_terminal=False)
    file = ask("store", "export", str(data / f"{EVIL}.jsonl".replace("/", "")), "--data", str(data))

    check_harmless(on.out, on.err, file.out, file.err)
    assert [json.loads(line) for line in on.out.splitlines()] == [
        json.loads(line) for line in off.out.split("\n") if line
    ]
    assert is_seen(on.out)
    assert is_seen(file.out)


def test_store_import_shows_only_text(ask: Run, data: Path, tmp_path: Path) -> None:
    exported = ask("store", "export", "--data", str(data), is_terminal=False).out
    ended = ask("store", "import", "--data", str(tmp_path / f"new{data.name}"), typed=exported)
    broken = ask(
        "store", "import", "--data", str(tmp_path / f"b{data.name}"), typed=f'{{"{EVIL}": 1}}\n{EVIL}'
    )

    check_harmless(ended.out, ended.err, broken.out, broken.err)
    assert is_seen(ended.out)
    assert broken.status == 1


def test_store_backup_shows_only_text(ask: Run, data: Path, tmp_path: Path) -> None:
    ended = ask("store", "backup", str(tmp_path / f"copy{data.name}"), "--data", str(data))

    check_harmless(ended.out, ended.err)
    assert is_seen(ended.out)


def test_broker_shows_settings_as_text(ask: Run, env: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "nebula.toml"
    config.write_text(f"data = {toml(EVIL)}\n")
    for words in ((), ("--json",)):
        ended = ask("broker", "--config", str(config), "--print-settings", *words)

        check_harmless(ended.out, ended.err)
        assert is_seen(ended.out + ended.err)


def test_console_shows_a_wrong_address_as_text(ask: Run) -> None:
    for words in (("--broker", f"stomp://{EVIL}"), ("--broker", "stomp://127.0.0.1", "--host", EVIL)):
        ended = ask("console", *words)

        check_harmless(ended.out, ended.err)
        assert "owned" in ended.out + ended.err


class Terminal:
    """A command that runs with a terminal of its own."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self._end, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [*NEBULA, *words],
            env=environment({"TERM": "xterm", "COLUMNS": "400"}),
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        os.close(self._end)

    def read_until(self, pattern: str) -> str:
        """All that was shown, without colours, once this is there."""
        deadline = time.monotonic() + DEADLINE
        data = b""
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            ready, _, _ = select.select([self._end], [], [], 0.1)
            if ready:
                data += os.read(self._end, 65536)
                self.shown = re.sub(r"\x1b\[[0-9;]*m", "", data.decode(errors="replace"))
                self.shown = self.shown.replace("\r\n", "\n")
        return self.shown


def test_broker_logs_only_text_on_a_terminal(tmp_path: Path) -> None:
    with Terminal("broker", "--port", "0", "--store", "memory", cwd=tmp_path) as terminal:
        port = int(
            re.findall(r"listening on stomp://127.0.0.1:(\d+)", terminal.read_until(r"listening on \S+\n"))[0]
        )
        name = EVIL.replace(":", "").replace("\r", "")
        wire = Wire(port)
        wire.send(f"CONNECT\naccept-version:1.2\nhost:h\nclient-id:{name}\n\n\0".encode())
        wire.send(f"SUBSCRIBE\nid:1\ndestination:/queue/nebula.{name}\n\n\0".encode())
        refused = terminal.read_until(r"request refused.*owned[\s\S]*\n")

    check_harmless(refused)
    assert is_seen(refused)


def test_run_logs_only_text_on_a_terminal(tmp_path: Path, stranger: Stranger) -> None:
    (tmp_path / "angry.py").write_text(
        "from nebula import Responder\n"
        "app = Responder('angry')\n"
        "@app.verb\n"
        "async def fail(why: str) -> None:\n"
        "    raise RuntimeError(why)\n"
    )
    url = stranger.broker.urls[0]
    with Terminal("run", "angry:app", "--broker", url, cwd=tmp_path) as terminal, Client(url) as client:
        terminal.read_until(r"serving angry on")
        with pytest.raises(RemoteError):
            client.call("angry", "fail", {"why": EVIL})
        shown = terminal.read_until(r"RuntimeError: .*\n")

    check_harmless(shown)
    assert is_seen(shown)
