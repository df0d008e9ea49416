"""AsyncAPI documents: valid by the official schema, and true of what goes over the wire."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from nebula.avro import Schema
from nebula.codegen.asyncapi import asyncapi_document
from nebula.rpc.contract.signature import Signature
from nebula.rpc.contract.verbs import Verb
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.avro_bodies import MESSAGE, in_avro
from nebula.rpc.wire.envelope import JSON_TYPE, encode
from nebula.rpc.wire.reply_body import failure
from nebula.testing import TestClient
from tests.rpc import depot
from tests.rpc.asyncapi_schema import OFFICIAL, faults
from tests.rpc.described import described


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    verbs = [{**one, "queue": "/queue/depot"} for one in described(depot.app)["verbs"]]
    return {"service": "depot", "queues": ["/queue/depot", "/queue/depot slow"], "verbs": verbs}


@pytest.fixture(scope="module")
def document(told: dict[str, Any]) -> dict[str, Any]:
    return asyncapi_document(told, "stomps://alice:secret@broker.example:61614")


def test_document_is_valid_by_the_official_schema(document: dict[str, Any]) -> None:
    assert faults(OFFICIAL, document) == []


def test_official_schema_refuses_what_is_no_document(document: dict[str, Any]) -> None:
    assert faults(OFFICIAL, document | {"operations": {"price": {"action": "answer"}}})
    broken = json.loads(json.dumps(document))
    broken["components"]["schemas"]["Order"]["properties"]["symbol"]["minLength"] = "one"

    assert faults(OFFICIAL, broken)


@pytest.mark.anyio
@pytest.mark.parametrize(("version", "shown"), [("1.2", "1.2"), ("", "0.0.0")])
async def test_version_is_what_the_service_tells(version: str, shown: str) -> None:
    app = Responder("versioned", version=version)
    async with TestClient(app) as client:
        described = await client.call("versioned", "describe")

    assert asyncapi_document(described)["info"] == {"title": "versioned", "version": shown}
    assert ("version" in described) is bool(version)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(reference := node.get("$ref"), str):
                found.append(reference)
            for one in node.values():
                visit(one)
        elif isinstance(node, list):
            for one in node:
                visit(one)

    visit(document)
    for reference in set(found):
        target: Any = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    assert len(set(found)) > 20


def test_every_verb_is_an_operation_that_receives_and_replies(document: dict[str, Any]) -> None:
    price = document["operations"]["price"]

    assert {"price", "pay", "price.list", "ping", "describe", "stock"} <= set(document["operations"])
    assert price["action"] == "receive"
    assert price["channel"] == {"$ref": "#/channels/queue_depot"}
    assert document["channels"]["queue_depot"]["address"] == "/queue/depot"
    assert price["reply"]["address"] == {"location": "$message.header#/neb-reply-to"}
    assert [one["$ref"].rpartition("/")[2] for one in price["reply"]["messages"]] == [
        "price.reply",
        "error.out-of-stock",
        "error.ghosts-only",
        "error",
    ]
    assert (price["summary"], price["description"]) == ("Price of `qty` pieces.", "The day's.")
    assert document["components"]["messages"]["cost.request"]["deprecated"] is True


def test_verbs_of_any_name_are_operations_of_their_own_under_plain_keys(told: dict[str, Any]) -> None:
    verbs = ["a b", "a_b", "pr\xfcfe", "\u0436", "\u0437"]
    errors = [{"code": code, "description": "", "retryable": False} for code in ("x y", "x_y")]
    title = {"title": "Pr\xfcfung", "type": "object", "properties": {}}
    result = {"$ref": "#/$defs/A", "$defs": {"A": title}}
    renamed = [
        {**told["verbs"][0], "verb": one, "errors": errors, "result": result, "queue": "/queue/a b"}
        for one in verbs
    ]

    document = asyncapi_document({**told, "verbs": renamed, "queues": ["/queue/a b", "/queue/a_b"]})

    operations = document["operations"]
    assert sorted(one["title"] for one in operations.values()) == sorted(verbs)
    keys = [
        key for part in (document["channels"], operations, *document["components"].values()) for key in part
    ]
    assert not [key for key in keys if not re.fullmatch(r"[A-Za-z0-9_.-]+", key)]
    replies = operations["a_b"]["reply"]["messages"]
    assert len({one["$ref"] for one in replies}) == len(replies)
    assert {"/queue/a b", "/queue/a_b"} <= {one["address"] for one in document["channels"].values()}
    assert faults(OFFICIAL, document) == []


def test_verb_with_avro_schemas_has_messages_in_avro_too() -> None:
    parameters = Schema({"type": "record", "name": "Ask", "fields": [{"name": "symbol", "type": "string"}]})

    @in_avro(parameters=parameters, result=Schema("double"))
    def quote(symbol: str) -> float:
        raise NotImplementedError

    verb = {**Verb(quote).describe(), "queue": "/queue/prices"}
    document = asyncapi_document({"service": "prices", "queues": ["/queue/prices"], "verbs": [verb]})

    messages = document["components"]["messages"]
    avro = messages["quote.request.avro"]
    assert faults(OFFICIAL, document) == []
    assert avro["contentType"] == "avro/binary"
    assert Schema(avro["payload"]["schema"]).fingerprint == Schema(MESSAGE).fingerprint
    assert avro["x-parameters"]["fingerprint"] == parameters.fingerprint_hex
    assert messages["quote.reply.avro"]["x-parameters"]["schema"] == "double"
    assert "contentType" not in messages["quote.request"]


def test_servers_have_no_credentials(document: dict[str, Any]) -> None:
    assert document["servers"] == {"broker": {"host": "broker.example:61614", "protocol": "stomps"}}
    assert "secret" not in json.dumps(document)


def payload_faults(document: dict[str, Any], message: str, body: bytes) -> list[str]:
    """What is wrong with a body, by the document's own schema of that message."""
    schema = {**document["components"]["messages"][message]["payload"], "components": document["components"]}
    return faults(schema, json.loads(body))


