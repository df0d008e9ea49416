"""The six rules of The Nebulous Protocol (C.1), and the decisions next to them, over the wire.

The peer is a bare STOMP client: what a stranger sees.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode, Message, StompClient, Subscription
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}


class Stranger:
    """Sends requests as any STOMP client may, and reads what comes to its reply queue."""

    def __init__(self, stomp: StompClient, replies: Subscription, service: str) -> None:
        self.stomp = stomp
        self.replies = replies
        self.service = service
        self.queue = f"/queue/{service}"

    def ask(self, body: str, headers: dict[str, str] | None = None, **more: str) -> None:
        reply_to = {"neb-reply-to": self.replies.push.destination, "neb-reply-id": "r1"}
        self.stomp.post(self.queue, body.encode(), reply_to | (headers or {}) | more)

    async def reply(self) -> Message:
        with anyio.fail_after(5):
            return await anext(self.replies)

    async def reply_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads((await self.reply()).body)
        return fields

    async def is_left_alone(self) -> bool:
        """No answer came before that of a ping sent now, and nothing is left in the service's queue."""
        self.ask('{"verb":"ping"}', JSON, **{"neb-reply-id": "last"})
        return (await self.reply()).headers["neb-in-reply-to"] == "last"


def service(**options: Any) -> Responder:
    app = Responder(f"rules-{uuid4().hex}", concurrency=1, **options)

    @app.verb
    async def echo(value: Any = None) -> Any:
        return value

    @app.verb
    def explode() -> None:
        raise RuntimeError("the secret is 42")

    @app.verb
    async def refuse() -> None:
        raise VerbError("sold-out", "none left", details={"left": 0}, retryable=True)

    @app.verb
    async def refuse_oddly() -> None:
        raise VerbError("odd", "\ud800", details=object())

    @app.verb
    async def unwritable() -> Any:
        return object()

    @app.verb
    def exit_in_thread() -> None:
        sys.exit("the secret is 42")

    @app.verb
    async def exit_on_loop() -> None:
        sys.exit("the secret is 42")

    @app.verb
    async def await_the_cancelled() -> None:
        # Like awaiting a cancelled asyncio future. Trio has no such thing: a TypeError.
        raise anyio.get_cancelled_exc_class()

    return app


@pytest.fixture
async def stranger(broker_url: str, serving: Serving) -> AsyncGenerator[Stranger]:
    async with asked(service(), broker_url, serving) as one:
        yield one


@asynccontextmanager
async def asked(app: Responder, broker_url: str, serving: Serving) -> AsyncGenerator[Stranger]:
    reply_queue = f"/queue/replies-{uuid4().hex}"
    async with serving(app), StompClient(broker_url) as stomp, stomp.subscribe(reply_queue) as replies:
        yield Stranger(stomp, replies, app.name)


# --- rule 1: every valid request is answered ---


async def test_rule_1_value_is_answered_with_the_verbs_own_reply(stranger: Stranger) -> None:
    stranger.ask('{"verb":"echo","parameters":{"value":[1,"é"]}}', JSON)

    reply = await stranger.reply()

    assert reply.body == b'{"verb":"echoresponse","parameters":[1,"\\u00e9"]}'
    assert reply.headers["neb-response"] == "true"


async def test_rule_1_nothing_to_say_is_success(stranger: Stranger) -> None:
    stranger.ask('{"verb":"echo"}', JSON)

    assert (await stranger.reply()).body == b'{"verb":"success","parameters":[],"description":""}'


