"""Each command next to the lines of Python that do the same; the commands without such lines, and why.

`test_side_by_side.py` runs both against one broker and compares what they return; the page
docs/reference/cli-and-python.md is made of the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["HEADINGS", "NO_EQUIVALENT", "PAIRS", "Pair"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A command, and Python that does the same.

    Names in capitals stand for a value that the test or `before` makes: JOB, INSTANCE, NUMBER. They are
    replaced in the words of the command, and are variables in Python.

    Attributes:
        words: of the command, as a shell reads them.
        python: the same with `client`, a `nebula.sync.Client`. The last line is an expression, or it sets
            `value`.
        before: Python that is run before each of the two, with `url` too.
        of_command: what is compared of `told`, the JSON of the command; a list where it is several lines.
        of_python: what is compared of `value`, the result of `python`.
        effect: what is compared in addition, after each of the two: what they have changed.
        stop_at: Ctrl-C is pressed when the command has shown this.
        fails: both report the same error.
    """

    words: str
    python: str
    before: str = ""
    of_command: str = "told"
    of_python: str = "value"
    effect: str = "None"
    stop_at: str = ""
    fails: bool = False

    def has_command(self, command: str) -> bool:
        """Whether this is about a command, such as `job show`."""
        return f"{self.words} ".startswith(f"{command} ")


def _verb(name: str, parameters: str = "") -> str:
    """A call of one of the broker's verbs."""
    return f'client.call("nebula.broker", "{name}"{parameters and ", " + parameters})'


_COUNTED = 'JOB = client.start("shop", "count", {"items": 3}).id; client.job(JOB).wait()'
_OPEN = 'JOB = client.start("shop", "forever").id'

_PEEK = _verb("queue.peek", '{"queue": "/queue/orders"}')
_BODIES = f"[(one['body'], one['headers']['content-type']) for one in {_PEEK}]"
_COUNT = _verb("queues.list", '{"pattern": "/queue/orders"}') + '["matched"]'
_EMPTY = 'client.publish("/queue/orders", 0); ' + _verb("queue.purge", '{"queue": "/queue/orders"}')
_ORDERS = f'{_EMPTY}; client.publish("/queue/orders", "cup"); client.publish("/queue/orders", "mug")'

_LATE = _verb("delayed.purge") + '; client.publish("/queue/late", "cup", headers={"delay": "3600000"})'

_DEAD = "bury(client); NUMBER = " + _verb("dlq.list") + '["rows"][0]["number"]'
_LETTERS = f'[one["source"] for one in {_verb("dlq.list")}["rows"]]'

_AWAY = "leave_durable(url)"
_SESSIONS = f'[(one["session"], one["waiting"]) for one in {_verb("sessions.list")}["rows"]]'

