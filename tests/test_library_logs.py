"""Nebula as a library: it logs by the standard `logging`, and prints nothing."""

from __future__ import annotations

import inspect
import json
import logging
import logging.config
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import anyio
import pytest
import structlog

from nebula import RemoteError, Responder
from nebula.logs import get_logger
from nebula.testing import TestClient

_log = get_logger("nebula.tests")

HANDLER_THAT_FAILS = """
import anyio
from nebula import RemoteError, Responder
from nebula.testing import TestClient

app = Responder("logins")

@app.verb
async def login(user: str) -> None:
    password = "hunter2"
    raise ValueError("no such user")

async def main() -> None:
    async with TestClient(app) as client:
        try:
            await client.call(login, "ann")
        except RemoteError as error:
            assert error.code == "internal", error
        else:
            raise AssertionError

{configure}
anyio.run(main)
"""


def run(configure: str = "") -> subprocess.CompletedProcess[str]:
    program = HANDLER_THAT_FAILS.replace("{configure}", configure)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )


def test_service_whose_application_configures_no_log_prints_nothing() -> None:
    ended = run()

    assert (ended.stdout, ended.stderr) == ("", "")


def test_error_of_a_handler_is_logged_with_its_traceback_and_no_local_variable() -> None:
    ended = run('import logging; logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s")')

    assert ended.stdout == ""
    assert "ERROR:nebula.rpc.service.reply_sender:verb failed verb=login" in ended.stderr
    assert "ValueError: no such user" in ended.stderr
    assert "hunter2" not in ended.stderr


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_caplog_sees_the_event_and_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    app = Responder("broken")

    @app.verb
    async def fail() -> None:
        raise ZeroDivisionError

    with anyio.fail_after(5):
        async with TestClient(app) as client:
            with pytest.raises(RemoteError):
                await client.call(fail)

    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.name == "nebula.rpc.service.reply_sender"
    assert record.getMessage().startswith("verb failed ")
    assert (vars(record)["event"], vars(record)["verb"]) == ("verb failed", "fail")
    assert record.exc_info is not None


def test_record_names_the_line_that_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno + 1
    _log.warning("peer slowed")

    (record,) = caplog.records
    assert (record.pathname, record.lineno) == (__file__, line)


def test_messages_of_one_event_have_one_template(caplog: pytest.LogCaptureFixture) -> None:
    _log.warning("send rejected at 100%", destination="/queue/a")
    _log.warning("send rejected at 100%", destination="/queue/b")

    assert len({record.msg for record in caplog.records}) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "send rejected at 100% destination=/queue/a",
        "send rejected at 100% destination=/queue/b",
    ]


def test_event_without_facts_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    _log.warning("100% full")

    assert caplog.messages == ["100% full"]


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (Colour.RED, "red"),
        ("two words", "'two words'"),
        ("", "''"),
        ("a=b", "'a=b'"),
        ("\x1b]0;owned\x07\r\n\u202e", r"'\x1b]0;owned\x07\r\n\u202e'"),
        (["\x1b"], r"['\x1b']"),
        (1.5, "1.5"),
        (None, "None"),
        (ValueError("two\nlines"), r"ValueError('two\nlines')"),
    ],
)
def test_fact_in_a_message_is_text_on_one_line(
    value: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    _log.warning("told", value=value)

    assert caplog.messages == [f"told value={text}"]


def test_facts_whose_names_records_have_already_are_told_beside(caplog: pytest.LogCaptureFixture) -> None:
    _log.warning("told", name="ann", message="hello", event_="kept")

    (record,) = caplog.records
    assert record.name == "nebula.tests"
    assert vars(record)["name_"] == "ann"
    assert vars(record)["message_"] == "hello"
    assert record.getMessage() == "told name=ann message=hello event_=kept"


def test_level_of_the_application_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="nebula.tests"):
        _log.debug("too much")
        _log.info("enough")

    assert caplog.messages == ["enough"]


def test_what_an_application_tells_structlog_changes_nothing_of_ours(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    try:
        get_logger("nebula.tests").warning("peer slowed", seconds=2)
    finally:
        structlog.configure(**before)

    assert caplog.messages == ["peer slowed seconds=2"]
    assert capsys.readouterr().out == ""


def test_importing_nebula_configures_nothing() -> None:
    program = """
import logging, structlog
import nebula.host, nebula.testing, nebula.sync
from nebula import Client, Responder, Spark, embedded
assert not structlog.is_configured()
assert logging.getLogger().handlers == []
assert [type(one).__name__ for one in logging.getLogger("nebula").handlers] == ["NullHandler"]
assert logging.getLogger("nebula").level == logging.NOTSET
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_every_logger_is_below_that_of_nebula() -> None:
    root = Path(__file__).parents[1]
    sources = {path: path.read_text() for path in (root / "nebula").rglob("*.py")}
    logs = root / "nebula" / "logs.py"

    assert [path for path, text in sources.items() if "structlog.get_logger" in text and path != logs] == []
    assert [path for path, text in sources.items() if "basicConfig" in text] == []


def test_records_are_json_by_any_formatter_that_takes_attributes(tmp_path: Path) -> None:
    file = tmp_path / "log"

    class Json(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return json.dumps({"event": vars(record)["event"], "peer": vars(record)["peer"]})

    handler = logging.FileHandler(file)
    handler.setFormatter(Json())
    logging.getLogger("nebula.tests").addHandler(handler)
    try:
        _log.warning("peer slowed", peer="127.0.0.1:1")
    finally:
        logging.getLogger("nebula.tests").removeHandler(handler)
        handler.close()

    assert json.loads(file.read_text()) == {"event": "peer slowed", "peer": "127.0.0.1:1"}