async def test_rule_1_unknown_verb_is_an_error(stranger: Stranger) -> None:
    stranger.ask('{"verb":"nope"}', JSON)

    reply = await stranger.reply()

    # E.58
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["neb-in-reply-to"] == "r1"
    assert reply.headers["neb-error-code"] == "unknown-verb"
    assert json.loads(reply.body)["verb"] == "error"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"verb":"nope"}', "unknown-verb"),
        ('{"verb":""}', "unknown-verb"),
        ('{"verb":7}', "unknown-verb"),
        ('{"verb":["echo"]}', "unknown-verb"),
        ('{"verb":"echo","parameters":{"other":1}}', "bad-parameters"),
        ('{"verb":"echo","parameters":[1,2]}', "bad-parameters"),
        ('{"verb":"explode"}', "internal"),
        ('{"verb":"unwritable"}', "bad-result"),
        ('{"verb":"exit_in_thread"}', "internal"),
        ('{"verb":"exit_on_loop"}', "internal"),
        ('{"verb":"await_the_cancelled"}', "internal"),
        ('{"verb":"refuse"}', "sold-out"),
        ('{"verb":"refuse_oddly"}', "internal"),
        ('{"parameters":1}', "bad-request"),
        ("{", "bad-request"),
        ("", "bad-request"),
        ("null", "bad-request"),
    ],
)
async def test_rule_1_failure_is_an_error_with_a_code(stranger: Stranger, body: str, code: str) -> None:
    stranger.ask(body, JSON)

    reply = await stranger.reply()
    fields = json.loads(reply.body)

    assert reply.headers["neb-error-code"] == code
    assert fields["verb"] == "error"
    assert fields["parameters"]["code"] == code
    assert fields["parameters"]["message"] == fields["description"]
    assert fields["description"]


async def test_error_of_a_verb_carries_its_details(stranger: Stranger) -> None:
    stranger.ask('{"verb":"refuse"}', JSON)

    assert await stranger.reply_fields() == {
        "verb": "error",
        "parameters": {"code": "sold-out", "message": "none left", "retryable": True, "details": {"left": 0}},
        "description": "none left",
    }


async def test_exception_shows_nothing_of_itself(stranger: Stranger) -> None:
    stranger.ask('{"verb":"explode"}', JSON)

    assert b"secret" not in (await stranger.reply()).body


async def test_exception_shows_itself_in_debug_mode(broker_url: str, serving: Serving) -> None:
    async with asked(service(debug=True), broker_url, serving) as stranger:
        stranger.ask('{"verb":"explode"}', JSON)

        assert b"RuntimeError('the secret is 42')" in (await stranger.reply()).body


async def test_bad_parameters_are_reported_field_by_field(stranger: Stranger) -> None:
    stranger.ask('{"verb":"echo","parameters":{"other":1}}', JSON)

    details = (await stranger.reply_fields())["parameters"]["details"]

    assert [row["field"] for row in details] == ["other"]


async def test_service_answers_again_after_each_kind_of_failure(stranger: Stranger) -> None:
    for verb in ("explode", "unwritable", "refuse", "nope", "exit_on_loop", "await_the_cancelled"):
        stranger.ask(f'{{"verb":"{verb}"}}', JSON)
        await stranger.reply()

    assert await stranger.is_left_alone()


# --- rule 2: a request without a verb ---


async def test_rule_2_request_without_verb_and_reply_address_is_refused(stranger: Stranger) -> None:
    stranger.stomp.post(stranger.queue, b"hello", TEXT)

    assert await stranger.is_left_alone()


async def test_rule_2_request_without_verb_gets_an_error_if_it_has_a_reply_address(
    stranger: Stranger,
) -> None:
    stranger.ask("hello", TEXT)

    assert (await stranger.reply()).headers["neb-error-code"] == "bad-request"


# --- rules 3 and 4: where the answer goes ---


async def test_rule_3_answer_goes_to_the_reply_destination(stranger: Stranger) -> None:
    stranger.ask('{"verb":"ping"}', JSON)

    assert (await stranger.reply()).destination == stranger.replies.push.destination


