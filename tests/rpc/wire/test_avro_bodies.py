"""Bodies in Avro: what a verb with schemas takes and returns, and what happens to other bodies."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from nebula.avro import Schema
from nebula.errors import AvroError, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.avro_bodies import (
    MESSAGE,
    AvroValue,
    in_avro,
    read_message,
    read_value,
    write_message,
    write_value,
)
from nebula.rpc.wire.envelope import encode, media_of, parse
from tests.rpc.conftest import Serving

AVRO = "avro/binary"


class Side(Enum):
    BUY = "buy"
    SELL = "sell"


class Order(BaseModel):
    symbol: str
    qty: int = 1
    side: Side = Side.BUY
    photo: bytes = b""
    price: Decimal = Decimal("1.25")
    day: dt.date = dt.date(2026, 11, 21)


PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = Schema(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "symbol", "type": "string"},
            {"name": "qty", "type": "int"},
            {"name": "side", "type": {"type": "enum", "name": "shop.Side", "symbols": ["buy", "sell"]}},
            {"name": "photo", "type": "bytes"},
            {"name": "price", "type": PRICE},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ],
    }
)
ASKED = Schema(
    {
        "type": "record",
        "name": "shop.Asked",
        "fields": [{"name": "symbol", "type": "string"}, {"name": "qty", "type": "int", "default": 1}],
    }
)
AMOUNT = Schema(PRICE)


def test_value_comes_back_as_it_was() -> None:
    order = Order(symbol="é", side=Side.SELL, photo=b"\xff\x00")
    verb, value, description = read_message(write_message("place", write_value(ORDER, order), "now"))

    assert (verb, description) == ("place", "now")
    assert value.fingerprint == ORDER.fingerprint
    assert Order.model_validate(read_value(ORDER, value)) == order


def test_json_stands_where_no_schema_is_declared() -> None:
    assert read_message(write_message("a", b'{"b":[1]}', None)) == (
        "a",
        AvroValue(None, plain={"b": [1]}),
        None,
    )
    assert read_message(write_message("a", None, None)) == ("a", AvroValue(None), None)


def test_body_is_readable_with_the_published_schema() -> None:
    fields = Schema(MESSAGE).decode(write_message("a", write_value(ASKED, {"symbol": "x"}), None))

    assert fields["verb"] == "a"
    assert fields["parameters"] == b"\xc3\x01" + ASKED.fingerprint.to_bytes(8, "little") + b"\x02x\x02"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x02",
        b'{"verb":"a"}',
        Schema(MESSAGE).encode({"verb": "a", "parameters": b"\xc3\x01short", "description": None}),
        Schema(MESSAGE).encode({"verb": "a", "parameters": b"\xc3\x02" + bytes(9), "description": None}),
        Schema(MESSAGE).encode({"verb": "a", "parameters": "{", "description": None}),
        Schema(MESSAGE).encode({"verb": "a", "parameters": None, "description": None}) + b"\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_body_that_is_no_message_is_a_free_body(body: bytes) -> None:
    with pytest.raises(AvroError):
        read_message(body)

    assert parse({"content-type": AVRO}, body).verb is None


def test_page_shows_the_schema_of_a_body() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/avro.md").read_text()
    (shown,) = re.findall(
        r'^```json\n(\{"type": "record", "name": "nebula.Message".*?)^```', page, re.MULTILINE | re.DOTALL
    )

    assert json.loads(shown) == MESSAGE


def test_value_of_another_schema_is_refused() -> None:
    _, value, _ = read_message(write_message("a", write_value(ASKED, {"symbol": "x"}), None))

    with pytest.raises(AvroError, match="written with the schema"):
        read_value(ORDER, value)
    with pytest.raises(AvroError, match="no schema is declared"):
        read_value(None, value)
    with pytest.raises(AvroError):
        write_value(ORDER, {"symbol": "x"})


def test_reply_follows_the_requests_content_type() -> None:
    assert media_of("avro/binary").reply_type == AVRO
    assert media_of("Avro/Binary; charset=x").reply_type == AVRO
    assert media_of("avro/json").reply_type == "avro/json"


app = Responder("avro-shop")


@app.verb
@in_avro(parameters=ASKED, result=AMOUNT)
async def price(symbol: str, qty: int = 1) -> Decimal:
    if symbol == "ghost":
        raise VerbError("sold-out", "no ghosts left", details={"left": 0})
    return Decimal("1.25") * qty


@app.verb
@in_avro(parameters=ORDER, result=ORDER)
def place(order: Order) -> Order:
    return order


@app.verb
@in_avro()
def close() -> None: ...


@app.verb
def plain(symbol: str) -> dict[str, str]:
    return {"symbol": symbol}


async def exchanged(client: Client, body: bytes, content_type: str = AVRO) -> tuple[str, bytes]:
    """Content type and body of the answer to a raw request."""
    inbox = "/queue/avro-answers"
    async with client.stomp.subscribe(inbox) as answers:
        headers = {"content-type": content_type, "neb-reply-to": inbox, "neb-reply-id": "7"}
        await client.stomp.send("/queue/avro-shop", body, headers)
        answer = await anext(answers)
        return answer.headers["content-type"], answer.body


@pytest.mark.anyio
async def test_request_in_avro_is_answered_in_avro(serving: Serving, client: Client) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            body = write_message("price", write_value(ASKED, {"symbol": "A", "qty": 2}), None)
            content_type, answer = await exchanged(client, body)

    verb, value, _ = read_message(answer)
    assert (content_type, verb) == (AVRO, "priceresponse")
    assert read_value(AMOUNT, value) == Decimal("2.50")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (write_message("price", write_value(ASKED, {"symbol": "ghost"}), None), "sold-out"),
        (write_message("price", write_value(ORDER, Order(symbol="A")), None), "bad-parameters"),
        (write_message("plain", write_value(ASKED, {"symbol": "A"}), None), "bad-parameters"),
        (write_message("nothing", None, None), "unknown-verb"),
        (write_message("price", b'{"qty":1}', None), "bad-parameters"),
        (b"garbage", "bad-request"),
    ],
)
async def test_error_of_a_request_in_avro_has_its_fields_as_json(
    serving: Serving, client: Client, body: bytes, code: str
) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            content_type, answer = await exchanged(client, body)

    verb, value, description = read_message(answer)
    assert (content_type, verb, value.plain["code"]) == (AVRO, "error", code)
    assert description


@pytest.mark.anyio
async def test_verb_without_schemas_is_asked_in_avro_with_parameters_as_json(
    serving: Serving, client: Client
) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            _, answer = await exchanged(client, write_message("plain", b'{"symbol":"A"}', None))

    assert read_message(answer)[1].plain == {"symbol": "A"}


@pytest.mark.anyio
async def test_verb_with_schemas_is_asked_in_json_as_ever(serving: Serving, client: Client) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            content_type, answer = await exchanged(
                client, b'{"verb":"price","parameters":["A"]}', "application/json"
            )

    assert (content_type, answer) == ("application/json", b'{"verb":"priceresponse","parameters":"1.25"}')


@pytest.mark.anyio
async def test_call_by_function_goes_in_avro_where_the_verb_declares_it(
    serving: Serving, client: Client
) -> None:
    order = Order(symbol="é", side=Side.SELL, photo=b"\xff\x00", price=Decimal("7.10"))

    with anyio.fail_after(10):
        async with serving(app):
            assert await client.call(price, "A", qty=3) == Decimal("3.75")
            assert await client.call(place, order) == order
            await client.call(close)
            with pytest.raises(RemoteError) as caught:
                await client.call(price, "ghost")

    assert (caught.value.code, caught.value.details) == ("sold-out", {"left": 0})


@pytest.mark.anyio
async def test_describe_shows_the_schemas(serving: Serving, client: Client) -> None:
    with anyio.fail_after(10):
        async with serving(app):
            verbs: list[dict[str, Any]] = (await client.call("avro-shop", "describe"))["verbs"]

    told: dict[str, Any] = {verb["verb"]: verb.get("avro") for verb in verbs}
    assert told["price"]["parameters"] == {"fingerprint": ASKED.fingerprint_hex, "schema": ASKED.definition}
    assert told["plain"] is None


def test_text_is_read_and_written_as_ever() -> None:
    assert parse({"content-type": "text/plain"}, b"verb: a\nparameters: b\n\n").parameters == "b"
    assert encode(AVRO, "a", b"[]") == write_message("a", b"[]", None)
