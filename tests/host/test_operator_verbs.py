"""The verbs for operators, asked of a broker process over the protocol itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import pytest

from nebula.broker.operations.administration import (
    CONNECTION_RANKS,
    PRINCIPAL_RANKS,
    QUEUE_RANKS,
    TOPIC_RANKS,
    Steps,
)
from nebula.broker.operations.orders import ConnectionOrder, PrincipalOrder, QueueOrder, TopicOrder
from nebula.broker.operations.views import (
    BrokerStatus,
    ConnectionDetails,
    ConnectionRow,
    DeadLetter,
    DelayedRow,
    DiskView,
    DurableRow,
    FlowRow,
    HistorySample,
    KindTotals,
    ListenerView,
    MachineView,
    MessageView,
    PoolStatus,
    PrincipalRow,
    QueueDetails,
    QueueRow,
    RightsView,
    SessionDetails,
    SessionRow,
    StoreStatus,
    SubscriptionRow,
    TopicDetails,
    TopicRow,
)
from nebula.error_codes import BROKER_CODES, CODES
from nebula.errors import RemoteError
from nebula.headers import BROKER_QUEUE
from nebula.host import operator_verbs
from nebula.host.operator_verbs import Desk, acting
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.wire.envelope import Envelope
from nebula.shown import Unit, shown_fields
from nebula.stomp.client import AckMode
from nebula.sync import Client
from tests.cli.programs import running
from tests.faults.served import Wire, serve
from tests.own_logs import all_logs

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operations.md"

LOOKS: dict[str, dict[str, Any]] = {
    "broker.status": {},
    "broker.history": {},
    "flows.list": {},
    "broker.machine": {},
    "rights.check": {},
    "queues.list": {},
    "queue.show": {"queue": "/queue/orders"},
    "queue.peek": {"queue": "/queue/orders"},
    "topics.list": {},
    "topic.show": {"topic": "X/a"},
    "connections.list": {},
    "connection.show": {"session": "s"},
    "sessions.list": {},
    "session.show": {"session": "s"},
    "dlq.list": {},
    "dlq.show": {"number": 1},
    "principals.list": {},
    "delayed.list": {},
    "settings.check": {},
}
ACTS: dict[str, dict[str, Any]] = {
    "queue.purge": {"queue": "/queue/orders"},
    "connection.end": {"session": "s"},
    "session.end": {"session": "s"},
    "session.purge": {"session": "s"},
    "delayed.purge": {},
    "dlq.replay": {},
    "dlq.purge": {},
    "store.backup": {"name": "copy.db"},
}


@dataclass
class Asked:
    """A broker in a process of its own, and a client of it."""

    url: str
    client: Client

    def __call__(self, verb: str, **parameters: Any) -> Any:
        """What the broker answers to one of its verbs."""
        return self.client.call("nebula.broker", verb, parameters, timeout=20)


@contextmanager
def asking(*words: str) -> Iterator[Asked]:
    with (
        running("broker", "--port", "0", *words) as (_, ready),
        Client(ready["url"]) as client,
    ):
        yield Asked(ready["url"], client)


@pytest.fixture(scope="module")
def ask() -> Iterator[Asked]:
    """One for the tests that get along with what others leave."""
    with asking("--store", "memory") as asked:
        yield asked


def code_of(ask: Asked, verb: str, **parameters: Any) -> str:
    with pytest.raises(RemoteError) as caught:
        ask(verb, **parameters)
    return caught.value.code


def test_status_tells_what_the_broker_holds(ask: Asked) -> None:
    before = ask("broker.status")
    ask.client.publish("/queue/status", {"a": 1})
    ask.client.publish("/queue/status", {"a": 2})
    after = ask("broker.status")

    assert after["not_ready"] is None
    assert after["connections"] == 2
    assert after["kinds"]["queue"]["messages"] >= before["kinds"]["queue"]["messages"] + 2
    # The messages, and our requests for the status with the answer to the first.
    assert after["received"] - before["received"] == 4
    assert after["read_bytes"] > before["read_bytes"]
    assert after["store"] is None


def test_queue_is_listed_shown_peeked_into_and_purged(ask: Asked) -> None:
    ask.client.publish("/queue/work/1", {"order": 1})
    ask.client.publish("/queue/work/1", {"order": 2})

    (row,) = ask("queues.list", pattern="/queue/work/*")["rows"]
    shown = ask("queue.show", queue="/queue/work/1")
    first, second = ask("queue.peek", queue="/queue/work/1")

    assert (row["queue"], row["depth"], row["taken"]) == ("/queue/work/1", 2, 2)
    assert shown["summary"]["depth"] == 2
    assert [json.loads(each["body"]) for each in (first, second)] == [{"order": 1}, {"order": 2}]
    assert ask("queue.purge", queue="/queue/work/1") == 2
    assert code_of(ask, "queue.purge", queue="/queue/work/1") == "not-found"


def test_lists_go_on_where_a_page_ended(ask: Asked) -> None:
    for number in range(5):
        ask.client.publish(f"X/pages.{number}", number)

    first = ask("topics.list", pattern="X/pages.*", limit=3)
    rest = ask("topics.list", pattern="X/pages.*", limit=3, after=first["after"])

    assert first["matched"] == 5
    assert [row["topic"] for row in (*first["rows"], *rest["rows"])] == [f"X/pages.{n}" for n in range(5)]
    assert rest["after"] is None


def test_lists_by_rank_go_on_behind_what_is_skipped(ask: Asked) -> None:
    for number in range(3):
        for _ in range(number + 1):
            ask.client.publish(f"/queue/ranked/{number}", number)

    queues = ask("queues.list", pattern="/queue/ranked/*", order="depth", limit=1, skip=1)
    values = ask("topics.list", kind="last-value", order="changed", limit=1)

    assert [row["depth"] for row in queues["rows"]] == [2]
    assert queues["matched"] == 3
    assert len(values["rows"]) == 1


@pytest.mark.parametrize(
    ("verb", "parameters", "code"),
    [
        ("queues.list", {"pattern": "/queue/[a"}, "bad-pattern"),
        ("queues.list", {"limit": 100_000}, "bad-parameters"),
        ("queues.list", {"order": "colour"}, "bad-parameters"),
        ("queue.peek", {"queue": "/queue/none"}, "not-found"),
        ("queue.peek", {"queue": "/queue/none", "limit": 101}, "bad-parameters"),
        ("connection.show", {"session": "none"}, "not-found"),
        ("connection.end", {"session": "none"}, "not-found"),
        ("session.show", {"session": "none"}, "not-found"),
        ("topic.show", {"topic": "/topic/none"}, "not-found"),
        ("dlq.replay", {"to": "/topic/a"}, "bad-target"),
        ("dlq.show", {"number": 987_654_321}, "not-found"),
        ("store.backup", {"name": "copy.db"}, "unknown-verb"),
    ],
)
def test_what_cannot_be_done_has_a_code_that_says_why(
    ask: Asked, verb: str, parameters: dict[str, Any], code: str
) -> None:
    assert code_of(ask, verb, **parameters) == code


def test_connection_that_is_ended_is_told_so_and_the_asking_one_stays(ask: Asked) -> None:
    wire = Wire(int(ask.url.rpartition(":")[2]))
    wire.send(b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:till-7\n\n\0")
    wire.next()
    (row,) = ask("connections.list", pattern="till-*")["rows"]
    assert row["link"]["peer"].startswith("127.0.0.1:")
    assert ask("connection.show", session="till-7")["summary"]["link"]["version"] == "1.2"

    ask("connection.end", session="till-7")

    ((command, headers, *_),) = wire.rest()
    assert (command, headers["message"]) == ("ERROR", "an operator has ended the connection")
    assert ask("connections.list", pattern="till-*")["rows"] == []


def test_connection_of_the_brokers_own_service_is_not_ended(ask: Asked) -> None:
    (own,) = ask("connections.list", principal="app:nebula")["rows"]

    assert own["link"]["peer"] == "in process"
    assert code_of(ask, "connection.end", session=own["session"]) == "hosted"
    assert ask("broker.status")["not_ready"] is None


def dead_letters(ask: Asked, queue: str, *bodies: Any) -> None:
    """Have these die in a queue."""
    for body in bodies:
        ask.client.publish(queue, body, headers={"persistent": "true"})
    with ask.client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as subscription:
        for _ in bodies:
            subscription.nack(next(subscription), requeue="false")


def test_dead_letters_are_listed_replayed_and_dropped(ask: Asked) -> None:
    dead_letters(ask, "/queue/dying", "one", "two", "three")

    letters = ask("dlq.list", source="/queue/dying")["rows"]
    assert [(each["reason"], each["deliveries"]) for each in letters] == [("rejected", 1)] * 3
    assert ask("dlq.show", number=letters[0]["number"])["body"] == '"one"'
    outcome = ask("dlq.replay", numbers=[letters[1]["number"]])
    assert outcome == {"replayed": 1, "full": 0, "without_queue": 0, "not_permitted": 0, "on_disk": 0}
    assert [each["body"] for each in ask("queue.peek", queue="/queue/dying")] == ['"two"']
    assert ask("dlq.purge", source="/queue/dying") == {"purged": 2, "on_disk": 0}
    assert ask("dlq.list", source="/queue/dying")["rows"] == []


def test_replayed_persistent_messages_are_there_after_a_kill(tmp_path: Path) -> None:
    words = ("broker", "--port", "0", "--data", str(tmp_path / "data"))
    with running(*words) as (_, ready), Client(ready["url"]) as client:
        ask = Asked(ready["url"], client)
        dead_letters(ask, "/queue/dying", "kept")
        assert ask("dlq.replay")["replayed"] == 1
        # Its RECEIPT comes behind the batch of the replay.
        client.publish("/queue/mark", "mark", headers={"persistent": "true"})
    with running(*words) as (_, ready), Client(ready["url"]) as client:
        ask = Asked(ready["url"], client)

        assert [each["body"] for each in ask("queue.peek", queue="/queue/dying")] == ['"kept"']
        assert ask("dlq.list")["rows"] == []


def test_peek_shows_what_lies_on_disk_alone(tmp_path: Path) -> None:
    window = "queue_window_bytes = 20_000"
    (tmp_path / "nebula.toml").write_text(f"[limits]\n{window}\n")
    words = ("--data", str(tmp_path / "data"), "--config", str(tmp_path / "nebula.toml"))
    with asking(*words) as ask:
        for number in range(300):
            ask.client.publish("/queue/deep", number, headers={"persistent": "true"})
        assert ask("queue.show", queue="/queue/deep")["summary"]["paged_out"] > 100

        seen: list[int] = []
        after = 0
        while messages := ask("queue.peek", queue="/queue/deep", after=after, limit=100):
            seen += [int(each["body"]) for each in messages]
            after = messages[-1]["number"]

        assert seen == list(range(300))
        assert ask("queue.show", queue="/queue/deep")["summary"]["depth"] == 300
        assert ask("queue.purge", queue="/queue/deep") == 300


def test_store_is_copied_into_the_folder_that_was_set(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (tmp_path / "nebula.toml").write_text(f'backups = "{copies}"\n')
    words = ("--data", str(tmp_path / "data"), "--config", str(tmp_path / "nebula.toml"))
    with asking(*words) as ask:
        ask.client.publish("/queue/kept", "m", headers={"persistent": "true"})

        made = ask("store.backup", name="monday.db")

        assert made["size_bytes"] == (copies / "monday.db").stat().st_size
        for name in ("../monday.db", "/etc/monday.db", "..", ".hidden", "a/b", "", "monday.db\n"):
            assert code_of(ask, "store.backup", name=name) == "bad-parameters"
        (copies / "mine.db").write_text("something else")
        assert code_of(ask, "store.backup", name="mine.db") == "not-copied"
        assert (copies / "mine.db").read_text() == "something else"


def test_answer_that_is_longer_than_the_broker_takes_is_refused_and_the_broker_lives(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text("[limits]\nmax_body_bytes = 10_000\n")
    with asking("--store", "memory", "--config", str(tmp_path / "nebula.toml")) as ask:
        for number in range(100):
            ask.client.publish(f"X/{'n' * 200}.{number}", number)

        assert code_of(ask, "topics.list") == "result-too-large"
        assert len(ask("topics.list", limit=5)["rows"]) == 5


def test_log_says_who_changed_what() -> None:
    with (
        running("broker", "--port", "0", "--store", "memory") as (process, ready),
        Client(ready["url"]) as client,
    ):
        client.publish("/queue/gone", 1)
        client.call("nebula.broker", "queue.purge", {"queue": "/queue/gone"}, timeout=20)
        client.call("nebula.broker", "dlq.purge", timeout=20)
        client.call("nebula.broker", "queues.list", timeout=20)
        process.terminate()
        _, logged = process.communicate(timeout=20)

    acts = [each for each in map(json.loads, logged.splitlines()) if each["event"].startswith("operator ")]
    assert [(each["event"], each["principal"]) for each in acts] == [
        ("operator purged queue", "anonymous"),
        ("operator purged dead letters", "anonymous"),
    ]
    assert (acts[0]["queue"], acts[0]["count"]) == ("/queue/gone", 1)


def test_log_says_who_began_what_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_verbs, "_SECONDS", 0.05)
    request = Request(Envelope("queue.purge"), {}, destination=BROKER_QUEUE, principal="rita")

    def endless() -> Steps[int]:
        while True:
            yield

    with serve() as broker, all_logs() as logged:
        with pytest.raises(VerbError, match="was not done"), acting(request, "operator purged", queue="q"):
            Desk(broker.server).walk(endless)

        monkeypatch.setattr(operator_verbs, "_SECONDS", 20.0)
        # What was cut off holds up nobody after it.
        assert Desk(broker.server).walk(broker.server.runtime.administration.totals)

    acts = [each for each in logged if each["event"].startswith("operator ")]
    assert [(each["event"], each["action"], each["principal"], each["queue"]) for each in acts] == [
        ("operator action cut off", "operator purged", "rita", "q")
    ]


def test_who_was_not_granted_a_verb_may_not_call_it(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text("")
    (tmp_path / "nebula.toml").write_text(f'backups = "{tmp_path}"\nhttp = 0\nconsole = true\n')
    words = ("--rights", str(rights), "--config", str(tmp_path / "nebula.toml"))
    with asking(*words) as ask:
        described = {each["verb"] for each in ask("describe")["verbs"]}
        for verb, parameters in (LOOKS | ACTS).items():
            assert code_of(ask, verb, **parameters) == "not-allowed", verb
        assert described - (LOOKS | ACTS).keys() == {
            "ping", "describe", "stats", "rights.mine", "rights.reload", "schema.get", "schema.list",
            "schema.register",
        }  # fmt: skip


def test_capability_grants_verbs_by_glob(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text('[capability.Look]\ncall = ["*.list"]\n[identity]\nanonymous = ["Look"]\n')
    with asking("--store", "memory", "--rights", str(rights)) as ask:
        assert ask("queues.list")["matched"] > 0
        assert ask("dlq.list")["rows"] == []
        assert code_of(ask, "dlq.replay") == "not-allowed"
        assert code_of(ask, "broker.status") == "not-allowed"


def test_dead_letters_are_shown_and_handed_out_only_to_whom_a_grant_names_them(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    everything = 'publish = ["**"]\nsubscribe = ["**"{}]\ncall = ["*"]\n[identity]\nanonymous = ["All"]\n'

    def grant(more: str) -> None:
        rights.write_text(f"[capability.All]\n{everything.format(more)}")

    grant("")
    with asking("--store", "memory", "--rights", str(rights)) as ask:
        ask.client.publish("/queue/dying", "secret", headers={"expires": "1"})
        while not (rows := ask("dlq.list")["rows"]):
            pass
        readings: list[tuple[str, dict[str, Any]]] = [
            ("queue.peek", {"queue": "/queue/DLQ"}),
            ("dlq.show", {"number": rows[0]["number"]}),
            ("dlq.replay", {"to": "/queue/mine"}),
        ]
        for verb, parameters in readings:
            assert code_of(ask, verb, **parameters) == "not-allowed", verb

        grant(', "/queue/DLQ"')
        ask("rights.reload")

        peeked, shown, replayed = (ask(verb, **parameters) for verb, parameters in readings)
        assert [each["body"] for each in peeked] == [shown["body"]] == ['"secret"']
        assert replayed["replayed"] == 1


# --- the page ---

OPENING = """\
# Verbs of the broker

