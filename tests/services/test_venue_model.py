"""The venue without a broker: machines, books, what is published, and the invariants themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from fastavro.schema import load_schema

import services.venue
from services.venue.controller import SiteController, Update
from services.venue.invariants import Accepted, Reading, RisingMeters, in_short, stale, unreconciled
from services.venue.ledger import Ledger, Movement
from services.venue.model import Game, Venue
from services.venue.records import Record
from services.venue.topics import (
    SCHEMAS,
    Protocol,
    Topic,
    game_of,
    game_topic,
    gmid_of,
    key_of,
    machine_topic,
    pattern_of,
    topic_of,
)

_SCHEMAS = Path(services.venue.__file__).with_name("schemas")
_NOON = 1_800_000_000_000
_DAY = 86_400_000


class Store:
    """The last record of each destination: what a reader has that missed nothing."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.rising = RisingMeters()

    def take(self, updates: list[Update]) -> None:
        for update in updates:
            record = None if update.record is None else through_avro(update.topic, update.record)
            if record is None:
                self.records.pop(update.destination, None)
                continue
            self.records[update.destination] = record
            if update.topic is Topic.METERS:
                self.rising.see(Reading.of(gmid_of(update.destination), record))

    def readings(self) -> dict[str, Reading]:
        return {
            gmid_of(name): Reading.of(gmid_of(name), record)
            for name, record in self.records.items()
            if topic_of(name) is Topic.METERS
        }


def through_avro(topic: Topic, record: Record) -> Record:
    """Write a record under its schema, and read it again."""
    schema = load_schema(str(_SCHEMAS / f"{SCHEMAS[topic]}.avsc"))
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, record, strict=True)
    buffer.seek(0)
    read = fastavro.schemaless_reader(buffer, schema)
    assert isinstance(read, dict)
    return read


@pytest.fixture
def venue() -> Venue:
    return Venue(seed=7)


def test_fifty_machines_speak_three_protocols(venue: Venue) -> None:
    spoken = {machine.protocol for machine in venue.machines.values()}

    assert len(venue.machines) == 50
    assert spoken == set(Protocol)


def test_same_seed_gives_the_same_money() -> None:
    one, other = Venue(seed=3), Venue(seed=3)
    for now in range(_NOON, _NOON + 40):
        one.play(now)
        other.play(now)

    assert one.machines == other.machines


def test_each_topic_has_a_schema_of_its_name() -> None:
    for topic, name in SCHEMAS.items():
        schema = load_schema(str(_SCHEMAS / f"{name}.avsc"))

        assert isinstance(schema, dict)
        assert schema["name"] == name
        assert name.rpartition(".")[2].startswith(f"{topic}_v")
    assert len(set(SCHEMAS.values())) == len(Topic)


def test_state_base_is_the_same_in_each_schema() -> None:
    # Each schema stands alone, so that its fingerprint says all of it; copies drift.
    definitions = [json.loads(file.read_text()) for file in _SCHEMAS.glob("*.avsc")]
    bases = [{**one["fields"][0]["type"], "namespace": "egm"} for one in definitions]

    assert len(bases) == len(Topic)
    assert all(base == bases[0] for base in bases)


def test_published_records_are_of_their_topics_schema(venue: Venue) -> None:
    store, controller = Store(), SiteController(venue)
    store.take(controller.open(_NOON))
    store.take(controller.poll(_NOON + 1))

    published = {topic_of(name) for name in store.records}
    assert published == {Topic.METERS, Topic.STATUS, Topic.DETECTED, Topic.GAME_DETECTED, Topic.JACKPOT}


def test_meters_rise_and_reconcile_with_the_ledger_over_ram_clears(venue: Venue) -> None:
    store, controller = Store(), SiteController(venue)
    store.take(controller.open(_NOON))
    for second in range(1, 120):
        store.take(controller.poll(_NOON + second * 1000))

    readings = store.readings()
    assert sum(reading.reset_at is not None for reading in readings.values()) == 7
    assert store.rising.breaches == []
    assert unreconciled(readings, venue.ledger) == []
    assert sum(abs(reading.net) for reading in readings.values()) > 0


def test_guests_balance_is_what_they_put_in_and_won_less_what_they_bet_and_took(venue: Venue) -> None:
    for now in range(_NOON, _NOON + 200):
        venue.play(now)

    for machine in venue.machines.values():
        meters = machine.meters
        came = meters.cash_in + meters.electronic_in + meters.wins
        assert machine.balance == came - meters.turnover - meters.ticket_out - meters.cancel_credit


def test_jackpot_shows_no_more_than_its_ceiling_and_keeps_the_overflow_at_a_hit(venue: Venue) -> None:
    link = venue.links[Protocol.QCOM]
    link.feed(150_000)
    overflow = link.current - link.shown

    paid = link.hit()

    assert (link.shown, paid, overflow) == (10_500, 11_000, 500)
    assert link.current == 10_000 + overflow
    assert (link.hits, link.wins) == (1, 11_000)


def test_status_is_published_when_it_changes_and_not_otherwise(venue: Venue) -> None:
    controller = SiteController(venue)
    controller.open(_NOON)

    statuses = [update for update in controller.poll(_NOON + 1) if update.topic is Topic.STATUS]
    machines = {gmid_of(update.destination) for update in statuses}

    assert 0 < len(machines) < 50
    for update in statuses:
        assert update.record is not None
        assert update.record["gamePlay"]["inPlay"] or update.record["doors"]["mainOpen"]


