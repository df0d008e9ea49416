"""A message that counts how often it is looked at: what costs in proportion looks at each a few times."""

from __future__ import annotations

from nebula.broker.core.messages import Message


class Counted(Message):
    """Counts how often any of them is asked for its number."""

    __slots__ = ("_number",)
    looks = 0

    @property
    def number(self) -> int:
        Counted.looks += 1
        return self._number

    @number.setter
    def number(self, number: int) -> None:
        self._number = number
