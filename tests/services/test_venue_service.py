"""The venue's verbs, over a state store that holds a floor at play."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nebula import Client, RemoteError, embedded
from nebula.testing import serving
from services.venue.app import app, disable, enable, meters
from services.venue.bodies import AVRO, Bodies
from services.venue.controller import SiteController, Update
from services.venue.ledger import Movement
from services.venue.model import Venue
from services.venue.records import Record
from services.venue.store import read_values
from services.venue.topics import Protocol, Topic, game_topic, pattern_of
from tests.own_logs import all_logs

pytestmark = pytest.mark.anyio

_NOON = 1_800_000_000_000
_SECONDS = 15.0


@pytest.fixture
def venue() -> Venue:
    return Venue(seed=5, size=6)


@asynccontextmanager
async def floor(venue: Venue, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A broker whose store knows all of a venue after some rounds, and the service."""
    controller = SiteController(venue)
    updates = controller.open(_NOON)
    for second in range(1, 20):
        updates += controller.poll(_NOON + second * 1000)
    with anyio.fail_after(_SECONDS):
        async with embedded() as url:
            monkeypatch.setenv("NEBULA_BROKER", url)
            async with serving(url, app), Client(url) as client:
                await publish(client, updates)
                yield client


async def publish(client: Client, updates: list[Update]) -> None:
    """Have the store hold what is left of these when all of them were published."""
    bodies = Bodies()
    for destination, update in {update.destination: update for update in updates}.items():
        await client.stomp.send(destination, bodies.encode(update, _NOON), AVRO, receipt=True)


async def desires(client: Client) -> dict[str, Record | None]:
    """What the store holds of games that somebody desires."""
    values = await read_values(client, pattern_of(Topic.GAME_DESIRED))
    return {destination: Bodies().decode(body) for destination, body in values.items()}


async def error_of(client: Client, verb: str, parameters: object) -> str:
    with pytest.raises(RemoteError) as caught:
        await client.call("venue", verb, parameters)
    return caught.value.code


async def test_meters_are_those_of_the_latest_reading(venue: Venue, monkeypatch: pytest.MonkeyPatch) -> None:
    async with floor(venue, monkeypatch) as client:
        answer = await client.call(meters, "GM000102")

    own = venue.machines["GM000102"].meters
    assert (answer.gmid, answer.turnover, answer.wins) == ("GM000102", own.turnover, own.wins)
    assert answer.credits - answer.debits == venue.ledger.net("GM000102")
    assert own.turnover > 0


async def test_service_connects_no_more_often_the_more_it_is_asked(
    venue: Venue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with all_logs() as logs:
        async with floor(venue, monkeypatch) as client:
            for _ in range(3):
                await client.call(meters, "GM000102")

    # The client's own, the service's, and that by which it reads.
    assert [log["event"] for log in logs].count("session opened") == 3


async def test_turnover_is_the_sum_over_a_range_of_machines(
    venue: Venue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with floor(venue, monkeypatch) as client:
        some = await client.call("venue", "turnover", {"from": "GM000101", "to": "GM000103"}, result=int)
        every = await client.call("venue", "turnover", {}, result=int)

    bets = {gmid: venue.ledger.total(gmid, Movement.BET) for gmid in venue.machines}
    assert some == bets["GM000101"] + bets["GM000102"] + bets["GM000103"]
    assert every == sum(bets.values()) > some


async def test_machine_that_nobody_knows_is_not_found(venue: Venue, monkeypatch: pytest.MonkeyPatch) -> None:
    async with floor(venue, monkeypatch) as client:
        code = await error_of(client, "meters", {"gmid": "GM999999"})

    assert code == "not-found"


@pytest.mark.parametrize("name", ["*", "GM00010?", "GM[0-9]*", "**"])
async def test_glob_does_not_pass_for_a_machine(
    venue: Venue, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with floor(venue, monkeypatch) as client:
        codes = {
            await error_of(client, "meters", {"gmid": name}),
            await error_of(client, "enable", {"gmid": name, "game": "1:1"}),
            await error_of(client, "disable", {"gmid": "GM000100", "game": f"{name}:1"}),
        }

    assert codes == {"bad-parameters"}


async def test_enabled_game_is_desired_with_all_of_its_denominations(
    venue: Venue, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = venue.machines["GM000101"]
    game = next(iter(machine.games.values()))
    machine.disabled.add(game.id)

    async with floor(venue, monkeypatch) as client:
        await client.call(enable, machine.gmid, game.id)
        desired = await desires(client)

    [(destination, record)] = desired.items()
    assert destination == game_topic(Protocol.QCOM, machine.gmid, game.id, Topic.GAME_DESIRED)
    assert record is not None
    assert (record["gameId"], record["activeDenoms"]) == (game.id, list(game.denominations))


async def test_disabled_game_is_no_longer_desired(venue: Venue, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = venue.machines["GM000101"]
    game = next(iter(machine.games))

    async with floor(venue, monkeypatch) as client:
        await client.call(enable, machine.gmid, game)
        await client.call(disable, machine.gmid, game)
        desired = await desires(client)

    assert list(desired.values()) == [None]


async def test_game_that_is_not_installed_cannot_be_enabled(
    venue: Venue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with floor(venue, monkeypatch) as client:
        code = await error_of(client, "enable", {"gmid": "GM000101", "game": "1A01:99"})
        desired = await desires(client)

    assert code == "not-found"
    assert desired == {}
