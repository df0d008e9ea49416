"""Named brokers: the file, what wins over what, and what a command tells of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.cli.contexts import Context, complete_names, find_broker, read_contexts
from nebula.environment import CommandEnvironment
from nebula.errors import SettingsError
from tests.cli.programs import environment, nebula


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two contexts, and an environment that says nothing of brokers."""
    before = dict(os.environ)
    for name in [name for name in before if name.startswith("NEBULA_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "contexts.toml"
    file.write_text(
        """
default = "home"

[contexts.home]
broker = "stomp://127.0.0.1:7"

[contexts.venue]
broker = "stomps://broker.example:61614"
ca = "venue-ca.pem"
cert = "/keys/me.pem"
pin = "ab12"
verify_host = false
"""
    )
    monkeypatch.setenv("NEBULA_CONTEXTS", str(file))
    yield file
    # `find_broker` writes into the environment by itself.
    for name in [name for name in os.environ if name.startswith("NEBULA_")]:
        del os.environ[name]
    os.environ.update(before)


def test_name_stands_for_an_address_and_its_certificates(file: Path) -> None:
    assert find_broker("venue") == "stomps://broker.example:61614"

    assert os.environ["NEBULA_CA"] == str(file.parent / "venue-ca.pem")
    assert os.environ["NEBULA_CERT"] == "/keys/me.pem"
    assert os.environ["NEBULA_PIN"] == "ab12"
    assert os.environ["NEBULA_VERIFY_HOST"] == "false"
    assert "NEBULA_KEY" not in os.environ


@pytest.mark.usefixtures("file")
def test_environment_wins_over_a_context_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_CA", "/other.pem")
    monkeypatch.setenv("NEBULA_BROKER", "venue")

    find_broker(None)
    assert os.environ["NEBULA_CA"] == "/other.pem"


@pytest.mark.usefixtures("file")
def test_context_that_is_named_here_counts_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA", "CERT", "KEY", "PIN"):
        monkeypatch.setenv(f"NEBULA_{name}", "/of-another-venue.pem")
    monkeypatch.setenv("NEBULA_VERIFY_HOST", "false")

    find_broker("venue")
    assert os.environ["NEBULA_CERT"] == "/keys/me.pem"
    assert "NEBULA_KEY" not in os.environ
    find_broker("home")
    assert not [name for name in os.environ if name in ("NEBULA_CERT", "NEBULA_VERIFY_HOST", "NEBULA_CA")]


@pytest.mark.usefixtures("file")
def test_what_is_named_wins_over_the_environment_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_broker(None) == "stomp://127.0.0.1:7"
    monkeypatch.setenv("NEBULA_BROKER", "venue")
    assert find_broker(None) == "stomps://broker.example:61614"
    assert find_broker("home") == "stomp://127.0.0.1:7"
    assert find_broker("ws://127.0.0.1:9") == "ws://127.0.0.1:9"
    monkeypatch.setenv("NEBULA_BROKER", "stomp://127.0.0.1:8")
    assert find_broker(None) == "stomp://127.0.0.1:8"


def test_without_a_file_there_is_no_address_of_a_broker(file: Path) -> None:
    file.unlink()

    assert find_broker(None) is None
    with pytest.raises(SettingsError, match=r"'venue' is neither an address nor a context .*it has none"):
        find_broker("venue")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("default = ", "Invalid value"),
        ('[contexts.a]\nbroker = "stomp://a"\ncolour = "red"', "contexts.a.colour: Extra inputs"),
        ("[contexts.a]", "contexts.a.broker: Field required"),
        ('[contexts.a]\nbroker = "nowhere"', "contexts.a.broker: broker address"),
    ],
)
def test_file_that_cannot_be_used_is_told_with_its_place(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)

    with pytest.raises(SettingsError, match=complaint):
        find_broker("a")


def test_passcode_that_others_may_read_is_refused_and_not_shown(file: Path) -> None:
    file.write_text('[contexts.a]\nbroker = "stomp://ada:secret@127.0.0.1"')
    file.chmod(0o640)

    with pytest.raises(SettingsError, match="chmod 600") as refused:
        find_broker("a")
    assert "secret" not in str(refused.value)
    file.chmod(0o600)
    assert find_broker("a") == "stomp://ada:secret@127.0.0.1"
    shown = nebula("contexts", env={"NEBULA_CONTEXTS": str(file)})
    assert json.loads(shown.stdout) == [
        {"name": "a", "broker": "stomp://ada@127.0.0.1:61613", "default": False}
    ]


def test_names_complete_and_a_broken_file_completes_nothing(file: Path) -> None:
    assert complete_names("ve") == ["venue"]
    assert complete_names("") == ["home", "venue"]
    file.write_text("[")
    assert complete_names("") == []


def test_file_lies_where_settings_of_users_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEBULA_CONTEXTS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert CommandEnvironment.read().contexts_file == tmp_path / "nebula" / "contexts.toml"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert CommandEnvironment.read().contexts_file == Path.home() / ".config" / "nebula" / "contexts.toml"


def test_command_calls_the_broker_that_a_context_names(url: str, tmp_path: Path) -> None:
    file = tmp_path / "contexts.toml"
    file.write_text(f'[contexts.shop]\nbroker = "{url}"')
    environment = {"NEBULA_CONTEXTS": str(file)}

    called = nebula("call", "shop", "price", "item=cup", "--broker", "shop", env=environment)
    assert (called.returncode, called.stdout) == (0, '"1.25"\n')
    unknown = nebula("call", "shop", "price", "--broker", "shed", env=environment)
    assert unknown.returncode == 2
    assert "it has shop" in unknown.stderr


def test_shells_are_told_how_to_complete() -> None:
    # The option looks for a shell among its parents. As `exit` follows, bash stays and is one.
    script = '"$0" -m nebula --show-completion; exit $?'
    command = ["bash", "-c", script, sys.executable]
    shown = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)

    assert shown.returncode == 0
    assert "complete" in shown.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [("nebula stub", "stubs"), ("nebula dlq re", "replay"), ("nebula call shop price --broker v", "venue")],
)
def test_shells_complete_commands_and_contexts(file: Path, words: str, found: str) -> None:
    in_bash = {"_NEBULA_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    in_zsh = {"_NEBULA_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
    contexts = {"NEBULA_CONTEXTS": str(file)}

    assert nebula(env=in_bash | contexts).stdout.split() == [found]
    assert f'"{found}"' in nebula(env=in_zsh | contexts).stdout


def test_context_is_read_as_it_was_written(file: Path) -> None:
    assert read_contexts(file).contexts["home"] == Context(broker="stomp://127.0.0.1:7")