@pytest.mark.parametrize(
    ("message", "body", "is_right"),
    [
        ("price.request", b'{"verb":"price","parameters":{"item":"lamp"}}', True),
        ("price.request", b'{"verb":"price","parameters":{"item":"lamp","qty":"two"}}', False),
        ("price.request", b'{"verb":"price","parameters":{"qty":2}}', False),
        ("price.request", b'{"verb":"price"}', False),
        ("price.request", b'{"verb":"cost","parameters":{"item":"lamp"}}', False),
        ("price.reply", b'{"verb":"priceresponse","parameters":"1.25"}', True),
        ("price.reply", b'{"verb":"priceresponse","parameters":{}}', False),
        ("close.request", b'{"verb":"close"}', True),
        ("success", b'{"verb":"success","parameters":[],"description":""}', True),
        ("pay.request", b'{"verb":"pay","parameters":{"payment":{"kind":"card","number":"1"}}}', True),
        ("pay.request", b'{"verb":"pay","parameters":{"payment":{"kind":"cheque","number":"1"}}}', False),
        (
            "list.reply",
            b'{"verb":"listresponse","parameters":[{"fast":true},"00000000-0000-0000-0000-000000000003"]}',
            True,
        ),
        ("list.reply", b'{"verb":"listresponse","parameters":[{"fast":true},"x",3]}', False),
        ("ticks.reply", b'{"verb":"ticksresponse","parameters":[{"x":1,"y":0,"tags":[],"digest":""}]}', True),
        ("ticks.reply", b'{"verb":"ticksresponse","parameters":{"x":1}}', False),
        ("stock.accepted", b'{"verb":"success","parameters":{"job":"depot/1","state":"queued"}}', True),
    ],
)
def test_payloads_are_right_or_wrong_as_for_the_service(
    document: dict[str, Any], message: str, body: bytes, is_right: bool
) -> None:
    assert (payload_faults(document, message, body) == []) is is_right


def test_what_the_service_writes_is_right_by_the_document(document: dict[str, Any]) -> None:
    order = depot.Order(
        symbol="A", payment=depot.Cash(), parts=[depot.Order(symbol="B", payment=depot.Card(number="1"))]
    )
    receipt = Signature(depot.place).dump(depot.place(order))
    out_of_stock = failure(depot.OutOfStock(details={"left": 1}))
    internal = failure(VerbError("internal", "see the log"))

    assert payload_faults(document, "place.reply", encode(JSON_TYPE, "placeresponse", receipt)) == []
    for name, answer in (("error.out-of-stock", out_of_stock), ("error", internal)):
        body = encode(JSON_TYPE, answer.verb, answer.parameters, answer.description)
        assert payload_faults(document, name, body) == []


def test_models_of_requests_and_of_replies_that_differ_have_two_schemas(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    assert schemas["Order"]["required"] == ["symbol", "payment"]
    assert schemas["Order2"]["properties"]["price"]["type"] == "string"
    assert "prefixItems" not in json.dumps(schemas)
    assert schemas["pay.request"]["properties"]["payment"]["discriminator"] == "kind"
