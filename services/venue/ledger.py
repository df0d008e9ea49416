"""The house's books: every movement of money, kept apart from the machines' meters."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum


class Movement(StrEnum):
    """Why money moved. The meter model puts each on one side (F.3)."""

    CASH_IN = "cash in"
    ELECTRONIC_IN = "electronic in"
    BET = "bet"
    CANCEL_CREDIT = "cancel credit"
    TICKET_OUT = "ticket out"
    WIN = "win"


_CREDITS = frozenset({Movement.CANCEL_CREDIT, Movement.TICKET_OUT, Movement.WIN})


class Ledger:
    """Sums of movements in cents, by machine, since its last RAM clear."""

    def __init__(self) -> None:
        self._books: defaultdict[str, Counter[Movement]] = defaultdict(Counter)

    def post(self, gmid: str, movement: Movement, cents: int) -> None:
        """Write a movement down."""
        self._books[gmid][movement] += cents

    def begin_anew(self, gmid: str) -> None:
        """Begin a new page: the machine's meters were cleared."""
        del self._books[gmid]

    def total(self, gmid: str, movement: Movement) -> int:
        """Cents of one kind of movement."""
        return self._books[gmid][movement] if gmid in self._books else 0

    def net(self, gmid: str) -> int:
        """Credits less debits, in cents: what a reading of the machine's meters has to come to."""
        return sum(
            cents if movement in _CREDITS else -cents
            for movement, cents in self._books.get(gmid, Counter[Movement]()).items()
        )
