"""The brands of brokers and their words."""

from __future__ import annotations

import time

import pytest

from nebula.rpc.brokers import ACTIVEMQ, NEBULA, OTHER, RABBITMQ, Brand, brand_of, whole_milliseconds


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


def test_each_brand_is_told_the_time_in_its_own_way() -> None:
    before = int(time.time() * 1000)

    assert NEBULA.expiry(50) == {"neb-timeout": "50"}
    assert RABBITMQ.expiry(50) == {"neb-timeout": "50", "expiration": "50"}
    expires = int(ACTIVEMQ.expiry(50)["expires"])
    assert before + 50 <= expires <= int(time.time() * 1000) + 50


def test_repliers_on_rabbitmq_are_told_a_queue_that_they_do_not_declare() -> None:
    assert RABBITMQ.reply_to("/queue/nebula.inbox.x") == "/amq/queue/nebula.inbox.x"
    assert NEBULA.reply_to("/queue/nebula.inbox.x") == "/queue/nebula.inbox.x"


@pytest.mark.parametrize(("seconds", "milliseconds"), [(2, 2000), (0.0015, 1), (0.0001, 1), (-1, 1)])
def test_time_on_the_wire_is_whole_milliseconds_and_never_none(seconds: float, milliseconds: int) -> None:
    assert whole_milliseconds(seconds) == milliseconds