def test_game_that_is_no_longer_desired_is_found_with_its_denominations_off(venue: Venue) -> None:
    machine = venue.machines["GM000101"]
    game = next(iter(machine.games.values()))

    [off] = SiteController(venue).follow(machine.gmid, game.id, is_desired=False, now=_NOON)
    offered = machine.offered()
    [on] = SiteController(venue).follow(machine.gmid, game.id, is_desired=True, now=_NOON)

    assert off.record is not None
    assert on.record is not None
    assert (off.record["activeDenoms"], off.record["disabledDenoms"]) == ([], list(game.denominations))
    assert (on.record["activeDenoms"], on.record["disabledDenoms"]) == (list(game.denominations), [])
    assert game not in offered
    assert game in machine.offered()


def test_desire_for_a_game_that_is_not_installed_changes_nothing(venue: Venue) -> None:
    controller = SiteController(venue)

    assert controller.follow("GM000101", "no:such", is_desired=True, now=_NOON) == []
    assert controller.follow("GM999999", "1:1", is_desired=True, now=_NOON) == []


def test_uninstalled_game_is_deleted_and_never_published_again(venue: Venue) -> None:
    controller = SiteController(venue)
    machine = venue.machines["GM000100"]
    game_id = next(iter(machine.games))

    [gone] = controller.uninstall(machine.gmid, game_id)
    later = controller.replace_interface(machine.gmid, Protocol.G2S, _NOON)

    assert gone == Update(f"X/EGM.X.GM000100.Game.{game_id}.GameDetectedConfig", Topic.GAME_DETECTED, None)
    assert game_id not in [game_of(one.destination) for one in later if one.topic is Topic.GAME_DETECTED]


def test_replaced_interface_changes_the_letter_and_neither_keys_nor_money(venue: Venue) -> None:
    store, controller = Store(), SiteController(venue)
    before = {key_of(one.destination) for one in controller.open(_NOON) if "GM000106" in one.destination}
    venue.play(_NOON + 1)

    updates = controller.replace_interface("GM000106", Protocol.G2S, _NOON + 2)
    store.take(updates)

    assert {key_of(one.destination) for one in updates} == before
    assert {one.destination.split(".")[1] for one in updates} == {"G"}
    assert unreconciled(store.readings(), venue.ledger) == []


def test_destination_is_read_apart_though_a_game_id_has_a_colon() -> None:
    destination = game_topic(Protocol.QCOM, "GM000101", "1A01:02", Topic.GAME_DESIRED)

    assert destination == "X/EGM.Q.GM000101.Game.1A01:02.GameDesiredConfig"
    assert key_of(destination) == "EGM.GM000101.Game.1A01:02.GameDesiredConfig"
    assert topic_of(destination) is Topic.GAME_DESIRED
    assert gmid_of(destination) == "GM000101"
    assert game_of(destination) == "1A01:02"
    assert pattern_of(Topic.STATUS) == "X/EGM.*.*.EGMStatus"


def test_machines_own_topic_names_no_game() -> None:
    with pytest.raises(ValueError, match="names no game"):
        game_of(machine_topic(Protocol.QCOM, "GM000101", Topic.STATUS))


# --- the invariants notice what they are there for ---


def reading(*, turnover: int = 0, wins: int = 0, reset_at: int | None = None) -> Reading:
    return Reading("GM1", wins, turnover, credits=wins, debits=turnover, reset_at=reset_at, updated_at=_NOON)


@pytest.mark.parametrize("fallen", [{"turnover": 99, "wins": 50}, {"turnover": 100, "wins": 49}])
def test_meter_that_falls_is_a_breach(fallen: Mapping[str, int]) -> None:
    rising = RisingMeters()
    rising.see(reading(turnover=100, wins=50))
    rising.see(reading(**fallen))

    assert len(rising.breaches) == 1
    assert "GM1" in rising.breaches[0]


def test_meter_that_falls_at_a_ram_clear_is_none() -> None:
    rising = RisingMeters()
    rising.see(reading(turnover=100))
    rising.see(reading(turnover=0, reset_at=_NOON))
    rising.see(reading(turnover=5, reset_at=_NOON))

    assert rising.breaches == []
    assert rising.seen == 3


def test_meters_that_differ_from_the_ledger_by_a_cent_do_not_reconcile() -> None:
    ledger = Ledger()
    ledger.post("GM1", Movement.BET, 100)
    ledger.post("GM1", Movement.WIN, 40)

    assert unreconciled({"GM1": reading(turnover=100, wins=40)}, ledger) == []
    [breach] = unreconciled({"GM1": reading(turnover=100, wins=41)}, ledger)
    assert "-59" in breach


def test_last_value_that_was_not_delivered_is_stale() -> None:
    accepted = {"X/a": b"2", "X/b": b""}

    assert stale({"X/a": b"2"}, accepted) == []
    assert len(stale({"X/a": b"1", "X/b": b"1", "X/c": b"1"}, accepted)) == 3
    assert len(stale({}, accepted)) == 1


def test_accepted_values_follow_a_key_to_its_new_destination() -> None:
    accepted = Accepted()
    accepted.note("X/EGM.X.GM1.EGMStatus", b"1")
    accepted.note("X/EGM.G.GM1.EGMStatus", b"2")

    assert accepted.values == {"X/EGM.X.GM1.EGMStatus": b"", "X/EGM.G.GM1.EGMStatus": b"2"}
    assert accepted.counts[Topic.STATUS] == 2


def test_many_breaches_are_reported_by_the_first_three() -> None:
    assert in_short(["a", "b", "c"]) == "a; b; c"
    assert in_short(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"


def test_game_is_named_by_theme_and_paytable() -> None:
    assert Game("1A01", "02", (1,), 0.9).id == "1A01:02"
