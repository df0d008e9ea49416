"""What happens in the venue in a minute: the floor at play, and the incidents one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from rich.console import Console

from nebula import Client
from nebula.headers import REJECTED_INVALID, REJECTED_UNAUTHORISED
from services.venue import closing
from services.venue.app import disable, enable
from services.venue.auditor import Auditor
from services.venue.bodies import Bodies
from services.venue.controller import SiteController, Update
from services.venue.dashboard import Dashboard
from services.venue.guests import ask_at_once, error_code
from services.venue.intruder import BROKEN_BODY, publish
from services.venue.invariants import Accepted
from services.venue.model import Machine, Venue
from services.venue.reader import Reader
from services.venue.records import meter_reading
from services.venue.report import Check
from services.venue.simulator import Simulator, now
from services.venue.site import Doors, Login, Who
from services.venue.topics import Protocol, Topic, game_topic, machine_topic

# How long anything may take to come through; it takes milliseconds.
_PATIENCE_SECONDS: Final = 20.0

# Guests hold each other's answers for a moment, so each question takes some tenths of a second.
_GUESTS: Final = 3
_QUESTIONS: Final = 5

_FIRST_VICTIM: Final = 5


@dataclass(frozen=True, slots=True)
class Pace:
    """How long the floor is at play, and how often it is polled, in seconds."""

    seconds: float = 60.0
    tick: float = 1.0


@dataclass(frozen=True, slots=True)
class _Game:
    """A game on a machine, to which something is going to happen."""

    gmid: str
    protocol: Protocol
    id: str

    @classmethod
    def of(cls, machine: Machine) -> _Game:
        """The first game of a machine."""
        return cls(machine.gmid, machine.protocol, next(iter(machine.games)))

    def topic(self, topic: Topic) -> str:
        """A destination of it."""
        return game_topic(self.protocol, self.gmid, self.id, topic)


class Play:
    """One run.

    Args:
        doors: where the broker is, and who may come in.
        pace: how long, how quick.
        console: where the dashboard is drawn and incidents are told.
    """

    def __init__(self, doors: Doors, pace: Pace, console: Console) -> None:
        self._doors = doors
        self._pace = pace
        self._console = console
        self._bodies = Bodies()
        self._venue = Venue()
        self._controller = SiteController(self._venue)
        self._quick, self._slow = Reader(self._bodies), Reader(self._bodies)
        self._auditor = Auditor(partial(doors.connect, Who.AUDITOR, client_id="auditor"), self._bodies)
        # Whom things happen to. The first machines host the jackpots, and are left in peace.
        desired, removed, self._converted = list(self._venue.machines.values())[_FIRST_VICTIM:][:3]
        self._desired, self._removed = _Game.of(desired), _Game.of(removed)
        self._is_closed = False

    async def run(self) -> list[Check]:
        """Play it, from opening to closing time; returns what was checked."""
        connect = self._doors.connect
        async with AsyncExitStack() as stack:
            controller, floor, beside = [
                await stack.enter_async_context(connect(who))
                for who in (Who.SIMULATOR, Who.DASHBOARD, Who.DASHBOARD)
            ]
            simulator = Simulator(controller, self._bodies, self._controller)
            dashboard = Dashboard(self._quick, self._slow, simulator.accepted)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(self._quick.follow, floor, Topic.METERS)
            tasks.start_soon(partial(self._slow.follow, beside, Topic.METERS, pause=self._slow_pause))
            tasks.start_soon(simulator.obey)
            await simulator.open()
            tasks.start_soon(dashboard.show, self._console)
            checks = await self._day(simulator)
            tasks.cancel_scope.cancel()
        return checks

    def _slow_pause(self) -> float:
        # At closing time it may catch up, so that its last values can be compared.
        return 0.0 if self._is_closed else self._pace.tick

    async def _day(self, simulator: Simulator) -> list[Check]:
        third = self._pace.seconds / 3
        go_home = anyio.Event()
        async with anyio.create_task_group() as visits:
            async with anyio.create_task_group() as floor:
                floor.start_soon(partial(simulator.run, seconds=self._pace.seconds, tick=self._pace.tick))
                began = anyio.current_time()
                await self._first_visit(began + third)
                checks = await self._while_the_auditor_is_away(simulator)
                await anyio.sleep_until(began + 2 * third)
                self._tell("the auditor is back")
                visits.start_soon(self._auditor.visit, go_home)
            self._is_closed = True
            checks += await self._close(simulator)
            go_home.set()
        return checks

    async def _first_visit(self, end: float) -> None:
        """The auditor comes; a game is desired before its eyes; it leaves."""
        leave = anyio.Event()
        seen = self._auditor.reader
        async with anyio.create_task_group() as visit:
            visit.start_soon(self._auditor.visit, leave)
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await seen.until(lambda: len(seen.readings) == len(self._venue.machines))
            async with Client(self._doors.url_of(Login.GUEST)) as guest:
                await guest.call(enable, self._desired.gmid, self._desired.id)
            with anyio.move_on_after(_PATIENCE_SECONDS):
                await seen.until(lambda: self._desired.topic(Topic.GAME_DESIRED) in seen.values)
            await anyio.sleep_until(end)
            leave.set()
        self._tell("the auditor has left")

    async def _while_the_auditor_is_away(self, simulator: Simulator) -> list[Check]:
        removed = self._removed
        async with Client(self._doors.url_of(Login.GUEST)) as guest:
            await guest.call(disable, self._desired.gmid, self._desired.id)
        await simulator.publish(self._controller.uninstall(removed.gmid, removed.id))
        self._tell(f"a game was removed from {removed.gmid}, another is not desired on {self._desired.gmid}")
        letter = next(one for one in Protocol if one is not self._converted.protocol)
        await simulator.publish(self._controller.replace_interface(self._converted.gmid, letter, now()))
        self._tell(f"{self._converted.gmid} has a new interface, and another letter in its destinations")
        return [*await self._intrude(), *await self._ask()]

    async def _intrude(self) -> list[Check]:
        """An intruder publishes where it has no right to, and publishes data that is no envelope."""
        victim = next(iter(self._venue.machines.values()))
        # Meters at zero: if it got through, the victim's would have fallen.
        forged = meter_reading(Machine(victim.gmid, victim.protocol, victim.position, {}), now())
        update = Update(machine_topic(victim.protocol, victim.gmid, Topic.METERS), Topic.METERS, forged)
        async with self._doors.connect(Who.INTRUDER) as client:
            verdicts = [
                await publish(client, update.destination, self._bodies.encode(update, now())),
                await publish(client, self._doors.own_status_of(Who.INTRUDER), BROKEN_BODY),
            ]
        self._tell(f"an intruder was told: {' and '.join(verdicts)}")
        due = [REJECTED_UNAUTHORISED, REJECTED_INVALID]
        return [
            Check("forged and malformed messages are rejected", ", ".join(verdicts), _unlike(verdicts, due))
        ]

    async def _ask(self) -> list[Check]:
        """Guests ask the service, all at once over one reply queue."""
        gmids = list(self._venue.machines)[:_QUESTIONS]
        breaches = await ask_at_once(self._doors.url_of(Login.GUEST), gmids, guests=_GUESTS)
        async with Client(self._doors.url_of(Login.GUEST)) as guest:
            await guest.call("venue", "ping")
            codes = [
                await error_code(guest, "meters", {"gmid": "GM999999"}),
                await error_code(guest, "jackpot", None),
            ]
        breaches += _unlike(codes, ["not-found", "unknown-verb"])
        evidence = f"{_GUESTS} guests, {len(gmids)} questions each; {', '.join(codes)}"
        return [Check("each guest gets the answers to its own questions", evidence, breaches)]

    async def _close(self, simulator: Simulator) -> list[Check]:
        """Let what is under way arrive, and check what has to hold then."""
        auditor, accepted, ledger = self._auditor.reader, simulator.accepted, self._venue.ledger
        readers = {"dashboard": self._quick, "slow reader": self._slow, "auditor": auditor}
        removed = [self._removed.topic(Topic.GAME_DETECTED), self._desired.topic(Topic.GAME_DESIRED)]
        detected = self._desired.topic(Topic.GAME_DETECTED)
        # What does not arrive is for the checks to tell.
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await auditor.until(lambda: closing.removals_were_told(auditor, removed).holds)
            await auditor.until(lambda: closing.desire_was_followed(auditor, self._bodies, detected).holds)
            for reader in readers.values():
                await reader.until(partial(_is_up_to_date, reader, accepted))
        gmids = sorted(self._venue.machines)
        async with Client(self._doors.url_of(Login.GUEST)) as guest:
            turnover = await guest.call("venue", "turnover", {"from": gmids[0], "to": gmids[-1]}, result=int)
        return [
            closing.meters_rise(readers),
            closing.books_agree(auditor, ledger, len(gmids)),
            closing.last_values_arrived(readers, accepted),
            closing.slow_reader_is_spared(self._slow, accepted),
            closing.removals_were_told(auditor, removed),
            closing.desire_was_followed(auditor, self._bodies, detected),
            closing.turnover_is_the_ledgers(turnover, ledger, gmids),
        ]

    def _tell(self, incident: str) -> None:
        self._console.print(f"[dim]{incident}[/]")


def _is_up_to_date(reader: Reader, accepted: Accepted) -> bool:
    return not closing.missed(reader, accepted)


def _unlike(got: Sequence[str], due: Sequence[str]) -> list[str]:
    return [f"the answer was {one}, not {other}" for one, other in zip(got, due, strict=True) if one != other]
