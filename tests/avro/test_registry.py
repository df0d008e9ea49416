"""The registry: a folder of schemas by fingerprint, and what it takes in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nebula.avro import Registry, Schema
from nebula.errors import AvroError, SettingsError


def reading(*more: dict[str, Any], name: str = "egm.Reading_v1") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "gmid", "type": "string"}, *more]}


MINOR = {"name": "meter", "type": "long", "default": 0}
BREAKING = {"name": "meter", "type": "long"}


def test_a_folder_is_read_whatever_its_files_are_called(tmp_path: Path) -> None:
    (tmp_path / "one.avsc").write_text(json.dumps(reading()))
    (tmp_path / "two.avsc").write_text(json.dumps(reading(MINOR)))
    (tmp_path / "same.avsc").write_text(json.dumps(reading() | {"doc": "the first one, described"}))
    (tmp_path / "notes.txt").write_text("no schema")
    registry = Registry(tmp_path)

    assert {schema.fingerprint for schema in registry} == {
        Schema(reading()).fingerprint,
        Schema(reading(MINOR)).fingerprint,
    }
    assert len(registry.by_name("egm.Reading_v1")) == 2
    assert registry.by_name("egm.Other_v1") == []


def test_a_schema_is_known_once_it_is_registered_and_after_a_restart(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "new")
    schema = registry.register(reading())

    for one in (registry, Registry(tmp_path / "new")):
        found = one.by_fingerprint(schema.fingerprint)
        assert found is not None
        assert found.definition == reading()
    assert registry.by_fingerprint(schema.fingerprint + 1) is None


def test_name_of_a_new_schema_is_on_the_disk_before_it_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path)
    synced: list[tuple[Path, list[str], int]] = []

    def sync(folder: Path) -> None:
        synced.append((folder, [file.suffix for file in folder.iterdir()], len(list(registry))))

    monkeypatch.setattr("nebula.avro.registry.sync_folder", sync)
    registry.register(reading())

    assert synced == [(tmp_path, [".avsc"], 0)]


def test_registering_again_changes_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    first = registry.register(reading())

    assert registry.register(json.dumps(reading() | {"doc": "described"})) is first
    assert len(list(tmp_path.iterdir())) == 1


def test_versions_that_read_each_other_share_a_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(reading())
    registry.register(reading(MINOR))

    assert len(registry.by_name("egm.Reading_v1")) == 2


@pytest.mark.parametrize(("old", "new"), [((), (BREAKING,)), ((BREAKING,), ())])
def test_a_breaking_change_needs_a_new_name(tmp_path: Path, old: Any, new: Any) -> None:
    registry = Registry(tmp_path)
    first = registry.register(reading(*old))

    with pytest.raises(AvroError, match=f"not compatible with {first.fingerprint_hex}: meter: .*new major"):
        registry.register(reading(*new))
    registry.register(reading(*new, name="egm.Reading_v2"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_version_has_to_fit_all_that_share_its_name(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    registry.register(reading())
    registry.register(reading(MINOR))

    with pytest.raises(AvroError, match="long cannot be read as string"):
        registry.register(reading({"name": "meter", "type": "string", "default": ""}))


@pytest.mark.parametrize(
    "text",
    ["{", '{"type": "array", "items": "int"}', '"int"', '{"type": "record", "name": "../x", "fields": []}'],
)
def test_what_is_refused_leaves_no_file(tmp_path: Path, text: str) -> None:
    registry = Registry(tmp_path)

    with pytest.raises(AvroError):
        registry.register(text)
    assert list(registry) == []
    assert list(tmp_path.iterdir()) == []


def test_a_schema_just_small_enough_is_read_again(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    fields = [{"name": f"f{n}", "type": "int", "doc": "é" * 400} for n in range(107)]
    registry.register(reading(*fields))

    (file,) = tmp_path.iterdir()
    assert "\n" not in file.read_text()  # for people to read it would be too large
    assert len(list(Registry(tmp_path))) == 1
    with pytest.raises(AvroError, match="more than"):
        registry.register(reading({"name": "x", "type": "int", "doc": "é" * 44_000}, name="egm.Large_v1"))


@pytest.mark.parametrize("content", [b"{", b"\xff", b'"int"', json.dumps(reading(BREAKING)).encode()])
def test_a_folder_with_a_file_that_could_not_be_registered_is_refused_by_the_files_name(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.avsc").write_text(json.dumps(reading()))
    (tmp_path / "bad.avsc").write_bytes(content)

    with pytest.raises(SettingsError, match=r"bad\.avsc"):
        Registry(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schemas").write_text("")

    with pytest.raises(SettingsError, match="schemas"):
        Registry(tmp_path / "schemas")
