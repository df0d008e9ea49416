"""A venue's machines and their players, simulated: the same seed gives the same money.

No clock and no I/O: time comes in, in milliseconds since the epoch, and what a site controller would
publish comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from services.venue.ledger import Ledger, Movement
from services.venue.topics import Protocol

_PROTOCOLS: Final = tuple(Protocol)
_FIRST_NUMBER: Final = 100

# What a guest puts in at a time, in cents.
_NOTES: Final = (500, 1000, 2000, 5000)
_LINES: Final = (1, 5, 10, 20)
_MOST_BETS_A_ROUND: Final = 4

_A_GUEST_COMES: Final = 0.7
_A_GUEST_LEAVES: Final = 0.05
_A_BET_WINS: Final = 0.3
_WIN_FACTORS: Final = (1, 2, 2, 3, 5)
_A_DOOR_OPENS: Final = 0.01
_A_DOOR_CLOSES: Final = 0.3

_ROUNDS_BETWEEN_CLEARS: Final = 17

# A link shows no more than its ceiling, and is hit soon after it got there.
_JACKPOT_BASE: Final = 10_000
_JACKPOT_CEILING: Final = 11_000
_JACKPOT_SHARE: Final = 100  # one cent in every hundred
_A_FULL_JACKPOT_IS_HIT: Final = 0.05


@dataclass(frozen=True, slots=True)
class Game:
    """A game that is installed on a machine. Denominations are in cents, the return is 0 to 1."""

    theme: str
    paytable: str
    denominations: tuple[int, ...]
    rate_return: float

    @property
    def id(self) -> str:
        """Its name in destinations."""
        return f"{self.theme}:{self.paytable}"


@dataclass(slots=True)
class Meters:
    """Cents since the last RAM clear; they only rise."""

    cash_in: int = 0
    electronic_in: int = 0
    cancel_credit: int = 0
    ticket_out: int = 0
    wins: int = 0
    turnover: int = 0


@dataclass(slots=True)
class Machine:
    """One machine.

    Attributes:
        gmid: the regulator's name for it.
        protocol: what it speaks.
        position: where it stands.
        games: by id, all that are installed.
        disabled: ids of games that are not offered.
        meters: its money.
        balance: what the guest in front of it may still bet or take, in cents.
        reset_at: its last RAM clear, in ms since the epoch.
        is_door_open: whether its door is open. Guests cannot play then.
    """

    gmid: str
    protocol: Protocol
    position: str
    games: dict[str, Game]
    disabled: set[str] = field(default_factory=set)
    meters: Meters = field(default_factory=Meters)
    balance: int = 0
    reset_at: int | None = None
    is_door_open: bool = False

    @property
    def number(self) -> int:
        """Its place in the maker's numbering."""
        return int(self.gmid.removeprefix("GM"))

    def offered(self) -> list[Game]:
        """The games that a guest can choose from."""
        return [game for game in self.games.values() if game.id not in self.disabled]


@dataclass(slots=True)
class Link:
    """A jackpot that the machines of one protocol feed. Gauges and meters are in cents."""

    host: str
    current: int = _JACKPOT_BASE
    hits: int = 0
    wins: int = 0
    fed: int = 0

    @property
    def shown(self) -> int:
        """What the guests see."""
        return min(self.current, _JACKPOT_CEILING)

    def feed(self, cents: int) -> None:
        """Take a share of a bet; shares below a cent add up."""
        before = self.fed // _JACKPOT_SHARE
        self.fed += cents
        self.current += self.fed // _JACKPOT_SHARE - before

    def hit(self) -> int:
        """Pay what is shown; what is above it stays for the next one."""
        paid = self.shown
        self.current += _JACKPOT_BASE - paid
        self.hits += 1
        self.wins += paid
        return paid


