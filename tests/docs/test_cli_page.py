"""The reference of the command is made of its help; `python -m tests.docs.test_cli_page` writes it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from nebula.cli import app
from nebula.cli.exits import Exit
from nebula.cli.grouped import HEADINGS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

OPENING = """\
# Commands

Every command of `nebula` with its arguments, options and examples. This page is generated from the commands
themselves; `nebula COMMAND --help` shows the same. [Use the command line](../how-to/command-line.md) explains
how commands name brokers and queues, how tables become JSON, and how to use them in scripts;
[Commands and Python side by side](cli-and-python.md) has the lines of Python that do the same. The
[glossary](glossary.md) explains words such as principal, grant and last value; the page on Avro explains the
[envelope](avro.md#the-envelope).

Four commands also have a short form, which has no section of its own: `nebula jobs` is
[`nebula job list`](#nebula-job-list), `nebula watch` is [`nebula job watch`](#nebula-job-watch),
`nebula cancel` is [`nebula job cancel`](#nebula-job-cancel), and `nebula engines` is
[`nebula engine list`](#nebula-engine-list).
"""

# An option that so many commands have is described once.
SHARED_BY = 10


class Command(NamedTuple):
    """A command as click knows it."""

    words: str
    heading: str
    command: Any
    context: Any


class Described(NamedTuple):
    """An argument or option: what one types, and what it does."""

    typed: str
    help: str


@cache
def commands() -> tuple[Command, ...]:
    """All commands that the help lists, in its order."""
    root: Any = get_command(app)

    def walk(command: Any, context: Any, heading: str) -> Iterator[Command]:
        if context.parent is not None:
            yield Command(context.command_path, heading, command, context)
        for name, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                own = inner.rich_help_panel if context.parent is None else heading
                yield from walk(inner, inner.context_class(inner, parent=context, info_name=name), own)

    found = list(walk(root, root.context_class(root, info_name="nebula"), ""))
    return tuple(sorted(found, key=lambda one: HEADINGS.index(one.heading)))


def described(one: Command, kind: str) -> Iterator[Described]:
    """The arguments or the options of a command."""
    # `nebula broker` describes its flags only when its help is asked for.
    one.command.get_help(one.context)
    for parameter in one.command.get_params(one.context):
        record = parameter.get_help_record(one.context)
        if parameter.param_type_name == kind and record is not None:
            yield Described(record[0], " ".join(record[1].split()))


@cache
def shared() -> tuple[Described, ...]:
    """Options that many commands have in the same words."""
    times = Counter(option for one in commands() for option in described(one, "option"))
    return tuple(option for option, count in times.items() if count >= SHARED_BY)


def listed(parameters: list[Described]) -> Iterator[str]:
    for one in parameters:
        yield f"- `{one.typed}`: {marked(one.help)}"
    yield ""


def prose(text: str) -> Iterator[str]:
    """The help of a command: paragraphs as they are, examples as code."""
    for paragraph in re.split(r"\n{2,}", text.strip()):
        as_it_stands = paragraph.startswith("\b")
        paragraph = paragraph.removeprefix("\b").strip("\n")
        example = re.match(r"Example: (nebula .*)", paragraph)
        if example is not None:
            yield from ("Example:", "", "```sh", example[1], "```", "")
        elif as_it_stands:
            title, *lines = paragraph.splitlines()
            language = "sh" if title.startswith("Example") else "text"
            yield from (title, "")
            yield from (f"```{language}", *(line.removeprefix("  ") for line in lines), "```", "")
        else:
            yield from (marked(" ".join(paragraph.split())), "")


def marked(words: str) -> str:
    """Words of the help with flags, variables and JSON set as code, where they are not yet."""
    code = r"`[^`]*`"
    bare = r"(?<![\w/-])--[a-z][a-z-]*|\bNEBULA_[A-Z_]+(?:=\w+|\.\.\.)?|\{\".*?\}"
    return re.sub(f"{code}|{bare}", lambda found: f"`{found[0].strip('`')}`", words)


def statuses() -> dict[int, str]:
    """Each exit status with what it means, from the help of `nebula`."""
    root: Any = get_command(app)
    said = re.search(r"Exit status: (.*?)\.(?:\s|$)", " ".join(root.help.split()))
    assert said is not None
    pairs = (part.strip().split(" ", 1) for part in said[1].split(";"))
    return {int(status): words for status, words in pairs}


def page() -> str:
    lines = [OPENING, "## Exit statuses", "", "| status | meaning |", "| ---: | --- |"]
    lines += [f"| {status} | {words} |" for status, words in statuses().items()]
    lines += ["", "Commands that say more about their statuses say so below.", ""]
    lines += ["## Shared options", "", "Most commands have these; each command names those that it has.", ""]
    lines += listed(list(shared()))
    for heading in HEADINGS:
        lines += [f"## {heading}", ""]
        for one in (each for each in commands() if each.heading == heading):
            lines += section(one)
    return "\n".join(lines).rstrip("\n") + "\n"


def section(one: Command) -> Iterator[str]:
    usage = " ".join(one.command.collect_usage_pieces(one.context))
    yield from (f"### {one.words}", "", "```text", f"{one.words} {usage}", "```", "")
    yield from prose(one.command.help or "")
    inner = [name for name, each in getattr(one.command, "commands", {}).items() if not each.hidden]
    if inner:
        links = ", ".join(f"[`{name}`](#{anchor(f'{one.words} {name}')})" for name in inner)
        yield from (f"Commands: {links}.", "")
    if arguments := list(described(one, "argument")):
        yield from ("Arguments:", "", *listed(arguments))
    options = list(described(one, "option"))
    if own := [option for option in options if option not in shared()]:
        yield from ("Options:", "", *listed(own))
    if common := [option for option in options if option in shared()]:
        names = ", ".join(f"`{option.typed.split()[-2 if ' ' in option.typed else 0]}`" for option in common)
        yield from (f"[Shared options](#shared-options): {names}.", "")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_page_says_what_the_help_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.test_cli_page"


def test_help_of_nebula_explains_each_exit_status() -> None:
    assert set(statuses()) == {int(status) for status in Exit}


@pytest.mark.parametrize("one", commands(), ids=lambda one: one.words)
def test_command_says_what_it_does_and_each_of_its_options_too(one: Command) -> None:
    assert one.command.help
    assert [
        each.typed for kind in ("argument", "option") for each in described(one, kind) if not each.help
    ] == []


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
