"""From words to parameters, and from module:name to a service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nebula.broker.settings import load_broker_settings
from nebula.cli.arguments import find_app, parse_parameters
from nebula.cli.exits import BrokenModule
from nebula.errors import SettingsError
from tests.cli.programs import nebula

SERVICE = "from nebula.rpc.service.responder import Responder\napp = Responder('shop')\nother = 1\n"


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        ([], {}),
        (["symbol=ABC", "qty:=2"], {"symbol": "ABC", "qty": 2}),
        (["qty=2"], {"qty": "2"}),
        (["text=a=b:=c"], {"text": "a=b:=c"}),
        (["empty="], {"empty": ""}),
        (['tags:=["a"]', "none:=null"], {"tags": ["a"], "none": None}),
        (["lines=a\nb"], {"lines": "a\nb"}),
    ],
)
def test_words_become_parameters(words: list[str], parameters: dict[str, object]) -> None:
    assert parse_parameters(words) == parameters


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ABC"], "'ABC' is not a parameter: write name=text or name:=json"),
        (["=1"], "'=1' is not a parameter: write name=text or name:=json"),
        (["a=1", "a:=2"], "parameter 'a' is given twice"),
        (
            ["qty:=two"],
            "qty:=two is not JSON (Expecting value: line 1 column 1 (char 0)); for a text write qty=two",
        ),
    ],
)
def test_other_words_are_told_how_to_be_written(words: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_parameters(words)

    assert str(caught.value) == said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Undone after the test, with what find_app adds to it.
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_service_is_found_in_the_working_directory(folder: Path) -> None:
    (folder / "shop_found.py").write_text(SERVICE)

    assert find_app("shop_found:app").name == "shop"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (":app", "':app' is not of the form module:name, for example prices:app"),
        (
            "../shop_wrong.py",
            "../shop_wrong.py: it is not in this folder: run the command in the one of your code",
        ),
        ("shop_none", "shop_none: there is no Responder in shop_none; write app = Responder('shop_none')"),
        ("shop_two", "shop_two: say which: shop_two:one or shop_two:two"),
        (
            "shop_worng:app",
            "shop_worng:app: no module 'shop_worng' here or installed; did you mean 'shop_wrong'?",
        ),
        (
            "shop_wrong.app",
            "shop_wrong.app: no module 'shop_wrong.app' here or installed; did you mean 'shop_wrong:app'?",
        ),
        ("shop_wrong:ap", "shop_wrong:ap: 'ap' is not a Responder; did you mean app?"),
        ("shop_wrong:other", "shop_wrong:other: 'other' is not a Responder; did you mean app?"),
        ("shop_missing:app", "shop_missing:app: no module 'shop_missing' here or installed"),
    ],
)
def test_service_that_is_not_there_is_told(folder: Path, target: str, said: str) -> None:
    (folder / "shop_wrong.py").write_text(SERVICE)
    (folder / "shop_none.py").write_text("")
    (folder / "shop_two.py").write_text(
        "from nebula import Responder\none, two = Responder('one'), Responder('two')\n"
    )

    with pytest.raises(SettingsError) as caught:
        find_app(target)

    assert str(caught.value) == said


@pytest.mark.parametrize("target", ["shop_file.py:app", "shop_file.py", "shop_file", "./shop_file:app"])
def test_file_and_module_without_a_name_are_understood(folder: Path, target: str) -> None:
    (folder / "shop_file.py").write_text(SERVICE)

    assert find_app(target).name == "shop"


def test_file_in_a_folder_is_a_module_of_it(folder: Path) -> None:
    (folder / "shop_package").mkdir()
    (folder / "shop_package" / "inner.py").write_text(SERVICE)

    assert find_app("shop_package/inner.py").name == "shop"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import shop_not_installed", "ModuleNotFoundError: No module named 'shop_not_installed'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def f(:", "SyntaxError"),
        (
            "from nebula import Responder\napp = Responder('a')\n@app.verb\ndef f(*rest): ...",
            "says nothing of what it takes",
        ),
    ],
)
def test_error_of_the_module_is_told_with_its_own_frames_alone(folder: Path, code: str, said: str) -> None:
    (folder / "shop_broken.py").write_text(f"{code}\n")

    with pytest.raises(BrokenModule) as caught:
        find_app("shop_broken:app")

    told = caught.value.traceback
    assert said in told
    assert 'shop_broken.py", line' in told
    assert "importlib" not in told
    assert "/nebula/" not in told


def test_port_outside_its_table_is_told_where_it_belongs(folder: Path) -> None:
    (folder / "nebula.toml").write_text("port = 61614\n")

    with pytest.raises(SettingsError, match=r'unknown setting "port"; it belongs into \[\[listener\]\]'):
        load_broker_settings(None)


def test_traceback_of_a_broken_module_has_only_the_users_frames(folder: Path) -> None:
    (folder / "shop_codeless.py").write_text(
        "from nebula import Responder, VerbError\n"
        "class Gone(VerbError):\n    pass\n"
        "@Responder('shop').verb(errors=[Gone])\ndef order() -> None: ...\n"
    )

    with pytest.raises(BrokenModule) as caught:
        find_app("shop_codeless")

    frames = [line for line in caught.value.traceback.splitlines() if line.startswith("  File ")]
    assert frames == [f'  File "{folder / "shop_codeless.py"}", line 4, in <module>']


def test_broken_module_ends_the_command_with_its_traceback(folder: Path) -> None:
    (folder / "shop_bad.py").write_text("1 / 0\n")

    ended = nebula("run", "shop_bad.py", cwd=folder)

    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback (most recent call last):\n")
    assert "ZeroDivisionError: division by zero\n" in ended.stderr
    assert ended.stderr.endswith("nebula: shop_bad.py: the module cannot be imported, see above\n")
