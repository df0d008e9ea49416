"""`nebula engine list|restart`, and `nebula engines`: the engines of a service's jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from typer import Argument, Option
from typer import Exit as Leave

from nebula.cli.exits import Exit
from nebula.cli.operators import Yes, make_sure
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Service, Timeout, Url
from nebula.cli.render import Output
from nebula.cli.replies import Engines, checked
from nebula.cli.tables import table

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

# Present instances reply at once; a busy one is shown as missing rather than waited for.
_TIMEOUT = 5.0

# In place of an answer; one may be None.
_MISSING: Final = object()
_SILENT: Final[Mapping[str, Any]] = {"": {"state": "no answer"}}

Instance: TypeAlias = Annotated[
    str | None,
    Option("--instance", metavar="NAME", help="Only this instance, as `nebula services` shows it."),
]
Engine: TypeAlias = Annotated[
    str | None, Argument(metavar="NAME", help="The engine; not needed if there is only one.")
]

engine = typer.Typer(
    name="engine",
    no_args_is_help=True,
    help="List what runs the jobs of a service, or replace an engine.",
)


def engines(
    service: Service,
    *,
    instance: Instance = None,
    broker: Url = None,
    timeout: Timeout = _TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show what runs the jobs of a service, by instance and name: Spark's engines, and the service itself.

    `running` and `memory` include isolated jobs. `had` counts the jobs since the engine was started. `why`
    is what is wrong with it, or why it last ended. JSON also has processes, versions of Java and Spark,
    settings (without values that may be secret), each isolated job, and jobs by how they ended.

    \b
    Examples:
      nebula engine list reports
      nebula engine list reports | jq -r '.[] | select(.broken) | .broken'
    """
    from nebula.cli.asking import ask, asking_for_jobs

    output = Output(as_json=as_json)
    with asking_for_jobs(service):
        rows = ask(broker, lambda client: _rows(client, service, instance, timeout))
    if not output.is_for_people:
        output.json_line(rows)
        return
    from nebula.cli.job_columns import ENGINES

    shown = [_shown(row) for row in rows]
    output.show(table(ENGINES, shown) if rows else f"{service} has no jobs, and no engines")


# `nebula engines` is a hidden short form of the same function.
engine.command(name="list")(engines)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    isolated = row.get("isolated", [])
    # Isolated runs are separate processes, whose memory counts too.
    memory = [row.get("rss_bytes"), *(run.get("rss_bytes") for run in isolated)]
    return {
        **row,
        "running": row.get("jobs", {}).get("open", 0) + len(isolated),
        "rss_bytes": sum(each or 0 for each in memory) or None,
        "why": row.get("broken") or row.get("last_end"),
    }


@engine.command()
def restart(
    service: Service,
    name: Engine = None,
    *,
    instance: Instance = None,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Replace an engine, in one instance of a service or in all: its jobs are lost, or run again.

    Only the engine's operators may do this, Spark(operators=[…]). Isolated jobs continue.

    \b
    Examples:
      nebula engine restart reports
      nebula engine restart reports bulk --instance 3f2a9c41 --yes
    """
    from nebula.cli.asking import ask, asking_for_jobs

    what = f"{'the engine' if name is None else f'engine {name}'} of {service}"
    # Before connecting, so that a script without --yes fails even if no broker runs.
    make_sure(f"Replace {what}, with the jobs on it?", is_sure=yes)
    verb, parameters = "engine.restart", {} if name is None else {"engine": name}
    with asking_for_jobs(service):
        told = ask(broker, lambda client: _tell(client, service, instance, verb, parameters, timeout))
    missing = sorted(one for one, answer in told.items() if answer is _MISSING)
    # The replacement has only begun: `nebula engine list` shows when the engine is ready.
    done = sorted(told.keys() - set(missing))
    text = _sentence_of(what, done, missing)
    Output(as_json=as_json).event(text, service=service, engine=name, instances=done, missing=missing)
    if missing:
        # Only some instances did it, and the sentence names the others.
        raise Leave(Exit.UNREACHED)


def _sentence_of(what: str, done: Sequence[str], missing: Sequence[str]) -> str:
    text = f"{what} is being replaced; instances: {', '.join(done) or 'none'}"
    return f"{text}; without an answer: {', '.join(missing)}" if missing else text


async def _rows(client: Client, service: str, instance: str | None, seconds: float) -> list[dict[str, Any]]:
    verb = "engine.status"
    told = await _tell(client, service, instance, verb, {}, seconds)
    known = {
        where: _SILENT if answer is _MISSING else checked(Engines, answer, service, verb)
        for where, answer in told.items()
    }
    return [
        {"instance": where, "engine": name, **status}
        for where in sorted(known)
        for name, status in sorted(known[where].items())
    ]


async def _tell(
    client: Client,
    service: str,
    instance: str | None,
    verb: str,
    parameters: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """What each instance answers, by its name; `_MISSING` for one that does not in time.

    Raises:
        NebulaError: none is there, or one answered with an error.
    """
    if instance is not None:
        # Each instance has a queue of its own as well, see docs/decisions/0024.
        target = f"{service}.{instance}"
        return {instance: await client.call(target, verb, parameters, timeout=seconds)}
    found = await client.call_all(service, verb, parameters, timeout=seconds)
    if not found.answers and not found.missing:
        # An instance that does not register is asked by the service's queue: any of them replies.
        return {"": await client.call(service, verb, parameters, timeout=seconds)}
    return {
        **{one.name: _MISSING for one in found.missing},
        **{one.instance.name: one.value for one in found.answers},
    }
