"""Answers that make no sense: each command says so in a sentence that names who answered, and to what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answerer import Answerer
from tests.cli.asking import ASKING, Asking
from tests.cli.strangers import HOSTILE, Ended, Stranger, environment_in, run, strangers

NESTED: Any = json.loads("[" * 150 + "]" * 150)
HUGE = 10**400
NONSENSE: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": -1,
    "text": "text",
    "empty-list": [],
    "empty-object": {},
    "list-for-object": [1, "a", [2], None],
    "object-for-list": {"a": 1, "": {"a": []}},
    "list-of-objects": [{"a": 1}, {}],
    "nested": NESTED,
    "huge": HUGE,
    "not-a-number": "raw:NaN",
    "infinite": "raw:-Infinity",
    "tiny": "raw:1e-400",
    "surrogate": "raw:" + json.dumps("\ud800"),
    "no-json": "raw:{",
}

# Where a command asks several times, the later answers are what makes sense of the first.
CASES = [
    pytest.param(case, id=" ".join(case.words))
    for cases in ASKING.values()
    for case in cases
    # The items of a stream may be anything.
    if not case.stop_at and case.words[0] != "stream"
]


@pytest.fixture
def answerer(monkeypatch: pytest.MonkeyPatch) -> Answerer:
    answerer = Answerer()
    monkeypatch.setattr("nebula.cli.asking.ask", answerer.ask)
    return answerer


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"NEBULA_STATE": str(tmp_path), "NEBULA_BROKER": "", "NEBULA_CONTEXTS": str(tmp_path / "none")}


def verb_of(case: Asking) -> str:
    """The verb that a command calls, as its error names it; for a job it is in the words."""
    words = " ".join(case.words)
    return next((verb for start, verb in _VERBS.items() if f"{words} ".startswith(f"{start} ")), "")


_VERBS = {
    "describe": "describe", "stubs": "describe", "schema": "describe", "stats": "stats", "jobs": "job.list",
    "watch": "status", "cancel": "status", "job show": "job.show", "job log": "log", "job rerun": "status",
    "engines": "engine.status", "top": "broker.status", "queues /queue/orders": "queue.show",
    "queues": "queues.list", "topics /topic/news": "topic.show", "topics": "topics.list",
    "connections s1": "connection.show", "connections": "connections.list", "sessions s1": "session.show",
    "sessions": "sessions.list", "peek": "queue.peek", "purge": "queue.purge", "dlq list": "dlq.list",
    "dlq show": "dlq.show", "dlq replay": "dlq.replay", "dlq purge": "dlq.purge",
    "session end": "session.end", "session purge": "session.purge", "principals": "principals.list",
    "doctor": "broker.machine",
    "delayed list": "delayed.list", "delayed purge": "delayed.purge", "settings check": "settings.check",
}  # fmt: skip


def check_told(ended: Ended, case: Asking) -> None:
    """It went well, or an error says in a sentence who answered and to what."""
    assert "Traceback" not in ended.err
    if ended.status == 0 or not ended.err.strip():
        assert ended.status in (0, 1, 3)
        return
    (line,) = ended.err.strip().splitlines()
    assert ended.status == 1, line
    assert line.startswith("nebula: ")
    service = "shop" if "shop" in " ".join(case.words) else "nebula.broker"
    assert service in line
    assert verb_of(case) in line


@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("case", CASES)
def test_answer_that_is_nonsense_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], answerer: Answerer, case: Asking, is_terminal: bool
) -> None:
    for answer in NONSENSE.values():
        answerer.answers, answerer.otherwise = {}, answer

        ended = run(monkeypatch, *case.words, env=env, is_terminal=is_terminal)

        check_told(ended, case)


# Those whose answer everything can be, are shown as they are, or are not looked at.
_ANYTHING = {"call", "ping", "bench", "engine", "disconnect", "session end"}


def _may_be_anything(words: str) -> bool:
    return any(f"{words} ".startswith(f"{start} ") for start in _ANYTHING)


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    with strangers() as stranger:
        yield stranger


@pytest.mark.parametrize("case", [each for each in CASES if not _may_be_anything(str(each.id))])
def test_answer_of_a_wrong_type_that_comes_over_the_wire_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stranger: Stranger, case: Asking
) -> None:
    stranger.answers, stranger.otherwise = {}, "text"

    ended = run(monkeypatch, *case.words, env=environment_in(tmp_path, stranger))

    # Of several instances one that tells nonsense is told apart from the others.
    assert ended.status == (3 if "stats" in case.words else 1)
    assert verb_of(case) in ended.err + ended.out


def changed(value: Any, nonsense: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A value with nonsense in each of its places in turn, and without each of its fields."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield f"{path}.{name}", {**value, name: nonsense}
            yield f"{path}-{name}", {other: one for other, one in value.items() if other != name}
            for place, inner in changed(each, nonsense, f"{path}.{name}"):
                yield place, {**value, name: inner}
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield f"{path}.{number}", [*value[:number], nonsense, *value[number + 1 :]]
            for place, inner in changed(each, nonsense, f"{path}.{number}"):
                yield place, [*value[:number], inner, *value[number + 1 :]]


# One of each kind that a place may hold wrongly.
_IN_PLACES: dict[str, Any] = {
    "text": "text", "object": {"a": [1]}, "list": [[1]], "huge": HUGE, "nan": float("nan"), "null": None,
}  # fmt: skip
_ASKED = {
    "describe shop": "describe", "stubs shop": "describe", "schema shop": "describe",
    "schema shop --asyncapi": "describe", "schema shop --openapi": "describe",
    "stats shop": "stats", "stats shop --by-instance": "stats",
    "jobs shop": "job.list", "watch": "job.status",
    "job show": "job.show", "job log": "job.log", "job rerun": "job.rerun", "cancel": "job.cancel",
    "engines shop": "engine.status", "top": "broker.status", "queues /queue/orders": "queue.show",
    "queues": "queues.list", "connections": "connections.list", "connections s1": "connection.show",
    "topics": "topics.list", "sessions": "sessions.list", "sessions s1": "session.show",
    "peek": "queue.peek", "dlq list": "dlq.list", "dlq show": "dlq.show", "dlq replay": "dlq.replay",
    "dlq purge": "dlq.purge", "principals": "principals.list", "delayed list": "delayed.list",
    "delayed purge": "delayed.purge", "session purge": "session.purge",
    "settings check": "settings.check",
}  # fmt: skip


def _plain(value: Any) -> Any:
    """The same form without hostile text, of which there is a test of its own."""
    if isinstance(value, dict):
        return {
            str(name) if str(name).isprintable() else "name": _plain(each) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return "words" if isinstance(value, str) and not value.isprintable() else value


@pytest.mark.parametrize("kind", _IN_PLACES)
@pytest.mark.parametrize("words", _ASKED)
def test_answer_with_nonsense_in_any_place_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], answerer: Answerer, words: str, kind: str
) -> None:
    verb = _ASKED[words]
    case = next(
        each
        for cases in ASKING.values()
        for each in cases
        if " ".join(each.words).startswith(words) and not each.stop_at
    )
    whole = {name: _plain(value) for name, value in HOSTILE.items()}
    for place, answer in changed(whole[verb], _IN_PLACES[kind]):
        answerer.answers = {**whole, verb: answer}
        # A job that has not ended is watched for ever.
        if words == "watch" and place.endswith("state"):
            continue

        ended = run(monkeypatch, *case.words, env=env)

        assert "Traceback" not in ended.err, place
        # Of several instances one that tells nonsense is told apart from the others.
        assert ended.status in ((0, 3) if verb == "stats" else (0, 1)), (place, ended)
        assert not ended.err.strip() or len(ended.err.strip().splitlines()) == 1, (place, ended.err)


def test_list_whose_pages_never_end_and_hold_nothing_ends(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], answerer: Answerer
) -> None:
    answerer.otherwise = {"rows": [], "matched": 7, "after": "the same again"}

    ended = run(monkeypatch, "queues", env=env, is_terminal=False)

    assert (ended.status, json.loads(ended.out)) == (0, {"rows": [], "matched": 7})