PAIRS: Final[dict[str, tuple[Pair, ...]]] = {
    "Call": (
        Pair("call shop price item=cup qty:=2", 'client.call("shop", "price", {"item": "cup", "qty": 2})'),
        Pair(
            "call shop count items:=3 --priority 8",
            'client.start("shop", "count", {"items": 3}, priority=8).id',
            # Each begins a job of its own.
            of_command="client.job(told['job']).show()['priority']",
            of_python="client.job(value).show()['priority']",
        ),
        Pair(
            "stream shop prices item=cup -n 3",
            'list(islice(client.stream("shop", "prices", {"item": "cup"}), 3))',
        ),
        Pair(
            "send orders note text=hi",
            'client.send("orders", "note", {"text": "hi"})',
            before=_EMPTY,
            of_command="None",
            effect=_BODIES,
        ),
        Pair(
            "services",
            "client.services()",
            of_command="[{name: one[name] for name in one if name != 'differs'} for one in told]",
        ),
        Pair("describe shop", 'client.call("shop", "describe")'),
        Pair("describe shop --instance INSTANCE", 'client.call(f"shop.{INSTANCE}", "describe")'),
        Pair(
            "ping shop",
            'client.call_all("shop", "ping").answers',
            of_command="[one['instance'] for one in told]",
            of_python="[one.instance.name for one in value]",
        ),
        Pair(
            "stats shop",
            'client.call_all("shop", "stats").answers',
            of_command="{name: one['verbs']['price'] for name, one in told['by_instance'].items()}",
            of_python="{one.instance.name: without_buckets(one.value)['verbs']['price'] for one in value}",
        ),
    ),
    "Publish": (
        Pair(
            "pub orders cup --content-type text/plain",
            'client.publish("orders", "cup", content_type="text/plain")',
            before=_EMPTY,
            of_command="None",
            effect=_BODIES,
        ),
        Pair(
            "sub orders",
            'with client.subscribe("/queue/orders") as messages:\n    value = next(messages)',
            before=f'{_EMPTY}; client.publish("/queue/orders", "cup")',
            of_command="(told['destination'], told['body'])",
            of_python="(value.destination, value.body.decode())",
            effect=_COUNT,
            stop_at='"cup',
        ),
    ),
    "Jobs": (
        Pair(
            "job list shop --verb count --limit 2",
            'client.call("shop", "job.list", {"verb": "count", "limit": 2})["jobs"]',
        ),
        Pair("job show JOB", "client.job(JOB).show()"),
        Pair("job watch JOB", "list(client.job(JOB).watch())", of_command="[told]"),
        Pair("job result JOB", "client.job(JOB).result()", before=_COUNTED),
        Pair(
            "job result JOB --format ndjson",
            "list(client.job(JOB).rows())",
        ),
        Pair("job log JOB --after 1", "client.job(JOB).log_lines(after=1)"),
        Pair("job log JOB --follow", "list(client.job(JOB).log(follow=True))"),
        Pair(
            "job cancel JOB",
            "client.job(JOB).cancel()",
            before=_OPEN,
            of_command="told['state']",
            of_python="value.state",
            effect="client.job(JOB).wait().state",
        ),
        Pair(
            "job rerun JOB",
            "client.job(JOB).rerun().id",
            of_command="client.job(told['job']).show()['rerun_of'] == told['rerun_of'] == JOB",
            of_python="client.job(value).show()['rerun_of'] == JOB",
        ),
        Pair(
            "engine list shop",
            'client.call_all("shop", "engine.status").answers',
            of_command="[(one['instance'], one['engine'], one['state']) for one in told]",
            of_python="[(one.instance.name, name, engine['state']) for one in value"
            " for name, engine in one.value.items()]",
        ),
        Pair(
            "engine restart shop bulk --yes",
            'client.call_all("shop", "engine.restart", {"engine": "bulk"}).answers[0].value',
            fails=True,
        ),
    ),
    "Operate": (
        Pair("top --once --interval 0.2", _verb("broker.status"), of_command="told['status']"),
        Pair("queues", _verb("queues.list", '{"internal": False}'), before=_ORDERS),
        Pair("queues orders", _verb("queue.show", '{"queue": "/queue/orders"}'), before=_ORDERS),
        Pair("topics", _verb("topics.list", '{"internal": False}'), before='client.publish("X/a", 1)'),
        Pair("topics X/a", _verb("topic.show", '{"topic": "X/a"}'), before='client.publish("X/a", 1)'),
        Pair(
            "connections",
            _verb("connections.list"),
            # A command has a connection of its own.
            of_command="{one['principal'] for one in told['rows']}",
            of_python="{one['principal'] for one in value['rows']}",
        ),
        Pair(
            "connections till",
            _verb("connection.show", '{"session": "till"}'),
            of_command="(told['summary']['session'], told['subscriptions'])",
            of_python="(value['summary']['session'], value['subscriptions'])",
        ),
        Pair("sessions", _verb("sessions.list"), before=_AWAY),
        Pair("sessions away", _verb("session.show", '{"session": "away"}'), before=_AWAY),
        Pair(
            "principals",
            _verb("principals.list"),
            of_command="[one['principal'] for one in told['rows']]",
            of_python="[one['principal'] for one in value['rows']]",
        ),
        Pair(
            "peek orders --limit 1",
            _verb("queue.peek", '{"queue": "/queue/orders", "limit": 1}'),
            before=_ORDERS,
        ),
        Pair(
            "purge orders --yes",
            _verb("queue.purge", '{"queue": "/queue/orders"}'),
            before=_ORDERS,
            of_command="told['purged']",
            effect=_COUNT,
        ),
        Pair(
            "disconnect guest --yes",
            _verb("connection.end", '{"session": "guest"}'),
            before="admit(url)",
            of_command="None",
            effect=f'"guest" in str({_verb("connections.list")})',
        ),
        Pair("dlq list", _verb("dlq.list"), before=_DEAD),
        Pair("dlq show NUMBER", _verb("dlq.show", '{"number": NUMBER, "max_bytes": 100_000}'), before=_DEAD),
        Pair(
            "dlq replay NUMBER", _verb("dlq.replay", '{"numbers": [NUMBER]}'), before=_DEAD, effect=_LETTERS
        ),
        Pair("dlq purge --all --yes", _verb("dlq.purge"), before=_DEAD, effect=_LETTERS),
        Pair(
            "delayed list",
            _verb("delayed.list"),
            before=_LATE,
        ),
        Pair(
            "delayed purge --pattern late --yes",
            _verb("delayed.purge", '{"pattern": "/queue/late"}'),
            before=_LATE,
            of_command="told['purged']",
            effect=_verb("delayed.list"),
        ),
        Pair(
            "session purge away --yes",
            _verb("session.purge", '{"session": "away"}'),
            before=_AWAY,
            of_command="told['purged']",
            effect=_SESSIONS,
        ),
        Pair(
            "session end away --yes",
            _verb("session.end", '{"session": "away"}'),
            before=_AWAY,
            of_command="None",
            effect=_SESSIONS,
        ),
    ),
    "Tools": (
        Pair(
            "schema shop --json",
            'client.call("shop", "describe")["verbs"]',
            of_python="{one['verb']: {part: one[part] for part in told[one['verb']]} for one in value}",
        ),
    ),
}
"""By the headings of `nebula --help`."""

