"""The broker's own verbs, asked of a broker process: schemas, and reading its files again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nebula.avro import Schema
from nebula.errors import RemoteError
from nebula.sync import Client
from tests.cli.programs import running

READING: dict[str, Any] = {
    "type": "record",
    "name": "egm.Reading_v1",
    "fields": [{"name": "meter", "type": "long"}],
}
OTHER = READING | {"name": "egm.Other_v1"}

Ask = Callable[..., Any]


@contextmanager
def asking(*words: str) -> Iterator[Ask]:
    """Run a broker and yield what asks it for one of its verbs."""
    with (
        running("broker", "--port", "0", "--store", "memory", *words) as (_, ready),
        Client(ready["url"]) as client,
    ):

        def ask(verb: str, **parameters: Any) -> Any:
            return client.call("nebula.broker", verb, parameters, timeout=10)

        yield ask


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "reading.avsc").write_text(json.dumps(READING))
    return folder


def test_broker_without_schemas_says_what_to_do() -> None:
    with asking() as ask, pytest.raises(RemoteError) as caught:
        ask("schema.register", definition=READING)

    assert caught.value.code == "unknown-verb"
    assert "start it with --schemas DIR" in str(caught.value)


def code_of(ask: Ask, verb: str, **parameters: Any) -> str:
    with pytest.raises(RemoteError) as caught:
        ask(verb, **parameters)
    return caught.value.code


def test_schemas_are_listed_and_given_by_their_fingerprint(schemas: Path) -> None:
    fingerprint = Schema(READING).fingerprint_hex
    entry = {"name": "egm.Reading_v1", "fingerprint": fingerprint}
    with asking("--schemas", str(schemas)) as ask:
        assert ask("schema.list") == [entry]
        assert ask("schema.list", name="egm.Reading_v1") == [entry]
        assert ask("schema.list", name="egm.Other_v1") == []
        assert ask("schema.get", fingerprint=fingerprint) == entry | {"definition": READING}
        assert code_of(ask, "schema.get", fingerprint="0" * 16) == "not-found"
        assert code_of(ask, "schema.get", fingerprint="no number") == "not-found"


def test_a_schema_that_is_registered_is_known_and_kept(schemas: Path) -> None:
    with asking("--schemas", str(schemas)) as ask:
        entry = ask("schema.register", definition=OTHER)

        assert ask("schema.register", definition=json.dumps(OTHER)) == entry
        assert ask("schema.get", fingerprint=entry["fingerprint"])["definition"] == OTHER
    with asking("--schemas", str(schemas)) as ask:
        assert {one["name"] for one in ask("schema.list")} == {"egm.Reading_v1", "egm.Other_v1"}


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("{", "no JSON"),
        (
            {"type": "record", "name": "R_v1", "fields": [{"name": "a", "type": "egm.Missing_v1"}]},
            "not defined",
        ),
        (READING | {"fields": [{"name": "meter", "type": "string"}]}, "new major version"),
    ],
)
def test_a_schema_that_cannot_be_taken_in_is_refused_with_why(
    schemas: Path, definition: Any, why: str
) -> None:
    with (
        asking("--schemas", str(schemas)) as ask,
        pytest.raises(RemoteError, match=why) as caught,
    ):
        ask("schema.register", definition=definition)
    assert caught.value.code == "bad-schema"
    assert len(list(schemas.iterdir())) == 1


def test_a_broker_without_schemas_has_no_verbs_for_them() -> None:
    with asking() as ask:
        assert code_of(ask, "schema.list") == "unknown-verb"


BOUND = """
[[destination]]
pattern = "X/plain.*"

[[destination]]
pattern = "X/*.*"
avro = "egm.Reading_v1"
content = "bare"

