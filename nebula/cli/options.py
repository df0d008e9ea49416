"""The options that several commands share, each declared once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeAlias

from typer import Argument, BadParameter, Context, Option

from nebula.destinations import TOPIC, destination_named, is_bare, queue_named
from nebula.logs import Level


def job_named(job: str) -> str:
    """Argument callback: a job's id, or its service and the first characters of the id."""
    from nebula.rpc.jobs.model.identifiers import unqualified

    try:
        if job == "-":
            # The output of `nebula call` or `nebula job rerun` off a terminal.
            job = str(json.load(sys.stdin)["job"])
        if (short := _short_id(job)) is not None:
            return short
        service, ulid = unqualified(job)
    except (KeyError, TypeError, json.JSONDecodeError):
        raise BadParameter("on stdin there is no answer of `nebula call` to a job's verb") from None
    except ValueError as error:
        raise BadParameter(str(error)) from None
    # Finding a bare ULID would take a request to every service, and the rights for each.
    if service is None:
        raise BadParameter(f"it does not say whose job it is: SERVICE/{ulid} would")
    return job


def _short_id(job: str) -> str | None:
    """An abbreviated job id; None if it is not one."""
    from nebula.cli.ids import JOB_PREFIX

    service, _, ulid = job.rpartition("/")
    return f"{service}/{ulid.upper()}" if service and JOB_PREFIX.fullmatch(ulid) else None


def named_destination(name: str | None) -> str | None:
    """The destination that a word means, as a callback of an argument or option."""
    return None if name is None else _meant(destination_named, name)


def named_source(name: str | None) -> str | None:
    """The destination to read from that a word means, which may be a glob; a callback like the others."""
    return None if name is None else _meant(partial(destination_named, takes_globs=True), name)


def named_sources(names: list[str] | None) -> list[str] | None:
    """Several, as `named_source`."""
    return None if names is None else [str(named_source(name)) for name in names]


def named_queue(name: str | None) -> str | None:
    """The queue, or glob of queues, that a word means; `**` are all of them."""
    return name if name is None or name == "**" else _meant(queue_named, name)


def named_topic(name: str) -> str:
    """A topic or last value, or a glob of them, that a word means: a bare one would be a queue's."""
    # A bare name such as `news` is a queue here too (docs/decisions/0042), so an empty list would mislead.
    if is_bare(name) and not name.startswith("*"):
        raise BadParameter(
            f"{name!r} is a queue's name, {queue_named(name)!r}; did you mean {TOPIC + name!r}?"
        )
    return name if is_bare(name) else _meant(destination_named, name)


def _service(name: str) -> str:
    _meant(queue_named, name)
    return name


def _meant(rule: Callable[[str], str], name: str) -> str:
    try:
        return rule(name)
    except ValueError as error:
        raise BadParameter(str(error)) from None


def _address_of(named: str | None) -> str | None:
    from nebula.cli.contexts import find_broker

    return find_broker(named)


def _complete_names(incomplete: str) -> list[str]:
    from nebula.cli.contexts import complete_names

    return complete_names(incomplete)


def completion_of(name: str) -> Callable[[Context, str], list[str]]:
    """The completion function of that name in `nebula.cli.completing`, loaded when it is used."""

    def complete(ctx: Context, incomplete: str) -> list[str]:
        from nebula.cli import completing

        # By name, because the module is imported only for a completion.
        found: list[str] = getattr(completing, name)(ctx.params, incomplete)
        return found

    return complete


Url: TypeAlias = Annotated[
    str | None,
    Option(
        "--broker",
        "-b",
        metavar="URL|HOST:PORT|NAME",
        help="Address of the broker, or a context's name (`nebula contexts`). The default is"
        " NEBULA_BROKER, else stomp://127.0.0.1:61613.",
        show_default=False,
        # The callback turns a context's name into its address.
        callback=_address_of,
        autocompletion=_complete_names,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, Option("--json", help="Write JSON on a terminal too. Elsewhere the output is always JSON.")
]
FullIds: TypeAlias = Annotated[bool, Option("--full", help="Show whole ids. JSON always has them.")]
Timeout: TypeAlias = Annotated[
    # Above 0, because a call that does not wait never succeeds.
    float, Option("--timeout", "-t", metavar="SECONDS", min=0.001, help="How long to wait for the answer.")
]
LogLevel: TypeAlias = Annotated[Level, Option(help="Lowest level of events that are logged.")]
Watch: TypeAlias = Annotated[
    bool, Option("--watch", "-w", help="Refresh the output as it changes, until Ctrl-C.")
]
Service: TypeAlias = Annotated[
    str,
    Argument(
        metavar="SERVICE",
        help="The service's name, for example prices.",
        callback=_service,
        autocompletion=completion_of("complete_services"),
    ),
]
Verb: TypeAlias = Annotated[
    str,
    Argument(
        metavar="VERB",
        help="The verb; `nebula describe` lists them.",
        autocompletion=completion_of("complete_verbs"),
    ),
]
Parameters: TypeAlias = Annotated[
    list[str] | None, Argument(metavar="NAME=TEXT | NAME:=JSON", help="The verb's parameters.")
]
JobId: TypeAlias = Annotated[
    str,
    Argument(
        metavar="JOB",
        help="SERVICE/ULID, or its first characters, as `nebula job list` shows it; - reads the reply of"
        " `nebula call` from stdin.",
        callback=job_named,
        autocompletion=completion_of("complete_jobs"),
    ),
]

# As in `nebula.Client`, so that a script gets status 3 in the end.
DEFAULT_TIMEOUT = 30.0
