"""Settings: which source wins, where a value came from, and the messages about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.broker.settings import BrokerSettings, load_broker_settings
from nebula.errors import SettingsError
from nebula.logs import Level

# What somebody wrote, what we say, and what they write after reading it, which has to pass.
WRONG_FILES = [
    (
        "store = 'disk'",
        'store "disk" is not one of sqlite, memory',
        "store = 'memory'",
    ),
    (
        "log_level = 'warn'",
        'log_level "warn" is not one of debug, info, warning, error; did you mean "warning"?',
        "log_level = 'warning'",
    ),
    (
        "[[listner]]\nport = 1",
        'top level: unknown setting "listner"; did you mean "listener"?',
        "[[listener]]\nport = 1",
    ),
    (
        "[[listener]]\nport = 1\n[[listener]]\nprot = 2",
        '[[listener]] 2: unknown setting "prot"; did you mean "port"?',
        "[[listener]]\nport = 1\n[[listener]]\nport = 2",
    ),
    (
        "[[listener]]\nxyz = 2",
        (
            '[[listener]] 1: unknown setting "xyz"; known are host, port, profile, http, origins, calls,'
            " hosts, tls_cert, tls_key, client_ca, deny, anonymous, durable_false_removes"
        ),
        "[[listener]]\nhost = 'localhost'",
    ),
    (
        "[[listener]]\nport = 'many'",
        '[[listener]] 1: port "many" is not a whole number',
        "[[listener]]\nport = 61613",
    ),
    (
        "[[listener]]\nport = 70000",
        "[[listener]] 1: port 70000 is not at most 65535",
        "[[listener]]\nport = 65535",
    ),
    (
        "[[listener]]\nhost = ''",
        '[[listener]] 1: host "" is empty',
        "[[listener]]\nhost = '::1'",
    ),
    (
        "[[listener]]\nhost = 127",
        "[[listener]] 1: host 127 is not a text in quotes",
        "[[listener]]\nhost = '127.0.0.1'",
    ),
    (
        "[listener]\nport = 1",
        "[listener] is one table where a list of them belongs: write [[listener]]",
        "[[listener]]\nport = 1",
    ),
    (
        "listener = []",
        "[[listener]] has no table: the broker would listen nowhere",
        "[[listener]]",
    ),
    (
        "[[destination]]\nmax_messages = 10",
        "[[destination]] 1: pattern is missing",
        "[[destination]]\npattern = '/queue/*'\nmax_messages = 10",
    ),
    (
        "[[destination]]\npattern = '/topic/x'\nmax_bytes = 1",
        "[[destination]] 1 has limits, which only queues have: begin its pattern with /queue/",
        "[[destination]]\npattern = '/queue/x'\nmax_bytes = 1",
    ),
    (
        "[[destination]]\npattern = '/queue/x'\nmax_bytes = 0",
        "[[destination]] 1: max_bytes 0 is not at least 1",
        "[[destination]]\npattern = '/queue/x'\nmax_bytes = 1",
    ),
    (
        "[[destination]]\npattern = '/topic/x'\nwhen_full = 'drop-oldest'",
        "[[destination]] 1 has limits, which only queues have: begin its pattern with /queue/",
        "[[destination]]\npattern = '/queue/x'\nwhen_full = 'drop-oldest'",
    ),
    (
        "[[destination]]\npattern = 'X/*'\ncopy_to = '/topic/record'",
        '[[destination]] 1: copy_to "/topic/record" does not begin with /queue/',
        "[[destination]]\npattern = 'X/*'\ncopy_to = '/queue/record'",
    ),
    (
        "limits = 5",
        "limits 5 is not a table",
        "[limits]\nmax_headers = 5",
    ),
    (
        "[limits]\nmax_header = 5",
        '[limits]: unknown setting "max_header"; did you mean "max_headers"?',
        "[limits]\nmax_headers = 5",
    ),
    (
        "[limits]\nconnect_timeout = nan",
        "[limits] connect_timeout NaN is not a finite number",
        "[limits]\nconnect_timeout = 3",
    ),
    (
        "[limits]\nmax_prefetch = 10",
        "[limits] default_prefetch must not be above max_prefetch",
        "[limits]\nmax_prefetch = 10\ndefault_prefetch = 10",
    ),
    (
        "[[listener]\nport = 1",
        "not valid TOML: Expected ']]' at the end of an array declaration (at line 1, column 11)",
        "[[listener]]\nport = 1",
    ),
]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str) -> None:
    Path("nebula.toml").write_text(text)


def complaints() -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_broker_settings()
    return str(caught.value).splitlines()


@pytest.mark.parametrize(("wrong", "said", "right"), WRONG_FILES)
def test_wrong_file_is_told_where_and_what_and_its_cure_passes(wrong: str, said: str, right: str) -> None:
    write(wrong)

    assert complaints() == [f"nebula.toml: {said}"]

    write(right)
    load_broker_settings()


def test_copies_do_not_go_where_dead_letters_are() -> None:
    write("dead_letter = '/queue/dead'\n[[destination]]\npattern = 'X/*'\ncopy_to = '/queue/dead'")

    (complaint,) = complaints()
    assert "a [[destination]] has copy_to, which must not be the queue of dead letters" in complaint


def test_all_mistakes_of_all_sources_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[[listener]]\nhost = 1\n[limits]\nmax_headers = 'x'\n")
    monkeypatch.setenv("NEBULA_SERVER_PORT", "http")
    monkeypatch.setenv("NEBULA_SERVER_PROT", "80")
    monkeypatch.setenv("NEBULA_SERVER_DESTINATION", "/queue/x")
    monkeypatch.setenv("NEBULA_SERVER_LIMITS__MAX_BODY_BYTES", "1MB")

    with pytest.raises(SettingsError) as caught:
        load_broker_settings(store="disk")

    assert sorted(str(caught.value).splitlines()) == [
        '--store: store "disk" is not one of sqlite, memory',
        "NEBULA_SERVER_DESTINATION: '/queue/x' is not JSON, as a list or table has to be here",
        'NEBULA_SERVER_LIMITS__MAX_BODY_BYTES: [limits] max_body_bytes "1MB" is not a whole number',
        'NEBULA_SERVER_PORT: [[listener]] 1: port "http" is not a whole number',
        'NEBULA_SERVER_PROT: unknown setting; did you mean "NEBULA_SERVER_PORT"?',
        "nebula.toml: [[listener]] 1: host 1 is not a text in quotes",
        'nebula.toml: [limits] max_headers "x" is not a whole number',
    ]


def test_file_that_does_not_exist_is_told() -> None:
    with pytest.raises(SettingsError, match=r"^other\.toml: cannot be read: No such file or directory$"):
        load_broker_settings(Path("other.toml"))


def test_file_that_is_not_text_is_told() -> None:
    Path("nebula.toml").write_bytes(b"store = '\xff'")

    assert complaints() == ["nebula.toml: not UTF-8 text: byte 9 is wrong"]


def test_flag_wins_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[[listener]]\nport = 1\nhost = 'file'\n[limits]\nmax_headers = 1\n")
    monkeypatch.setenv("NEBULA_SERVER_PORT", "2")
    monkeypatch.setenv("NEBULA_SERVER_LIMITS__MAX_HEADERS", "2")

    loaded = load_broker_settings(port=3)

    listener = loaded.value.listener[0]
    assert (listener.port, listener.host, loaded.value.limits.max_headers) == (3, "file", 2)
    assert loaded.value.limits.max_subscriptions == BrokerSettings().limits.max_subscriptions


def test_each_value_knows_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[[listener]]\nhost = '::1'\n")
    monkeypatch.setenv("NEBULA_SERVER_LOG_LEVEL", "debug")

    rows = load_broker_settings(port=3, store=None).rows()

    assert ("[[listener]] 1: host", "::1", "nebula.toml") in rows
    assert ("[[listener]] 1: port", 3, "--port") in rows
    assert ("log_level", "debug", "NEBULA_SERVER_LOG_LEVEL") in rows
    assert ("store", "sqlite", "default") in rows


def test_list_in_the_environment_replaces_the_list_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[[listener]]\nport = 1\n[[listener]]\nport = 2\n")
    monkeypatch.setenv("NEBULA_SERVER_LISTENER", '[{"port": 3}]')

    loaded = load_broker_settings()

    assert [listener.port for listener in loaded.value.listener] == [3]
    assert ("[[listener]] 1: port", 3, "NEBULA_SERVER_LISTENER") in loaded.rows()


def test_named_file_is_read_in_place_of_the_usual_one() -> None:
    write("log_level = 'error'")
    Path("other.toml").write_text("log_level = 'debug'")

    assert load_broker_settings(Path("other.toml")).value.log_level is Level.DEBUG


def test_settings_made_directly_read_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "debug")
    monkeypatch.setenv("NEBULA_SERVER_LOG_LEVEL", "debug")

    assert BrokerSettings().log_level is Level.INFO