async def test_rule_3_answer_goes_where_the_request_was_sent_if_no_address_is_given(
    broker_url: str, serving: Serving
) -> None:
    # The service's own queue. A second consumer sees the answer or the service skips it (D.46).
    app = service()
    queue = f"/queue/{app.name}"
    async with serving(app), StompClient(broker_url) as stomp, stomp.subscribe(queue) as shared:
        for _ in range(4):
            stomp.post(queue, b'{"verb":"ping"}', JSON)
        with anyio.fail_after(5):
            async for message in shared:
                if message.headers.get("neb-response") == "true":
                    break

    assert json.loads(message.body)["verb"] == "success"


async def test_rule_4_answer_names_the_request(stranger: Stranger) -> None:
    stranger.ask('{"verb":"ping"}', JSON, **{"neb-reply-id": "any: text\\"})

    assert (await stranger.reply()).headers["neb-in-reply-to"] == "any: text\\"


async def test_rule_4_answer_to_a_request_without_id_names_none(stranger: Stranger) -> None:
    address = {"neb-reply-to": stranger.replies.push.destination}
    stranger.stomp.post(stranger.queue, b'{"verb":"ping"}', JSON | address)

    assert "neb-in-reply-to" not in (await stranger.reply()).headers


# --- rule 5: the answer's form follows the request's ---


async def test_rule_5_text_request_is_answered_in_text(stranger: Stranger) -> None:
    stranger.ask("verb: ping\n\n", TEXT)

    reply = await stranger.reply()

    # E.59
    assert reply.headers["content-type"] == "text/plain"
    assert reply.body == b"verb: success\nparameters: []\ndescription: \n\n"


async def test_rule_5_text_values_are_decoded_and_written_as_text(stranger: Stranger) -> None:
    stranger.ask('verb: echo\nparameters: {"value": {"a": 1}}\n\n', TEXT)

    assert (await stranger.reply()).body == b'verb: echoresponse\nparameters: {"a":1}\n\n'


async def test_rule_5_json_request_with_a_charset_is_answered_with_the_bare_type(stranger: Stranger) -> None:
    stranger.ask('{"verb":"ping"}', {"content-type": "application/json;charset=utf-8"})

    assert (await stranger.reply()).headers["content-type"] == "application/json"


async def test_rule_5_request_without_a_content_type_is_answered_in_json(stranger: Stranger) -> None:
    stranger.ask("verb: ping\n\n")

    reply = await stranger.reply()

    assert reply.headers["content-type"] == "application/json"
    assert json.loads(reply.body)["verb"] == "success"


# --- rule 6: the queue is the service's own ---


async def test_rule_6_service_consumes_everything_on_its_queue(broker_url: str, serving: Serving) -> None:
    app = service()
    async with asked(app, broker_url, serving) as stranger:
        for body in (b"boo", b"", b"hello", b'{"verb":"success"}', b"\xff\xfe"):
            stranger.stomp.post(stranger.queue, body, {})
        assert await stranger.is_left_alone()

    async with StompClient(broker_url) as later:
        headers = {"require-consumers": "true"}
        async with later.subscribe(stranger.queue, ack=AckMode.CLIENT_INDIVIDUAL) as rest:
            await later.send(stranger.queue, b"only this", headers, receipt=True)
            with anyio.fail_after(5):
                assert (await anext(rest)).body == b"only this"


# --- D.46: loops are impossible ---


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("boo", {}),
        ('{"verb":"success"}', {}),
        ('{"verb":"error","description":"x"}', {}),
        ("verb: success\n\n", TEXT),
        ('{"verb":"ping"}', {"neb-response": "true"}),
    ],
)
async def test_answer_is_never_answered(stranger: Stranger, body: str, headers: dict[str, str]) -> None:
    stranger.ask(body, headers)

    assert await stranger.is_left_alone()


async def test_message_in_reply_to_something_that_wants_no_reply_is_no_request(stranger: Stranger) -> None:
    stranger.stomp.post(stranger.queue, b'{"verb":"ping"}', JSON | {"neb-in-reply-to": "x"})

    assert await stranger.is_left_alone()


