"""The checks at closing time notice what they are there for, and the report says so."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from services.venue import closing, records
from services.venue.bodies import Bodies
from services.venue.controller import Update
from services.venue.invariants import Accepted, Reading
from services.venue.ledger import Ledger, Movement
from services.venue.model import Venue
from services.venue.reader import Reader
from services.venue.report import Check, show
from services.venue.topics import Topic, game_topic, machine_topic

_NOON = 1_800_000_000_000
_A = machine_topic("X", "GM000100", Topic.METERS)
_B = machine_topic("Q", "GM000101", Topic.METERS)


@pytest.fixture
def reader() -> Reader:
    reader = Reader(Bodies())
    reader.topics.add(Topic.METERS)
    return reader


def accepted(*sends: tuple[str, bytes]) -> Accepted:
    taken = Accepted()
    for destination, body in sends:
        taken.note(destination, body)
    return taken


def reading(*, turnover: int, wins: int = 0) -> Reading:
    return Reading("GM000100", wins, turnover, wins, turnover, reset_at=None, updated_at=_NOON)


def test_reader_that_missed_the_last_value_is_named(reader: Reader) -> None:
    taken = accepted((_A, b"1"), (_A, b"2"), (_B, b"1"))
    reader.values.update({_A: b"2", _B: b"1"})
    whole = closing.last_values_arrived({"dashboard": reader}, taken)
    reader.values[_A] = b"1"
    broken = closing.last_values_arrived({"dashboard": reader}, taken)

    assert whole.holds
    assert [breach.split(":")[0] for breach in broken.breaches] == ["dashboard"]


def test_reader_is_not_blamed_for_topics_that_it_does_not_read(reader: Reader) -> None:
    taken = accepted((machine_topic("X", "GM000100", Topic.STATUS), b"1"))

    assert closing.missed(reader, taken) == []


def test_fall_that_any_reader_saw_is_a_breach(reader: Reader) -> None:
    reader.rising.see(reading(turnover=5))
    whole = closing.meters_rise({"auditor": reader})
    reader.rising.see(reading(turnover=4))
    broken = closing.meters_rise({"auditor": reader})

    assert whole.holds
    assert broken.breaches == ["auditor: GM000100: Turnover fell from 5 to 4 cents"]


def test_books_agree_only_over_all_machines(reader: Reader) -> None:
    ledger = Ledger()
    ledger.post("GM000100", Movement.BET, 5)
    reader.readings["GM000100"] = reading(turnover=5)

    assert closing.books_agree(reader, ledger, 1).holds
    assert closing.books_agree(reader, ledger, 2).breaches == ["the auditor knows 1 of 2 machines"]
    ledger.post("GM000100", Movement.WIN, 1)
    assert not closing.books_agree(reader, ledger, 1).holds


@pytest.mark.parametrize(("received", "holds"), [(10, True), (11, False)])
def test_slow_reader_may_get_a_quarter_of_what_was_published(
    reader: Reader, received: int, *, holds: bool
) -> None:
    reader.received = received

    assert closing.slow_reader_is_spared(reader, accepted(*[(_A, b"1")] * 40)).holds is holds


def test_removal_that_nobody_told_the_auditor_of_is_a_breach(reader: Reader) -> None:
    reader.gone.append(_A)

    assert closing.removals_were_told(reader, [_A]).holds
    assert closing.removals_were_told(reader, [_A, _B]).breaches == [f"{_B}: no word of it"]


def test_game_that_is_still_offered_is_a_breach(reader: Reader) -> None:
    machine = Venue().machines["GM000100"]
    game = next(iter(machine.games.values()))
    destination = game_topic("X", machine.gmid, game.id, Topic.GAME_DETECTED)
    bodies = Bodies()

    def found() -> bytes:
        record = records.game_detected(machine, game, _NOON)
        return bodies.encode(Update(destination, Topic.GAME_DETECTED, record), _NOON)

    reader.values[destination] = found()
    on = closing.desire_was_followed(reader, bodies, destination)
    machine.disabled.add(game.id)
    reader.values[destination] = found()
    off = closing.desire_was_followed(reader, bodies, destination)
    del reader.values[destination]
    unknown = closing.desire_was_followed(reader, bodies, destination)

    assert (on.holds, off.holds, unknown.holds) == (False, True, False)


def test_turnover_that_differs_by_a_cent_is_a_breach() -> None:
    ledger = Ledger()
    ledger.post("GM000100", Movement.BET, 5)
    ledger.post("GM000100", Movement.WIN, 50)

    assert closing.turnover_is_the_ledgers(5, ledger, ["GM000100"]).holds
    assert not closing.turnover_is_the_ledgers(6, ledger, ["GM000100"]).holds


def test_report_fails_where_one_check_is_broken_and_says_why() -> None:
    said = StringIO()
    console = Console(file=said, width=120)

    assert show(console, [Check("water is wet", "a glass")])
    assert not show(console, [Check("water is wet", "a glass"), Check("fire is cold", "", ["it burnt"])])
    assert "it burnt" in said.getvalue()
