"""The site controller: polls the machines and says what to publish. No I/O and no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from services.venue import records
from services.venue.model import Machine, Venue
from services.venue.records import Record
from services.venue.topics import Protocol, Topic, game_topic, machine_topic


@dataclass(frozen=True, slots=True)
class Update:
    """One value to publish; None deletes it."""

    destination: str
    topic: Topic
    record: Record | None


class SiteController:
    """What is published of a venue, and what is done on behalf of those who wish to change it.

    Args:
        venue: the machines.
    """

    def __init__(self, venue: Venue) -> None:
        self._venue = venue
        self._statuses: dict[str, Record] = {}
        self._jackpots: dict[Protocol, int] = {}

    def open(self, now: int) -> list[Update]:
        """Everything there is to know of each machine, once."""
        machines = self._venue.machines.values()
        return [update for machine in machines for update in self._everything(machine, now)]

    def poll(self, now: int) -> list[Update]:
        """Let one round be played: readings of machines that were played, and what else has changed."""
        played = self._venue.play(now)
        statuses = (self._status(machine, now) for machine in self._venue.machines.values())
        return [
            *(self._meters(machine, now) for machine in played),
            *(update for update in statuses if update is not None),
            *self._jackpot_levels(now),
        ]

    def follow(self, gmid: str, game_id: str, *, is_desired: bool, now: int) -> list[Update]:
        """Offer a game, or stop offering it, as a client desires. A game that is not installed is ignored."""
        machine = self._venue.machines.get(gmid)
        if machine is None or game_id not in machine.games:
            return []
        (machine.disabled.discard if is_desired else machine.disabled.add)(game_id)
        return [self._game(machine, game_id, now)]

    def uninstall(self, gmid: str, game_id: str) -> list[Update]:
        """Take a game off a machine: its configuration is gone from the store."""
        machine = self._venue.machines[gmid]
        del machine.games[game_id]
        machine.disabled.discard(game_id)
        destination = game_topic(machine.protocol, gmid, game_id, Topic.GAME_DETECTED)
        return [Update(destination, Topic.GAME_DETECTED, None)]

    def replace_interface(self, gmid: str, protocol: Protocol, now: int) -> list[Update]:
        """Have a machine speak another protocol from now on: its keys stay, its destinations change."""
        machine = self._venue.machines[gmid]
        machine.protocol = protocol
        self._statuses.pop(gmid, None)
        return self._everything(machine, now)

    def _everything(self, machine: Machine, now: int) -> list[Update]:
        status = self._status(machine, now)
        assert status is not None
        return [
            self._of(machine, Topic.DETECTED, records.detected_config(machine, now)),
            *(self._game(machine, game_id, now) for game_id in machine.games),
            status,
            self._meters(machine, now),
        ]

    def _meters(self, machine: Machine, now: int) -> Update:
        return self._of(machine, Topic.METERS, records.meter_reading(machine, now))

    def _game(self, machine: Machine, game_id: str, now: int) -> Update:
        destination = game_topic(machine.protocol, machine.gmid, game_id, Topic.GAME_DETECTED)
        record = records.game_detected(machine, machine.games[game_id], now)
        return Update(destination, Topic.GAME_DETECTED, record)

    def _status(self, machine: Machine, now: int) -> Update | None:
        """The machine's status if it is news."""
        record = records.status(machine, now)
        known = {name: value for name, value in record.items() if name != "from"}
        if self._statuses.get(machine.gmid) == known:
            return None
        self._statuses[machine.gmid] = known
        return self._of(machine, Topic.STATUS, record)

    def _jackpot_levels(self, now: int) -> list[Update]:
        """Links that grew or were hit, published by the machines that host them."""
        members = Counter(machine.protocol for machine in self._venue.machines.values())
        updates = []
        for protocol, link in self._venue.links.items():
            # The fed amount only rises, so comparing it detects a hit too.
            if self._jackpots.get(protocol) != link.fed:
                self._jackpots[protocol] = link.fed
                host = self._venue.machines[link.host]
                record = records.jackpot_reading(host, link, members[protocol], now)
                updates.append(self._of(host, Topic.JACKPOT, record))
        return updates

    def _of(self, machine: Machine, topic: Topic, record: Record) -> Update:
        return Update(machine_topic(machine.protocol, machine.gmid, topic), topic, record)