class Venue:
    """Machines, guests, and the ledger of what they did.

    Args:
        seed: of all chance.
        size: how many machines; the protocols take turns.

    Attributes:
        machines: by GMID.
        links: the jackpot of each protocol.
        ledger: every movement of money.
    """

    def __init__(self, *, seed: int = 1, size: int = 50) -> None:
        self._random = Random(seed)  # noqa: S311  # a simulation has to be repeatable
        self._rounds = 0
        self.ledger = Ledger()
        self.machines = {machine.gmid: machine for machine in map(_new_machine, range(size))}
        self.links = {
            machine.protocol: Link(machine.gmid) for machine in reversed(list(self.machines.values()))
        }

    def play(self, now: int) -> list[Machine]:
        """Play one round; returns the machines whose meters moved."""
        self._rounds += 1
        played = [machine for machine in self.machines.values() if self._play(machine)]
        if self._rounds % _ROUNDS_BETWEEN_CLEARS == 0:
            turn = self._rounds // _ROUNDS_BETWEEN_CLEARS
            cleared = list(self.machines.values())[turn % len(self.machines)]
            self.clear(cleared, now)
            if cleared not in played:
                played.append(cleared)
        return played

    def clear(self, machine: Machine, now: int) -> None:
        """Clear a machine's memory: its meters begin at zero. The guest is paid first."""
        self._pay_out(machine)
        machine.meters = Meters()
        machine.reset_at = now
        self.ledger.begin_anew(machine.gmid)

    def _play(self, machine: Machine) -> bool:
        chance = self._random.random
        if machine.is_door_open:
            machine.is_door_open = chance() >= _A_DOOR_CLOSES
            return False
        if not machine.balance:
            return self._welcome(machine)
        for _ in range(self._random.randint(1, _MOST_BETS_A_ROUND)):
            self._bet(machine)
        if chance() < _A_GUEST_LEAVES:
            self._pay_out(machine)
        return True

    def _welcome(self, machine: Machine) -> bool:
        """Let a guest arrive with money, let an attendant open the door, or do nothing."""
        chance = self._random.random()
        if chance < _A_GUEST_COMES and machine.offered():
            cents = self._random.choice(_NOTES)
            machine.balance += cents
            if self._random.random() < 0.5:
                machine.meters.cash_in += cents
                self.ledger.post(machine.gmid, Movement.CASH_IN, cents)
            else:
                machine.meters.electronic_in += cents
                self.ledger.post(machine.gmid, Movement.ELECTRONIC_IN, cents)
            return True
        machine.is_door_open = chance > 1 - _A_DOOR_OPENS
        return False

    def _bet(self, machine: Machine) -> None:
        games = machine.offered()
        if not games or not machine.balance:
            return
        denomination = self._random.choice(self._random.choice(games).denominations)
        stake = min(machine.balance, denomination * self._random.choice(_LINES))
        machine.balance -= stake
        machine.meters.turnover += stake
        self.ledger.post(machine.gmid, Movement.BET, stake)
        link = self.links[machine.protocol]
        link.feed(stake)
        won = stake * self._random.choice(_WIN_FACTORS) if self._random.random() < _A_BET_WINS else 0
        if link.current >= _JACKPOT_CEILING and self._random.random() < _A_FULL_JACKPOT_IS_HIT:
            won += link.hit()
        machine.balance += won
        machine.meters.wins += won
        self.ledger.post(machine.gmid, Movement.WIN, won)

    def _pay_out(self, machine: Machine) -> None:
        cents, machine.balance = machine.balance, 0
        # A ticket pays what the machine may print; a member of staff pays the rest by hand.
        if cents <= _NOTES[-1]:
            machine.meters.ticket_out += cents
            self.ledger.post(machine.gmid, Movement.TICKET_OUT, cents)
        else:
            machine.meters.cancel_credit += cents
            self.ledger.post(machine.gmid, Movement.CANCEL_CREDIT, cents)


def _new_machine(index: int) -> Machine:
    protocol = _PROTOCOLS[index % len(_PROTOCOLS)]
    games = {game.id: game for game in _games(protocol, index)}
    position = f"{'ABCDE'[index % 5]}{index // 5 + 1:02}"
    return Machine(f"GM{_FIRST_NUMBER + index:06}", protocol, position, games)


def _games(protocol: Protocol, index: int) -> Iterator[Game]:
    """Two games, named in the protocol's own way (F.3)."""
    for number in (1, 2):
        theme, paytable = {
            Protocol.X_STANDARD: (str(number), str(index % 4 + 1)),
            Protocol.QCOM: (f"{0x1A00 + number:04X}", f"{index % 4 + 1:02}"),
            Protocol.G2S: (f"NEB_theme{number}", f"NEB_pay{index % 4 + 1}"),
        }[protocol]
        yield Game(theme, paytable, (1, 2, 5)[: number + 1], 0.85 + index % 4 / 100)