The broker is a service on `/queue/nebula.broker`, so operators need only a client: `nebula call
nebula.broker queues.list order=depth limit:=10`, or `client.call("nebula.broker", "broker.status")`. Most
verbs also have [a command](../how-to/operate.md). Where [rights](rights.md) are configured each verb needs
a grant of `call`, by its name or a glob; `rights.mine`, `schema.bound`, `schema.get` and `schema.list` need
none. `queue.peek` of the dead-letter queue, `dlq.show`, and `dlq.replay` with `to` also need a grant that
names the dead letters: `subscribe` with the queue itself, or `call` with a glob that begins with `dlq.`, such
as `dlq.*`. A glob such as `*` or `*.show` is not enough.

Replies have a bounded size: lists come in pages. `matched` is the total number of entries. Where the order
is by name, pass `after` back to get the next page. Queues and topics can be paged in any order: `skip` is
the number of first entries to leave out, up to 10,000, and `reverse` turns the order around. With
`internal=false`, queues and topics whose names begin with `nebula.`, such as inboxes, are counted as `hidden`
and left out. A walk over all destinations pauses every thousand of them, so that other clients do not wait
for it. Ages are lower bounds in seconds, exact to one part in 256.

| error | |
| --- | --- |
"""

SHARED_CODES = ("not-allowed", "not-found", "bad-parameters", "busy", "result-too-large")


def code_rows() -> Iterator[str]:
    """The errors of the verbs: those of any service that these use, then the broker's own."""
    for row in (*(CODES[code] for code in SHARED_CODES), *BROKER_CODES.values()):
        yield f"| `{row.code}` | {row.meaning} |"