HEADINGS: Final = tuple(PAIRS)

NO_EQUIVALENT: Final = {
    "broker": "It is a program. In tests, `nebula.testing.broker` runs a broker.",
    "run": "It is a program. In a program of your own, `await app.run(url)` serves the responder `app`.",
    "record": "It is a program. In a program of your own, use `nebula.record.Recorder`.",
    "doctor": "It judges what verbs return, and measures the machine on which it runs.",
    "settings check": "It needs a broker that `nebula broker` has started. Its verb is `settings.check`.",
    "console": "It serves a page for people; what that shows, the verbs of the broker return.",
    "settings schema": "It asks no broker. The schema is in docs/reference/nebula.schema.json too.",
    "settings example": "It asks no broker. The example is in docs/reference/nebula.example.toml too.",
    "stubs": 'It writes a module. `client.call(SERVICE, "describe")` returns what the module is made from.',
    "bench call": "It measures a broker and a service from the machine on which it runs.",
    "bench pub": "It measures a broker and a service from the machine on which it runs.",
    "contexts": "It shows a file of the command line. A client takes the address.",
    "cert ca": "It writes files and asks no broker.",
    "cert server": "It writes files and asks no broker.",
    "cert client": "It writes files and asks no broker.",
    "passcode": "It writes a line of a file and asks no broker.",
    "store check": "It opens the files of a broker that does not run.",
    "store compact": "It opens the files of a broker that does not run.",
    "store export": "It opens the files of a broker that does not run.",
    "store import": "It opens the files of a broker that does not run.",
    "store backup": "It copies the files of a broker. The broker's verb `store.backup` does it there.",
}
"""Commands that `nebula.sync` has nothing for."""