[[destination]]
pattern = "/queue/readings"
avro = "egm.Reading_v1"
"""


@pytest.fixture
def bound(schemas: Path, tmp_path: Path) -> list[str]:
    """What a broker is started with that has destinations of a type."""
    config = tmp_path / "nebula.toml"
    config.write_text(f'schemas = "{schemas}"\n{BOUND}')
    return ["--config", str(config)]


@pytest.mark.parametrize(
    ("destination", "content"),
    [
        ("/queue/readings", "envelope"),
        ("/queue/other", None),
        ("X/EGM.1", "bare"),
        ("X/EGM.*", "bare"),
        ("X/plain.1", None),
    ],
)
def test_what_a_destination_is_bound_to_is_told(
    destination: str, content: str | None, bound: list[str]
) -> None:
    with asking(*bound) as ask:
        told = ask("schema.bound", destination=destination)

    assert told == (None if content is None else {"name": "egm.Reading_v1", "content": content})


def test_who_may_not_use_a_destination_is_not_told_what_it_is_bound_to(
    bound: list[str], tmp_path: Path
) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text('[capability.Look]\nsubscribe = ["X/EGM.*"]\n[identity]\nanonymous = ["Look"]\n')
    with asking(*bound, "--rights", str(rights)) as ask:
        assert ask("schema.bound", destination="X/EGM.*")["content"] == "bare"
        assert ask("schema.bound", destination="X/EGM.1")["content"] == "bare"
        assert code_of(ask, "schema.bound", destination="/queue/readings") == "not-allowed"
        assert code_of(ask, "schema.bound", destination="X/other.1") == "not-allowed"


def test_who_was_not_granted_a_verb_may_only_look(schemas: Path, tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text("")
    with asking("--schemas", str(schemas), "--rights", str(rights)) as ask:
        assert len(ask("schema.list")) == 1
        assert ask("schema.get", fingerprint=Schema(READING).fingerprint_hex)["definition"] == READING
        assert code_of(ask, "schema.register", definition=OTHER) == "not-allowed"
        assert code_of(ask, "rights.reload") == "not-allowed"
    assert len(list(schemas.iterdir())) == 1


def test_anybody_may_ask_what_it_may_do(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    capability = '[capability.Look]\nsubscribe = ["/topic/*"]\npublish = ["/queue/a"]\ncall = ["queue.*"]\n'
    rights.write_text(capability + '[identity]\nanonymous = ["Look"]\n')
    with asking("--rights", str(rights)) as ask:
        mine, topic = ask("rights.mine"), ask("rights.mine", destination="/topic/news")
        queue = ask("rights.mine", destination="/queue/a")

    assert mine["principal"].startswith("anonymous")
    free = {"rights.mine", "schema.bound", "schema.get", "schema.list"}
    assert set(mine["verbs"]) - free == {"queue.peek", "queue.purge", "queue.show"}
    assert (mine["may_publish"], mine["may_subscribe"]) == (None, None)
    assert (topic["may_publish"], topic["may_subscribe"]) == (False, True)
    assert (queue["may_publish"], queue["may_subscribe"]) == (True, False)


def test_rights_are_read_again_when_somebody_asks_who_may(schemas: Path, tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    reload = '[capability.Reload]\ncall = ["rights.reload"]\n'
    both = reload + '[capability.Register]\ncall = ["schema.*"]\n'
    rights.write_text(reload + '[identity]\nanonymous = ["Reload"]\n')
    with asking("--schemas", str(schemas), "--rights", str(rights)) as ask:
        rights.write_text(both + '[identity]\nanonymous = ["Reload", "Register"]\n')
        assert code_of(ask, "schema.register", definition=OTHER) == "not-allowed"
        ask("rights.reload")
        assert ask("schema.register", definition=OTHER)["name"] == "egm.Other_v1"

        rights.write_text("[")
        assert code_of(ask, "rights.reload") == "bad-file"
        assert len(ask("schema.list")) == 2


def test_the_broker_describes_its_verbs_as_any_service_does(schemas: Path) -> None:
    with asking("--schemas", str(schemas)) as ask:
        described = ask("describe")
    assert described["queues"] == ["/queue/nebula.broker"]
    assert {"rights.reload", "schema.get", "schema.list", "schema.register"} <= {
        verb["verb"] for verb in described["verbs"]
    }
