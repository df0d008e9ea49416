"""The broker's own queue, to which everybody may send: nobody keeps others from being answered there."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import BROKERS_OWN, Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.headers import BROKER_QUEUE
from tests.broker.harness import BrokerHarness, Peer

GRANTED = Grants({"Rule": Capability(call=("queues.*",))}, {"rita": ("Rule",)})
LIMITS = Limits(max_own_requests=6, max_own_requests_per_session=3)


def serving(broker: BrokerHarness) -> Peer:
    """The broker's own service, which answers one request at a time, and has one."""
    own = broker.connect(principal=BROKERS_OWN)
    own.subscribe(BROKER_QUEUE, "ack:client-individual", "prefetch-count:1")
    broker.connect(principal="rita").publish(BROKER_QUEUE, "first")
    return own


def answered(own: Peer, count: int) -> list[str]:
    """The next requests that the service gets, each when it has done the one before."""
    bodies = []
    for _ in range(count):
        message, body = own.message()
        bodies.append(body)
        own.ack(("MESSAGE", message, body))
    return bodies


def refused(broker: BrokerHarness) -> int:
    return broker.broker.account.dropped["rejected-full"]


def test_who_floods_it_waits_behind_himself_alone() -> None:
    broker = BrokerHarness(LIMITS)
    own = serving(broker)
    stranger, operator = broker.connect(), broker.connect()
    stranger.publish(BROKER_QUEUE, *["flood"] * 100)
    operator.publish(BROKER_QUEUE, "help")

    assert answered(own, 5) == ["first", "flood", "flood", "flood", "help"]
    assert refused(broker) == 97


def test_share_is_free_again_when_requests_are_taken_up() -> None:
    broker = BrokerHarness(LIMITS)
    own = serving(broker)
    peer = broker.connect()
    for _ in range(3):
        peer.publish(BROKER_QUEUE, "1", "2", "3")
        answered(own, 3)

    assert refused(broker) == 0


def test_who_may_call_verbs_goes_before_all_who_may_not_and_has_a_place_of_his_own() -> None:
    broker = BrokerHarness(LIMITS, grants=GRANTED)
    own = serving(broker)
    for _ in range(4):
        broker.connect(principal="sam").publish(BROKER_QUEUE, *["flood"] * 3)
    broker.connect(principal="rita").publish(BROKER_QUEUE, "help")

    assert answered(own, 3) == ["first", "help", "flood"]
    assert refused(broker) == 6


def test_large_requests_of_one_are_few() -> None:
    broker = BrokerHarness(LIMITS)
    serving(broker)
    peer = broker.connect()
    peer.publish(BROKER_QUEUE, "x" * 2_000_000, "small")

    assert refused(broker) == 1


@pytest.mark.parametrize("header", ["delay:1000", "transaction:t"])
def test_nobody_has_many_put_there_at_once_later(header: str) -> None:
    broker = BrokerHarness(LIMITS)
    own = serving(broker)
    peer = broker.connect()
    peer.say("BEGIN transaction:t")
    peer.publish(BROKER_QUEUE, *["flood"] * 100, headers=[header])
    peer.say("COMMIT transaction:t")
    broker.advance(2)

    assert broker.broker.queues.by_name[BROKER_QUEUE].store.depth == 1
    answered(own, 1)
