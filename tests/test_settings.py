"""Settings: which source wins, where a value came from, and the messages about wrong ones."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.settings import BrokerSettings, load_broker_settings
from nebula.errors import SettingsError
from nebula.logs import Level
from nebula.settings_files import json_schema
from nebula.settings_words import in_toml
from tests.settings_cures import apply_cure

# What somebody wrote, and what we say. The cure that it names is applied and has to pass.
WRONG_FILES = [
    ("store = 'disk'", 'store "disk" is not one of sqlite, memory'),
    (
        "log_level = 'warn'",
        'log_level "warn" is not one of debug, info, warning, error; did you mean "warning"?',
    ),
    ("[[listner]]\nport = 1", 'top level: unknown setting "listner"; did you mean "listener"?'),
    (
        "[[listener]]\nport = 1\n[[listener]]\nprot = 2",
        '[[listener]] 2: unknown setting "prot"; did you mean "port"?',
    ),
    (
        "[[listener]]\nxyz = 2",
        (
            '[[listener]] 1: unknown setting "xyz"; remove it: known are host, port, profile, http, origins,'
            " calls, hosts, tls_cert, tls_key, client_ca, deny, anonymous, durable_false_removes"
        ),
    ),
    (
        "[[listener]]\nport = 'many'",
        '[[listener]] 1: port "many" is not a whole number; write 61613, for example',
    ),
    ("[[listener]]\nport = 70000", "[[listener]] 1: port 70000 is not at most 65535"),
    ("[[listener]]\nhost = ''", '[[listener]] 1: host "" is empty; write "127.0.0.1", for example'),
    (
        "[[listener]]\nhost = 127",
        '[[listener]] 1: host 127 is not a text in quotes; write "127.0.0.1", for example',
    ),
    ("[listener]\nport = 1", "[listener] is one table where a list of them belongs: write [[listener]]"),
    ("listener = []", "[[listener]] has no table, so the broker would listen nowhere: write [[listener]]"),
    (
        "[[destination]]\nmax_messages = 10",
        '[[destination]] 1: pattern is missing: write pattern = "/queue/orders.*"',
    ),
    (
        "[[destination]]\npattern = '/topic/x'\nmax_bytes = 1",
        "[[destination]] 1 has limits, which only queues have: begin its pattern with /queue/",
    ),
    (
        "[[destination]]\npattern = '/queue/x'\nmax_bytes = 0",
        "[[destination]] 1: max_bytes 0 is not at least 1",
    ),
    (
        "[[destination]]\npattern = '/topic/x'\nwhen_full = 'drop-oldest'",
        "[[destination]] 1 has limits, which only queues have: begin its pattern with /queue/",
    ),
    (
        "[[destination]]\npattern = 'X/*'\ncopy_to = '/topic/record'",
        (
            '[[destination]] 1: copy_to "/topic/record" does not begin with /queue/; write "/queue/copies", '
            "for example"
        ),
    ),
    ("limits = 5", "limits 5 is not a table: write [limits]"),
    ("[limits]\nmax_header = 5", '[limits]: unknown setting "max_header"; did you mean "max_headers"?'),
    (
        "[limits]\nconnect_timeout = nan",
        "[limits] connect_timeout NaN is not a finite number; write 10.0, for example",
    ),
    (
        "[limits]\nmax_prefetch = 10",
        "[limits] default_prefetch must not be above max_prefetch: write default_prefetch = 10",
    ),
    ("[[listener]]\nanonymous = 'often'", '[[listener]] 1: anonymous "often" is not true or false'),
    ("http_calls = true", "http_calls needs http: add it, or remove http_calls"),
    ("max_headers = 5", 'top level: unknown setting "max_headers"; it belongs into [limits]'),
    ("console = true", "console needs http: add it, or remove console"),
    (
        "[[listener]]\nconsole = true",
        "[[listener]] 1 has console, which is served by HTTP: write http = true",
    ),
    ("[[listener]]\ncalls = true", "[[listener]] 1 has calls, which come by HTTP: write http = true"),
    (
        "[[listener]]\ntls_cert = 'a.pem'",
        "[[listener]] 1 has one of tls_cert and tls_key: add tls_key, or remove tls_cert",
    ),
    (
        "[[listener]]\ntls_key = 'a.key'",
        "[[listener]] 1 has one of tls_cert and tls_key: add tls_cert, or remove tls_key",
    ),
    (
        "[[listener]]\ndeny = 'deny.txt'",
        "[[listener]] 1 needs tls_cert and tls_key: add them, or remove deny",
    ),
    (
        "[[listener]]\nprofile = 'maxam'",
        "[[listener]] 1 has the profile maxam: add tls_cert, tls_key and client_ca, or remove profile",
    ),
    (
        "[[destination]]\npattern = '/queue/x'\navro = 'shop.Order'",
        "[[destination]] 1 needs schemas for avro: add it, or remove avro",
    ),
    (
        "[[destination]]\npattern = '/queue/x'\ncopy_to = '/queue/DLQ'",
        "[[destination]] 1 copies to the queue of dead letters: remove copy_to",
    ),
    (
        "[[destination]]\npattern = '/queue/x'\nttl = 0",
        "[[destination]] 1: ttl 0 is not more than 0.0; write 3600.0, for example",
    ),
    (
        "[[destination]]\npattern = 'a[b'",
        '[[destination]] 1: pattern "a[b" has a "[" without its "]": write "[[]" for the character itself',
    ),
    (
        "[[destination]]\npattern = '[z-a]'",
        '[[destination]] 1: pattern "[z-a]" has the range "z-a", which runs backwards: write "a-z"',
    ),
    ("rights = 'rights.toml'", 'rights "rights.toml" is not a list; write ["rights.toml"], for example'),
    ("rights = ['a.toml', 5]", 'rights.1 5 is not a text in quotes; write "rights.toml", for example'),
    ("[identity]\nusers = 5", '[identity] users 5 is not a text in quotes; write "users.toml", for example'),
    (
        "[[share]]\npattern = 'a'\nmost = { memoryx = 5 }",
        (
            '[[share]] 1: most.memoryx "memoryx" is not one of memory, disk, destinations, subscriptions, gl'
            "obs, durable-sessions, durable-subscriptions, delayed-messages, dedup-ids, connections; did you"
            ' mean "memory"?'
        ),
    ),
    ("[[share]]\npattern = 'a'\nmost = { memory = -1 }", "[[share]] 1: most.memory -1 is not at least 0"),
    ("[last_value]\nprefixes = []", '[last_value] prefixes (a list) is empty; write ["X/"], for example'),
    (
        "[last_value]\nkey_patterns = ['EGM.*']",
        (
            '[last_value] key_patterns.0 "EGM.*" leaves nothing out: write <name> for the part that is not o'
            'f the key; write "EGM.<protocol>.**", for example'
        ),
    ),
    (
        "[limits]\nprincipal_share = 2",
        "[limits] a share is at most 1: write principal_share = 0.75 and operator_reserve = 0.05",
    ),
    ("[limits]\nmax_headers = 0", "[limits] max_headers must be above 0: write max_headers = 128"),
    ("listener = [5]", "[[listener]] 1 5 is not a table: write [[listener]]"),
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


def cures(tree: dict[str, Any]) -> list[str]:
    """The complaints that had to be cured, one after the other, until the file was loaded."""
    told: list[str] = []
    while len(told) < 8:
        write("".join(f"{name} = {in_toml(value)}\n" for name, value in tree.items()))
        try:
            load_broker_settings()
        except SettingsError as error:
            told.append(str(error).splitlines()[0])
            apply_cure(tree, told[-1])
        else:
            return told
    raise AssertionError(told)


@pytest.mark.parametrize(("wrong", "said"), WRONG_FILES)
def test_wrong_file_is_told_where_and_what_and_the_cure_that_is_named_passes(wrong: str, said: str) -> None:
    write(wrong)

    assert complaints() == [f"nebula.toml: {said}"]
    assert cures(tomllib.loads(wrong)) == [f"nebula.toml: {said}"]


def test_wrong_toml_is_told_with_what_is_expected_where() -> None:
    wrong = "[[listener]\nport = 1"
    write(wrong)

    assert complaints() == [
        "nebula.toml: not valid TOML: Expected ']]' at the end of an array declaration (at line 1, column 11)"
    ]
    write(wrong[:10] + "]]" + wrong[11:])
    load_broker_settings()


SCHEMA = json_schema(BrokerSettings)["properties"]
WRONG_VALUES = ["", "x y", -1, 1.5, 10**30, True, ["", 1, "[a"], {"x": "y"}]


@pytest.mark.parametrize("name", SCHEMA)
@pytest.mark.parametrize("value", WRONG_VALUES, ids=str)
def test_each_setting_is_cured_of_each_wrong_value(name: str, value: Any) -> None:
    inner = SCHEMA[name].get("items", SCHEMA[name]).get("properties", ())
    cures({name: copy.deepcopy(value)})
    for setting in inner:
        table = ({"pattern": "/queue/a"} if "pattern" in inner else {}) | {setting: copy.deepcopy(value)}
        cures({name: [table] if "items" in SCHEMA[name] else table})


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
        (
            'NEBULA_SERVER_LIMITS__MAX_BODY_BYTES: [limits] max_body_bytes "1MB" is not a whole number;'
            " write 8388608, for example"
        ),
        'NEBULA_SERVER_PORT: [[listener]] 1: port "http" is not a whole number; write 61613, for example',
        'NEBULA_SERVER_PROT: unknown setting; did you mean "NEBULA_SERVER_PORT"?',
        'nebula.toml: [[listener]] 1: host 1 is not a text in quotes; write "127.0.0.1", for example',
        'nebula.toml: [limits] max_headers "x" is not a whole number; write 128, for example',
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
