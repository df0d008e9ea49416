"""OpenAPI documents: valid, and complete by the page about HTTP calls.

`tests/host/test_http_openapi.py` tests that they are true.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from nebula.codegen.openapi import openapi_document
from nebula.error_codes import CODES
from nebula.rpc.http_problems import status_of
from tests.docs_runner import ROOT
from tests.rpc import depot
from tests.rpc.described import described

HTTP_PAGE = ROOT / "docs" / "how-to" / "http.md"


def faults(document: dict[str, Any]) -> list[str]:
    return [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return described(depot.app)


@pytest.fixture(scope="module")
def document(told: dict[str, Any]) -> dict[str, Any]:
    return openapi_document(told, "https://api.example")


def responses_of(document: dict[str, Any], verb: str) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][f"/call/depot/{verb}"]["post"]["responses"]
    return found


def test_document_is_valid(document: dict[str, Any]) -> None:
    assert faults(document) == []
    assert document["openapi"] == "3.1.0"
    assert document["servers"] == [{"url": "https://api.example"}]


def test_validator_refuses_what_is_no_document(told: dict[str, Any]) -> None:
    # The smaller, the quicker it is checked.
    verbs = [one for one in told["verbs"] if one["verb"] == "place"]
    document = openapi_document({**told, "verbs": verbs})
    broken = json.loads(json.dumps(document))
    broken["components"]["schemas"]["Order"]["properties"]["symbol"]["minLength"] = "one"

    assert faults(broken)
    assert faults({**document, "paths": {"price": {}}})


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    found = set(re.findall(r'"(#/[^"]+)"', text))
    for reference in found:
        target: Any = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]

    # Those of discriminators, too.
    assert {"#/components/schemas/Card", "#/components/schemas/Cash"} <= found
    assert "$defs" not in text


def test_each_verb_is_an_operation_with_its_texts(document: dict[str, Any], told: dict[str, Any]) -> None:
    operations = {path: one["post"] for path, one in document["paths"].items() if "post" in one}
    price, cost = operations["/call/depot/price"], operations["/call/depot/cost"]

    assert set(operations) == {f"/call/depot/{verb['verb']}" for verb in told["verbs"]}
    assert (price["summary"], price["description"]) == ("Price of `qty` pieces.", "The day's.")
    assert (cost["deprecated"], cost["description"]) == (True, "Deprecated: ask `price` instead")
    assert (price["tags"], operations["/call/depot/ping"]["tags"]) == (["depot"], ["built-in"])
    assert price["requestBody"]["required"] is True
    assert price["x-idempotent"] is True


def test_stream_is_described_as_one_reply_and_as_it_is_streamed(document: dict[str, Any]) -> None:
    content = responses_of(document, "ticks")["200"]["content"]

    assert set(content) == {"application/json", "application/x-ndjson", "text/event-stream"}
    assert content["application/json"]["schema"]["type"] == "array"
    assert content["application/x-ndjson"]["x-item"] == content["application/json"]["schema"]["items"]
    assert "streaming-only" in responses_of(document, "ticks")["406"]["description"]
    assert "406" not in responses_of(document, "price")


def test_job_replies_with_its_id_and_its_result_has_a_path(document: dict[str, Any]) -> None:
    accepted = responses_of(document, "stock")["200"]["content"]["application/json"]["schema"]
    result = document["paths"]["/jobs/depot/{id}/result"]["get"]

    assert accepted["required"] == ["job", "state"]
    assert set(result["responses"]["200"]["content"]) == {
        "application/x-ndjson",
        "text/csv",
        "application/vnd.apache.parquet",
    }
    assert {"404", "409", "410"} <= set(result["responses"])


def test_declared_errors_stand_at_their_status(document: dict[str, Any]) -> None:
    responses = responses_of(document, "price")
    later = responses["503"]["content"]["application/json"]["examples"]["out-of-stock"]["value"]

    assert later == {"code": "out-of-stock", "message": "There are not so many left.", "retryable": True}
    assert "ghosts-only" in responses["422"]["content"]["application/json"]["examples"]


def test_codes_and_statuses_are_those_of_the_page_about_http(document: dict[str, Any]) -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| (\d{3}) \|", HTTP_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    page = {(code, status) for codes, status in rows for code in re.findall(r"`([a-z-]+)`", codes)}
    shown = {
        (code, status)
        for item in document["paths"].values()
        for operation in item.values()
        for status, response in operation["responses"].items()
        for code in response["content"].get("application/json", {}).get("examples", {})
    }
    declared = {("out-of-stock", "503"), ("ghosts-only", "422")}
    # A method that the path does not have is no operation; the rest is of jobs that ended, which no call of a
    # verb ends with, but `job.wait` may report.
    left_out = {("method-not-allowed", "405")} | {
        (code, str(status_of(code).value))
        for code in (
            "analysis", "data", "python", "worker-crashed", "job", "engine-unavailable", "engine-lost",
            "out-of-memory",
        )
    }  # fmt: skip

    assert page - shown == left_out
    assert shown - page - declared == set()
    assert {code for code, _ in shown} & set(CODES)


def test_verbs_of_any_name_are_operations_of_their_own(told: dict[str, Any]) -> None:
    verbs = ["a b", "a_b", "pr\xfcfe", "{id}", "\u0436"]
    renamed = [{**told["verbs"][0], "verb": one} for one in verbs]

    document = openapi_document({**told, "service": "a/b", "verbs": renamed})

    assert faults(document) == []
    assert len({one["post"]["operationId"] for one in document["paths"].values()}) == len(verbs)
    assert "/call/a%2Fb/%7Bid%7D" in document["paths"]


def test_model_that_is_called_as_the_error_has_another_name(told: dict[str, Any]) -> None:
    result = {"$ref": "#/$defs/E", "$defs": {"E": {"title": "NebulaError", "type": "string"}}}

    document = openapi_document({**told, "verbs": [{**told["verbs"][0], "result": result}]})

    assert document["components"]["schemas"]["NebulaError2"] == {"title": "NebulaError2", "type": "string"}
    assert document["components"]["schemas"]["NebulaError"]["required"] == ["code", "message", "retryable"]
