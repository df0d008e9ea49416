"""What a reload does with each setting: it is as the field says, and there is no third case."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from pydantic import ValidationError

from nebula.broker import assembly as assemblies
from nebula.broker.assembly import Assembly
from nebula.broker.operations.certificates import make_authority
from nebula.broker.settings import BrokerSettings, SettingsSource
from nebula.errors import SettingsError
from nebula.logs import Level
from nebula.settings import AT_RELOAD, Changes, Reload, changes
from nebula.settings_files import json_schema
from tests.own_logs import own_logs

SCHEMA = json_schema(BrokerSettings)


def settings_of_schema() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each setting: its table, its name and its schema."""
    for name, setting in SCHEMA["properties"].items():
        inner = setting.get("items", setting).get("properties")
        if inner is None:
            yield "", name, setting
        else:
            yield from ((name, each, schema) for each, schema in inner.items())


SETTINGS = list(settings_of_schema())
MARKED = {
    reload: [(table, name) for table, name, schema in SETTINGS if schema.get(AT_RELOAD) == reload]
    for reload in (Reload.VALUE, Reload.CONTENTS)
}


class Started:
    """A broker of a file, which the test changes between its start and a reload."""

    def __init__(self, folder: Path, tree: dict[str, Any]) -> None:
        self.file = folder / "nebula.toml"
        self.write(tree)
        source = SettingsSource(self.file, {})
        self.assembly = Assembly(source.read().value, lambda error: None, source=source)

    def write(self, tree: dict[str, Any]) -> None:
        self.file.write_text("".join(f"{key} = {toml(value)}\n" for key, value in tree.items()))

    def reload(self, tree: dict[str, Any]) -> None:
        self.write(tree)
        self.assembly.reload()

    async def __aenter__(self) -> Self:
        await self.assembly.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.assembly.server.stop()


def toml(value: Any) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case _:
            return json.dumps(value)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    authority = make_authority("site", days=1)
    authority.certificate.write(folder, "ca")
    authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
    (folder / "deny.txt").write_text("# nobody yet")
    (folder / "users.toml").write_text(f'[users]\nann = "{argon2.PasswordHasher(1, 8, 1).hash("a")}"\n')
    key = jwt.get_algorithm_by_name("ES256").to_jwk(generate_private_key(SECP256R1()).public_key())
    (folder / "keys.json").write_text(json.dumps({"keys": [json.loads(key)]}))
    (folder / "metrics.token").write_text("a-token-of-many-characters")
    (folder / "rights.toml").write_text("[capability.Read]\nsubscribe = ['X/*']\n")
    (folder / "schemas").mkdir()
    return folder


@pytest.fixture
def tree(site: Path) -> dict[str, Any]:
    """Settings in which each table occurs, and each file that a reload reads."""
    return {
        "store": "memory",
        "http": 0,
        "metrics_token": str(site / "metrics.token"),
        "schemas": str(site / "schemas"),
        "rights": [str(site / "rights.toml")],
        "listener": [
            {
                "port": 0,
                "http": True,
                "tls_cert": str(site / "server.pem"),
                "tls_key": str(site / "server.key"),
                "client_ca": str(site / "ca.pem"),
                "deny": str(site / "deny.txt"),
            }
        ],
        "identity": {"users": str(site / "users.toml"), "jwks": str(site / "keys.json")},
        "destination": [{"pattern": "/queue/a"}],
        "share": [{"pattern": "a"}],
        "last_value": {},
        "limits": {},
    }


def table_of(tree: dict[str, Any], table: str) -> dict[str, Any]:
    found: Any = tree[table] if table else tree
    inner: dict[str, Any] = found[0] if isinstance(found, list) else found
    return inner


def candidates(old: Any, schema: dict[str, Any]) -> Iterator[Any]:
    yield from schema.get("examples", ())
    yield from schema.get("enum", ())
    match old:
        case bool():
            yield not old
        case int() | float():
            yield from (old + 1, old - 1, old / 2)
        case str():
            yield old + "x"
        case list():
            yield [*old, "x"]