async def test_message_with_both_reply_headers_is_a_request_and_is_answered(stranger: Stranger) -> None:
    stranger.ask('{"verb":"ping"}', JSON, **{"neb-in-reply-to": "x"})

    assert (await stranger.reply()).headers["neb-in-reply-to"] == "r1"


async def test_service_that_answers_into_its_own_queue_does_not_answer_itself(stranger: Stranger) -> None:
    for _ in range(3):
        stranger.stomp.post(stranger.queue, b'{"verb":"echo","parameters":["x"]}', JSON)

    assert await stranger.is_left_alone()


# --- D.50: no answer wanted, or too late ---


@pytest.mark.parametrize("verb", ["ping", "nope", "explode"])
async def test_request_that_wants_no_reply_gets_none(stranger: Stranger, verb: str) -> None:
    stranger.ask(f'{{"verb":"{verb}"}}', JSON, **{"neb-no-reply": "true"})

    assert await stranger.is_left_alone()


async def test_no_reply_that_is_not_true_means_nothing(stranger: Stranger) -> None:
    stranger.ask('{"verb":"ping"}', JSON, **{"neb-no-reply": "false"})

    assert (await stranger.reply()).headers["neb-in-reply-to"] == "r1"


# --- what must not end a service ---


@pytest.mark.parametrize(
    "destination",
    ["/queue/nebula.secret", "/queue/nebula.inbox.gone", "/topic/", "/queue/", "X/a", "a b", "/"],
)
async def test_odd_reply_destination_does_not_end_the_service(stranger: Stranger, destination: str) -> None:
    stranger.ask('{"verb":"ping"}', JSON, **{"neb-reply-to": destination})

    assert await stranger.is_left_alone()


@pytest.mark.parametrize("name", ["neb-reply-id", "neb-reply-to"])
async def test_header_too_long_to_be_given_back_does_not_end_the_service(
    stranger: Stranger, name: str
) -> None:
    # As long as a broker may take from a sender (ActiveMQ; ours takes more); in an answer it would be longer.
    stranger.ask('{"verb":"ping"}', JSON, **{name: "/" + "x" * (10 * 1024 - len(name) - 2)})

    assert await stranger.is_left_alone()


async def test_request_with_as_many_headers_as_the_broker_takes_is_answered(stranger: Stranger) -> None:
    # Five more are there already; the broker adds its own when it delivers.
    stranger.ask('{"verb":"ping"}', JSON, **{f"h{number}": "x" for number in range(123)})

    assert (await stranger.reply()).headers["neb-in-reply-to"] == "r1"


async def test_answer_larger_than_the_broker_takes_is_an_error(broker_url: str, serving: Serving) -> None:
    async with asked(service(max_reply_bytes=200), broker_url, serving) as stranger:
        stranger.ask(json.dumps({"verb": "echo", "parameters": ["x" * 200]}), JSON)

        assert (await stranger.reply()).headers["neb-error-code"] == "result-too-large"


# --- D.37: attempts ---


async def test_request_delivered_too_often_is_not_run_again(broker_url: str, serving: Serving) -> None:
    runs: list[None] = []
    app = Responder(f"attempts-{uuid4().hex}", max_attempts=2)

    @app.verb
    async def run() -> None:
        runs.append(None)

    reply_queue = f"/queue/replies-{uuid4().hex}"
    queue = f"/queue/{app.name}"
    async with StompClient(broker_url) as stomp, stomp.subscribe(reply_queue) as replies:
        stomp.post(queue, b'{"verb":"run"}', JSON | {"neb-reply-to": reply_queue})
        async with stomp.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as first:
            for _ in range(2):
                with anyio.fail_after(5):
                    (await anext(first)).nack()
        async with serving(app):
            with anyio.fail_after(5):
                reply = await anext(replies)

    assert reply.headers["neb-error-code"] == "too-many-attempts"
    assert not runs
