"""Plays transcripts, and rewrites them. README.md has their language, `stage.py` its words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.stage import Stage
from tests.conformance.worlds import World


class Different(AssertionError):
    """What happened is not what the transcript says.

    Attributes:
        number: of the line, from 1; one more than there are lines: the end.
    """

    def __init__(self, number: int, expected: list[str], happened: list[str]) -> None:
        says, was = ("\n".join(lines) or "(nothing)" for lines in (expected, happened))
        super().__init__(f"line {number} says\n{says}\nand this happened\n{was}")
        self.number = number


def play(text: str, world: World) -> None:
    """Do what each line says.

    Raises:
        Different: at the first line that is not what happened, or for what was left to be heard at the end.
    """
    for number, (expected, happened) in enumerate(_performed(text, world), 1):
        if happened != expected:
            raise Different(number, expected, happened)


def rewritten(text: str, world: World) -> str:
    """The transcript with what was heard in place of what it expected."""
    lines = [line for _, happened in _performed(text, world) for line in happened]
    return "\n".join(lines) + text[len(text.rstrip("\n")) :]


def _performed(text: str, world: World) -> Iterator[tuple[list[str], list[str]]]:
    """Each line, and the lines that it should be."""
    stage = Stage(world)
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        try:
            happened = stage.perform(line)
        except AssertionError as error:
            error.add_note(f"line {number}: {line}")
            raise
        yield [line], happened
    yield [], stage.left_over()