def verb_rows(described: dict[str, Any]) -> Iterator[str]:
    for verb in sorted(described["verbs"], key=lambda each: each["verb"]):
        if verb["verb"] in ("ping", "describe", "stats"):
            continue
        schema = verb["parameters"]
        words = [
            f"`{name}`"
            if name in schema.get("required", ())
            else f"`{name}={json.dumps(field.get('default'))}`"
            for name, field in schema.get("properties", {}).items()
        ]
        yield f"| `{verb['verb']}` | {', '.join(words)} | {verb['description'].splitlines()[0]} |"


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The description that a broker with all its verbs gives of itself."""
    return ask_for_all(tmp_path_factory.mktemp("described"))


def ask_for_all(folder: Path) -> dict[str, Any]:
    settings = f'backups = "{folder}"\nschemas = "{folder}"\nhttp = 0\nconsole = true\n'
    (folder / "nebula.toml").write_text(settings)
    with asking("--data", str(folder / "data"), "--config", str(folder / "nebula.toml")) as ask:
        answer: dict[str, Any] = ask("describe")
        return answer


def test_text_and_json_requests_are_read_by_one_rule(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text(f'backups = "{tmp_path}"\nschemas = "{tmp_path}"\n')
    with asking("--data", str(tmp_path / "data"), "--config", str(tmp_path / "nebula.toml")) as ask:
        verbs = [one["verb"] for one in ask("describe")["verbs"]]
        wire = Wire(urlsplit(ask.url).port or 0)
        wire.connect("1.2")
        wire.send(b"SUBSCRIBE\ndestination:/queue/answers\nid:1\n\n\0")
        misread = []
        for verb in verbs:
            send = (
                f"SEND\ndestination:{BROKER_QUEUE}\nneb-reply-to:/queue/answers\ncontent-type:text/plain\n\n"
            )
            # It fits none of them; as a text it would be the queue or the name that some want.
            wire.send(f'{send}verb: {verb}\nparameters: {{"no_such_name": 1}}\n\n\0'.encode())
            frame = wire.next()
            assert frame is not None
            told = str(frame)
            if "bad-parameters" not in told or "no_such_name" not in told:
                misread.append((verb, told))

    assert misread == []
    assert {"queue.show", "schema.get", "ping", "store.backup"} <= set(verbs)


VIEWS: dict[str, type] = {
    "`broker.status`": BrokerStatus,
    "`kinds` of `broker.status`, by kind of destination": KindTotals,
    "`pools` of `broker.status`, by resource": PoolStatus,
    "`store` of `broker.status`": StoreStatus,
    "`broker.history`": HistorySample,
    "`flows.list`, with the setting `count_flows`": FlowRow,
    "`broker.machine`": MachineView,
    "`store` of `broker.machine`": DiskView,
    "`listeners` of `broker.machine`": ListenerView,
    "`rights.check`": RightsView,
    "`queues.list`": QueueRow,
    "`queue.show`": QueueDetails,
    "`queue.peek`": MessageView,
    "`topics.list`": TopicRow,
    "`connections.list`": ConnectionRow,
    "`connection.show`": ConnectionDetails,
    "`sessions.list`": SessionRow,
    "`principals.list`": PrincipalRow,
    "`delayed.list`": DelayedRow,
    "`dlq.list`": DeadLetter,
    "`subscriptions`": SubscriptionRow,
    "`subscriptions` of `session.show`": DurableRow,
}

FIELDS = """\
## What they return