def changed(tree: dict[str, Any], table: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The tree with another good value of one setting."""
    old = table_of(tree, table).get(name, schema.get("default"))
    for value in candidates(old, schema):
        new = copy.deepcopy(tree)
        table_of(new, table)[name] = value
        try:
            BrokerSettings.model_validate(new)
        except ValidationError:
            continue
        if value != old:
            return new
    raise AssertionError(f"no other value for {name}")


def shown(table: str, name: str) -> str:
    if not table:
        return name
    return f"[[{table}]] 1: {name}" if "items" in SCHEMA["properties"][table] else f"[{table}] {name}"


@pytest.mark.parametrize(
    ("table", "name", "schema"), SETTINGS, ids=lambda each: each if isinstance(each, str) else ""
)
def test_change_is_named_as_what_the_field_says(
    tree: dict[str, Any], table: str, name: str, schema: dict[str, Any]
) -> None:
    new = BrokerSettings.model_validate(changed(tree, table, name, schema))
    found = changes(BrokerSettings.model_validate(tree), new)

    if schema.get(AT_RELOAD) == Reload.VALUE:
        assert found == Changes(reload=(shown(table, name),), restart=())
    else:
        assert found == Changes(reload=(), restart=(shown(table, name),))


@pytest.mark.anyio
async def test_reload_takes_marked_settings_and_names_all_others(
    tree: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[Level] = []
    monkeypatch.setattr(assemblies, "configure", levels.append)
    broker = Started(tmp_path, tree)
    rights = broker.assembly.access.rights_of("nobody")
    taken: dict[tuple[str, str], Callable[[], bool]] = {
        ("", "log_level"): lambda: levels == [Level.DEBUG],
        ("", "rights"): lambda: rights.may_publish("/queue/a"),
    }
    others = [each for each in SETTINGS if each[:2] not in taken]
    assert not any(is_taken() for is_taken in taken.values())

    async with broker:
        with own_logs() as logged:
            for table, name, schema in others:
                broker.reload(changed(tree, table, name, schema))
            assert not any(is_taken() for is_taken in taken.values())
            broker.reload({**without(tree, "rights"), "log_level": "debug"})

    named = [each["settings"] for each in logged if each["event"] == "restart needed"]
    assert named == [[shown(table, name)] for table, name, _ in others]
    assert [name for (_, name), is_taken in taken.items() if not is_taken()] == []
    assert {*taken} == {*MARKED[Reload.VALUE]}


@pytest.mark.anyio
@pytest.mark.parametrize(("table", "name"), MARKED[Reload.CONTENTS])
async def test_reload_reads_the_file_of_a_marked_setting_again(
    tree: dict[str, Any], tmp_path: Path, table: str, name: str
) -> None:
    file = Path(table_of(tree, table)[name])
    before = file.read_bytes()
    async with Started(tmp_path, tree) as broker:
        broker.reload(tree)
        try:
            file.write_bytes(b"\xff no such thing")
            with pytest.raises(SettingsError, match=file.name):
                broker.reload(tree)
        finally:
            file.write_bytes(before)


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", [{"store": "disk"}, {"rights": ["nowhere.toml"]}])
async def test_wrong_settings_leave_those_that_run_as_they_were(
    tree: dict[str, Any], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    async with Started(tmp_path, tree) as broker:
        rights = broker.assembly.access.rights_of("nobody")
        with pytest.raises(SettingsError, match=r"disk|nowhere"):
            broker.reload({**without(tree, "rights"), **wrong})
        # The rights that held are still read from their files.
        assert not rights.may_publish("/queue/a")

        broker.reload(without(tree, "rights"))
        assert rights.may_publish("/queue/a")


def without(tree: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key != name}


def test_table_that_comes_or_goes_is_named_as_a_whole(tree: dict[str, Any]) -> None:
    more = {**tree, "destination": [*tree["destination"], {"pattern": "/queue/b"}], "share": []}
    old, new = BrokerSettings.model_validate(tree), BrokerSettings.model_validate(more)

    assert changes(old, new).restart == ("[[share]] 1", "[[destination]] 2")
    assert changes(new, old).restart == ("[[destination]] 2", "[[share]] 1")


def test_each_setting_that_names_a_file_is_marked() -> None:
    named = {(table, name) for table, name, schema in SETTINGS if schema.get("format") == "path"}
    folders = {("", "data"), ("", "backups"), ("", "schemas")}

    assert named - folders == {*MARKED[Reload.CONTENTS]}


@pytest.mark.anyio
@pytest.mark.parametrize("is_named", [True, False])
async def test_reload_without_the_file_of_the_start_leaves_all_settings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    rights = tmp_path / "rights.toml"
    rights.write_text("")
    file = tmp_path / "nebula.toml"
    file.write_text(f'rights = [{str(rights)!r}]\nstore = "memory"\n')
    source = SettingsSource(file if is_named else None, {})
    assembly = Assembly(source.read().value, lambda error: None, source=source)
    await assembly.server.start()
    try:
        # As a program does that writes it anew, or a mistake: the broker must not open itself to everybody.
        file.unlink()
        with pytest.raises(SettingsError, match="No such file"):
            assembly.reload()
        assert not assembly.access.is_open
    finally:
        await assembly.server.stop()
