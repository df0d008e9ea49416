"""`GET /openapi/SERVICE.json`: who gets it, and that what it says is what happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]  # it has no types
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.host.http_house import JSON, House, basic, post
from tests.host.priced import running_prices


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_prices(tmp_path_factory.mktemp("prices")) as found:
        yield found


@pytest.fixture(scope="module")
def document(port: int) -> dict[str, Any]:
    status, found = post(port, "/openapi/prices.json", "", {}, method="GET")
    assert status == 200
    assert isinstance(found, dict)
    return found


def test_document_is_valid_and_names_the_service(document: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []
    assert (document["info"]["title"], document["info"]["version"]) == ("prices", "1.2")
    assert document["servers"] == [{"url": "/"}]
    quote = document["paths"]["/call/prices/quote"]["post"]
    assert quote["summary"] == "Price of `qty` units of `symbol`."


def test_document_has_the_identity_rules_of_calls(house: House) -> None:
    def get(port: int, path: str, headers: dict[str, str]) -> tuple[int, Any]:
        return post(port, path, "", headers, method="GET")

    assert get(house.open, "/openapi/shop.json", {})[1]["info"]["title"] == "shop"
    assert get(house.closed, "/openapi/shop.json", basic("alice", "alice's: word"))[0] == 200
    for port, path, headers, status, code in [
        (house.closed, "/openapi/shop.json", {}, 401, "not-admitted"),
        (house.closed, "/openapi/shop.json", basic("alice", "wrong"), 401, "not-admitted"),
        # He has no right to call it.
        (house.closed, "/openapi/shop.json", basic("bob", "bob's: word"), 403, "not-allowed"),
        (house.open, "/openapi/nobody.json", {}, 404, "no-responder"),
        (house.open, "/openapi/shop", {}, 400, "bad-request"),
        (house.open, "/openapi/a%2Fb.json", {}, 400, "bad-request"),
        (house.open, "/openapi/shop.json", {"Host": "evil.example"}, 421, "wrong-host"),
        (house.open, "/openapi/shop.json", {"Origin": "https://evil.example"}, 403, "wrong-origin"),
    ]:
        found, error = get(port, path, headers)
        assert (found, error["code"]) == (status, code), path
    assert post(house.open, "/openapi/shop.json")[0] == 405
    assert get(house.silent, "/openapi/shop.json", {})[0] == 404


CALLS: list[tuple[str, str, dict[str, str], int]] = [
    ("quote", '{"symbol": "ABC"}', {}, 200),
    ("quote", '{"symbol": "ABC", "qty": 2}', {"Neb-Timeout": "5000"}, 200),
    ("quote", '{"symbol": "ABC", "qty": 0}', {}, 422),
    ("quote", '{"symbol": "ABC", "colour": "red"}', {}, 422),
    ("quote", "", {}, 422),
    ("quote", "{", {}, 400),
    ("quote", '{"symbol": "ABC"}', {"Neb-Timeout": "0"}, 400),
    ("quote", '{"symbol": "ABC"}', {"Neb-Timeout": "300001"}, 400),
    ("quote", '{"symbol": "ABC"}', {"Content-Type": "text/plain"}, 415),
    ("quote", '{"symbol": "ABC"}', {"Host": "evil.example"}, 421),
    ("quote", '{"symbol": "ABC"}', {"Origin": "https://evil.example"}, 403),
    ("place", '{"symbol": "ABC", "day": "2026-11-28"}', {}, 200),
    ("place", '{"symbol": "XYZ"}', {}, 503),
    ("place", '{"symbol": ""}', {}, 422),
    ("broken", "{}", {}, 500),
    ("nothing", "", {}, 200),
    ("ticks", '{"count": 2}', {}, 200),
    ("ticks", '{"count": 6}', {}, 422),
    ("report", '{"month": 3}', {}, 200),
    ("report", '{"month": "three"}', {}, 422),
    ("describe", "", {}, 200),
    ("stats", "", {}, 200),
    ("ping", "", {}, 200),
    ("job.list", "{}", {}, 200),
    ("job.status", '{"job": "none"}', {}, 422),
    ("job.status", '{"job": "01JD3Z7VTP5W0Q4YH2X8K6M9NB"}', {}, 404),
]


@pytest.mark.parametrize(("verb", "body", "headers", "status"), CALLS)
def test_what_happens_is_what_the_document_says(
    port: int, document: dict[str, Any], verb: str, body: str, headers: dict[str, str], status: int
) -> None:
    operation = document["paths"][f"/call/prices/{verb}"]["post"]

    found, value = post(port, f"/call/prices/{verb}", body, JSON | headers)

    assert found == status
    media = operation["responses"][str(status)]["content"]["application/json"]
    # The document itself is where its references lead.
    Draft202012Validator({**media["schema"], "components": document["components"]}).validate(value)
    if status != 200:
        known = media["examples"]
        assert value["code"] in known
        assert value["retryable"] == known[value["code"]]["value"]["retryable"]


def test_parameters_that_the_service_takes_are_those_that_the_document_allows(
    port: int, document: dict[str, Any]
) -> None:
    for verb, body, headers, status in CALLS:
        # The text of an id is checked by the verbs of jobs themselves.
        if headers or not body or body == "{" or status not in (200, 422) or verb.startswith("job."):
            continue
        content = document["paths"][f"/call/prices/{verb}"]["post"]["requestBody"]["content"]
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        checked = Draft202012Validator(schema, format_checker=FormatChecker())
        assert checked.is_valid(json.loads(body)) is (status == 200), (verb, body)


def test_stream_has_the_media_types_of_the_document(port: int, document: dict[str, Any]) -> None:
    content = document["paths"]["/call/prices/ticks"]["post"]["responses"]["200"]["content"]

    for media in ("application/x-ndjson", "text/event-stream"):
        assert media in content
        status, text = post(port, "/call/prices/ticks", '{"count": 2}', JSON | {"Accept": media})
        assert status == 200
        assert [line for line in text.splitlines() if "25" in line] in (
            ["1.25", "2.25"],
            ["data: 1.25", "data: 2.25"],
        )


def test_result_of_a_job_is_at_its_path(port: int, document: dict[str, Any]) -> None:
    _, started = post(port, "/call/prices/report", '{"month": 3}')
    post(port, "/call/prices/job.wait", json.dumps({"job": started["job"]}))
    path = document["paths"].keys() & {"/jobs/prices/{id}/result"}
    assert path

    ulid = started["job"].partition("/")[2]
    status, text = post(port, f"/jobs/prices/{ulid}/result", "", {}, method="GET")

    assert (status, json.loads(text)) == (200, {"month": 3})
