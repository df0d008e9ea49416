"""`settings.check`: a running broker checks new settings without taking them, and tells no values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.settings import BrokerSettings
from nebula.errors import RemoteError
from nebula.settings_files import json_schema
from nebula.sync import Client
from tests.cli.programs import nebula, running

SECRET = "s3cr3t-Wort"
SCHEMA = json_schema(BrokerSettings)["properties"]


class Site:
    """A broker with a file of settings, some of its settings in the environment, and a client of it."""

    def __init__(self, file: Path, url: str, client: Client) -> None:
        self.file = file
        self.url = url
        self._client = client

    def check(self, text: str | None = None) -> Any:
        return self._client.call("nebula.broker", "settings.check", {"text": text}, timeout=20)

    def reload(self) -> None:
        self._client.call("nebula.broker", "rights.reload", {}, timeout=20)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    file = tmp_path / "nebula.toml"
    file.write_text("[limits]\nmax_headers = 100\n")
    words = ("broker", "--port", "0", "--store", "memory", "--config", str(file))
    with running(*words) as (_, ready), Client(ready["url"]) as client:
        yield Site(file, ready["url"], client)


def test_check_names_what_would_change_and_takes_nothing(site: Site) -> None:
    changed = "log_level = 'debug'\n[limits]\nmax_headers = 90\n[[share]]\npattern = 'a'\n"
    named = {"reload": ["log_level"], "restart": ["[limits] max_headers", "[[share]] 1"], "problems": []}
    nothing: dict[str, list[Any]] = {"reload": [], "restart": [], "problems": []}

    assert site.check() == nothing
    assert site.check(changed) == named
    # It was not taken: the file as it is still makes no difference.
    assert site.check() == nothing

    site.file.write_text(changed)
    assert site.check() == named
    site.reload()
    assert site.check() == named | {"reload": []}


def test_flags_of_the_brokers_start_count(site: Site) -> None:
    assert site.check("store = 'sqlite'\n[limits]\nmax_headers = 100")["restart"] == []


def test_check_names_all_errors(site: Site) -> None:
    found = site.check("stor = 'x'\n[[listener]]\nport = 70000\n[limits]\nmax_header = 5")

    assert (found["reload"], found["restart"]) == ([], [])
    assert found["problems"] == [
        {"source": "file", "problem": '[limits]: unknown setting "max_header"; did you mean "max_headers"?'},
        {"source": "file", "problem": 'top level: unknown setting "stor"; did you mean "store"?'},
    ]


@pytest.mark.parametrize("is_own_file", [True, False])
def test_no_value_and_no_path_comes_back(site: Site, is_own_file: bool) -> None:
    def told(text: str) -> str:
        if is_own_file:
            site.file.write_text(text)
        return json.dumps(site.check(None if is_own_file else text))

    wrong = [f'a = "{SECRET}', f"[{SECRET}", f'a = "{SECRET}\\q"', f"a = '{SECRET}'"]
    for value in (
        f"'{SECRET}'",
        f"['{SECRET}']",
        f"['[{SECRET}/]']",
        f"{{ a = '{SECRET}' }}",
        f"'[{SECRET}/]'",
    ):
        for name, setting in SCHEMA.items():
            wrong.append(f"{name} = {value}")
            inner = setting.get("items", setting).get("properties", ())
            tables = "[[{}]]\n" if "items" in setting else "[{}]\n"
            wrong.extend(f"{tables.format(name)}{each} = {value}" for each in inner)
    assert [text for text in wrong if SECRET in (found := told(text)) or str(site.file.parent) in found] == []


@pytest.mark.parametrize("text", ["a = " + "[" * 5_000, "a = " + "1" * 5_000, "\0", "a" * 90_000])
def test_nonsense_is_a_mistake_in_the_file(site: Site, text: str) -> None:
    (problem,) = site.check(text)["problems"]

    assert problem["problem"].startswith("not valid TOML: ")


def test_text_without_end_is_refused(site: Site) -> None:
    with pytest.raises(RemoteError, match="text") as caught:
        site.check("#" * 100_001)
    assert caught.value.code == "bad-parameters"


def test_command_shows_what_the_broker_finds(site: Site, tmp_path: Path) -> None:
    new = tmp_path / "new.toml"
    env = {"NEBULA_BROKER": site.url}
    new.write_text("log_level = 'debug'")
    good = nebula("settings", "check", str(new), env=env)
    new.write_text("log_level = 'warn'")
    bad = nebula("settings", "check", str(new), env=env)

    assert good.returncode == 0
    assert json.loads(good.stdout)["reload"] == ["log_level"]
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["problems"][0]["source"] == "file"
    assert nebula("settings", "check", str(tmp_path / "none.toml"), env=env).returncode == 2
