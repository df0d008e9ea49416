"""Types and their JSON form: how values travel, and what a schema says about them."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict, deprecated

from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE, ENUM_NAMES, Adapter

ODD = b"\xff\x00\x80"


@dataclass
class Blob:
    data: bytes


class Packet(TypedDict):
    data: bytes


class Text(BaseModel):
    """pydantic's own way: octets are text."""

    data: bytes


class Sealed(BaseModel):
    model_config = ConfigDict(strict=True)

    ident: UUID
    chosen: Decimal


class Side(Enum):
    BUY = "b"
    SELL = "s"


@deprecated("use Text")
class Old(BaseModel):
    data: int = 0


class Older(BaseModel):
    data: Annotated[int, Field(deprecated="use `more`")] = 0
    more: int = 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (bytes, ODD),
        (list[bytes], [ODD, b""]),
        (dict[str, bytes | None], {"a": ODD, "b": None}),
        (Blob, Blob(ODD)),
        (list[Blob], [Blob(ODD)]),
        (Packet, {"data": ODD}),
        (Text, Text(data=b"plain")),
        (Annotated[Blob, "kept"], Blob(ODD)),
    ],
)
def test_octets_come_back_as_they_were(kind: Any, value: Any) -> None:
    adapter = Adapter(kind)

    assert adapter.read(json.loads(adapter.write(value))) == value


def test_octets_travel_as_base64_but_in_models_that_say_otherwise() -> None:
    assert Adapter(bytes).write(ODD) == b'"_wCA"'
    assert Adapter(Text).write(Text(data=b"plain")) == b'{"data":"plain"}'


@pytest.mark.parametrize("written", ["_wCA", "/wCA"])
def test_octets_are_read_in_both_alphabets_of_base64(written: str) -> None:
    assert Adapter(bytes).read(written) == ODD


def test_octets_that_are_no_base64_are_refused() -> None:
    with pytest.raises(ValidationError, match="base64"):
        Adapter(bytes).read("?")


def test_strict_model_takes_what_json_has_instead_of_its_types() -> None:
    value = Sealed(ident=UUID(int=7), chosen=Decimal("1.5"))
    adapter = Adapter(Sealed)

    assert adapter.read(json.loads(adapter.write(value))) == value
    with pytest.raises(ValidationError):
        adapter.read({"ident": "x", "chosen": "1.5"})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (IPv4Address, IPv4Address("127.0.0.1")),
        (deque[int], deque([1])),
        (PurePosixPath, PurePosixPath("a/b")),
    ],
)
def test_types_with_a_rule_for_json_and_one_for_python_come_back(kind: Any, value: Any) -> None:
    adapter = Adapter(kind)

    assert adapter.read(json.loads(adapter.write(value))) == value


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_schema_names_decimals_and_the_members_of_enumerations(mode: Any) -> None:
    assert Adapter(Decimal).schema(mode)["format"] == "decimal"
    assert Adapter(Side).schema(mode)[ENUM_NAMES] == ["BUY", "SELL"]


def test_schema_says_why_a_model_or_field_is_deprecated() -> None:
    old, older = (Adapter(kind).schema("validation") for kind in (Old, Older))

    assert (old["deprecated"], old[DEPRECATED_BECAUSE]) == (True, "use Text")
    assert older["properties"]["data"]["deprecated"] is True
    assert older["properties"]["data"][DEPRECATED_BECAUSE] == "use `more`"
    assert "deprecated" not in older["properties"]["more"]
