"""The brands of brokers and their headers."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from nebula.milliseconds import Milliseconds
from nebula.rpc.contract.context import Request
from nebula.rpc.service.reply_sender import ReplySender
from nebula.rpc.wire.brokers import ACTIVEMQ, NEBULA, OTHER, RABBITMQ, Brand, brand_of
from nebula.rpc.wire.envelope import Envelope
from nebula.rpc.wire.reply_body import ReplyBody


@pytest.mark.parametrize(
    ("server", "brand"),
    [
        ("nebula/0.1.0", NEBULA),
        ("RabbitMQ/3.10.8", RABBITMQ),
        ("ActiveMQ/5.17.2", ACTIVEMQ),
        ("apache-apollo/1.7", OTHER),
        ("nebula", NEBULA),
        (None, NEBULA),
    ],
)
def test_brand_is_known_by_the_servers_name(server: str | None, brand: Brand) -> None:
    assert brand_of(server) is brand


def test_each_brand_gets_the_time_in_its_own_header() -> None:
    before = int(time.time() * 1000)

    assert NEBULA.expiry(Milliseconds(50)) == {"neb-timeout": "50"}
    assert RABBITMQ.expiry(Milliseconds(50)) == {"neb-timeout": "50", "expiration": "50"}
    expires = int(ACTIVEMQ.expiry(Milliseconds(50))["expires"])
    assert before + 50 <= expires <= int(time.time() * 1000) + 50


def test_answers_do_not_stay_for_ever_where_inboxes_outlive_their_readers() -> None:
    posted: list[Mapping[str, str]] = []
    replies = ReplySender(1000)
    before = time.time()
    for brand in (ACTIVEMQ, RABBITMQ, NEBULA):
        replies.connect(lambda _to, _body, _shared, varying, _acked: posted.append(varying), brand)
        for deadline in (time.monotonic() + 5, None):
            headers = {"neb-reply-to": "/queue/a", "neb-reply-id": "1"}
            request = Request(Envelope(verb="v"), headers, destination="/queue/shop", deadline=deadline)
            replies.send(request, ReplyBody("success"))

    assert ["expires" in headers for headers in posted] == [True, *[False] * 5]
    # A minute more than its requester waits: the clocks may differ.
    assert before + 64 < int(posted[0]["expires"]) / 1000 < time.time() + 66


def test_repliers_on_rabbitmq_are_told_a_queue_that_they_do_not_declare() -> None:
    assert RABBITMQ.reply_to("/queue/nebula.inbox.x") == "/amq/queue/nebula.inbox.x"
    assert NEBULA.reply_to("/queue/nebula.inbox.x") == "/queue/nebula.inbox.x"
