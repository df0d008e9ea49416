"""Discovery where rights are configured: the implied rights are enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nebula.errors import Refused, Rejected
from nebula.rpc.client.client import Client
from nebula.rpc.service.responder import Responder
from nebula.testing import RunningBroker, serving

pytestmark = pytest.mark.anyio

RIGHTS = """
[capability.Serve-shop]
subscribe = ["/queue/shop"]
[capability.Serve-bank]
subscribe = ["/queue/bank"]
[capability.Ask-shop]
publish = ["/queue/shop", "/queue/shop-", "/queue/bank-"]
[capability.Ask-bank]
publish = ["/queue/bank", "/queue/shop-", "/queue/bank-"]
[identity]
shopkeeper = ["Serve-shop"]
banker = ["Serve-bank"]
alice = ["Ask-shop"]
bob = ["Ask-bank"]
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with rights for the principals that addresses name."""
    file = tmp_path / "rights.toml"
    file.write_text(RIGHTS)
    with RunningBroker(rights=[file]) as broker:
        yield broker


def address(broker: RunningBroker, principal: str) -> str:
    return broker.memory_url.replace("://", f"://{principal}@")


async def test_one_sees_and_asks_the_services_that_one_may_call(guarded: RunningBroker) -> None:
    with anyio.fail_after(10):
        async with (
            serving(address(guarded, "shopkeeper"), Responder("shop")),
            serving(address(guarded, "banker"), Responder("bank")),
            Client(address(guarded, "alice")) as alice,
        ):
            seen = [one.service for one in await alice.services()]
            found = await alice.call_all("shop", "ping")
            try:
                foreign = await alice.services("bank")
            except Refused:
                foreign = []

    assert seen == ["shop"]
    assert (len(found.values), found.missing) == (1, [])
    assert foreign == []


async def test_only_services_that_the_principal_may_call_are_suggested(guarded: RunningBroker) -> None:
    async def near(principal: str, service: str) -> str | None:
        async with Client(address(guarded, principal)) as client:
            with pytest.raises(Rejected) as refused:
                await client.call(service, "ping")
        return refused.value.near

    with anyio.fail_after(10):
        async with (
            serving(address(guarded, "shopkeeper"), Responder("shop")),
            serving(address(guarded, "banker"), Responder("bank")),
        ):
            assert await near("alice", "shop-") == "shop"
            assert await near("alice", "shp") == "shop"
            assert await near("alice", "bank-") is None
            assert await near("alice", "bnak") is None
            assert await near("bob", "shop-") is None
            assert await near("bob", "bank-") == "bank"


async def test_service_that_may_not_register_serves_all_the_same(guarded: RunningBroker) -> None:
    # Of its name it has no right, only of its queue.
    app = Responder("kiosk", queues=["shop"])
    with anyio.fail_after(20):
        async with (
            serving(address(guarded, "shopkeeper"), app),
            Client(address(guarded, "alice")) as alice,
        ):
            answer = await alice.call("shop", "ping")
            seen = await alice.services()

    assert (answer, seen) == (None, [])