Lists return `rows`, whose fields are these. `queue.show`, `topic.show`, `connection.show` and `session.show`
return such a row as `summary`, and the `subscriptions`. `dlq.show` returns what `queue.peek` has for each
message.
"""


@pytest.mark.parametrize(
    ("order", "ranks"),
    [
        (QueueOrder, QUEUE_RANKS),
        (TopicOrder, TOPIC_RANKS),
        (ConnectionOrder, CONNECTION_RANKS),
        (PrincipalOrder, PRINCIPAL_RANKS),
    ],
)
def test_each_order_of_a_list_has_its_rank(order: type[StrEnum], ranks: Mapping[str, object]) -> None:
    assert {each.value for each in order} == {"name", *ranks}


def field_rows(view: type) -> Iterator[str]:
    for name, shown in shown_fields(view).items():
        if not name.startswith("summary."):
            yield f"| `{name}` | {shown.unit} | {shown.about} |"


def field_tables() -> Iterator[str]:
    for verb, view in VIEWS.items():
        yield from (f"### {verb}", "", "| field | unit | |", "| --- | --- | --- |", *field_rows(view), "")


def page(described: dict[str, Any]) -> str:
    verbs = ["| verb | parameters | |", "| --- | --- | --- |", *verb_rows(described)]
    return OPENING + "\n".join([*code_rows(), "", *verbs, "", FIELDS, *field_tables()])


@pytest.mark.parametrize("view", [*VIEWS.values(), SessionDetails, TopicDetails])
def test_each_field_of_a_view_says_how_it_is_shown(view: type) -> None:
    inside = {name.partition(".")[0] for name in shown_fields(view)}

    assert {each.name for each in fields(view)} - inside <= {
        "subscriptions",
        "kinds",
        "pools",
        "store",
        "listeners",
    }


@pytest.mark.parametrize("view", VIEWS.values())
def test_numbers_and_flags_of_a_view_have_a_unit(view: type) -> None:
    hints = get_type_hints(view)
    texts = [name for name, shown in shown_fields(view).items() if shown.unit in (Unit.TEXT, Unit.ID)]

    assert [name for name in texts if "." not in name and hints[name] in (int, float, bool)] == []


def test_page_of_verbs_says_what_the_broker_says(described: dict[str, Any]) -> None:
    assert PAGE.read_text() == page(described), "run: python -m tests.host.test_operator_verbs"


def test_each_verb_is_described_in_a_line(described: dict[str, Any]) -> None:
    assert [each["verb"] for each in described["verbs"] if not each["description"].strip()] == []


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        PAGE.write_text(page(ask_for_all(Path(folder))))
