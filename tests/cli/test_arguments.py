"""From words to parameters, and from module:name to a service."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nebula.cli.arguments import find_app, parse_parameters
from nebula.errors import SettingsError

SERVICE = "from nebula.rpc.responder import Responder\napp = Responder('shop')\nother = 1\n"


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
        ("shop_wrong", "'shop_wrong' is not of the form module:name, for example prices:app"),
        ("shop_wrong:ap", "shop_wrong:ap: 'ap' is not a Responder; did you mean app?"),
        ("shop_wrong:other", "shop_wrong:other: 'other' is not a Responder; did you mean app?"),
        ("shop_missing:app", "shop_missing:app: no module 'shop_missing' here or installed"),
    ],
)
def test_service_that_is_not_there_is_told(folder: Path, target: str, said: str) -> None:
    (folder / "shop_wrong.py").write_text(SERVICE)

    with pytest.raises(SettingsError) as caught:
        find_app(target)

    assert str(caught.value) == said


def test_module_that_the_service_itself_misses_keeps_its_traceback(folder: Path) -> None:
    (folder / "shop_broken.py").write_text("import shop_not_installed\n")

    with pytest.raises(ModuleNotFoundError, match="shop_not_installed"):
        find_app("shop_broken:app")
