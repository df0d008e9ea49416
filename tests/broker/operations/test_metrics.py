"""What the HTTP listener tells of the broker: probes, and metrics that Prometheus can read."""

from __future__ import annotations

import asyncio
import re
import socket
import textwrap
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from nebula.broker.assembly import Assembly
from nebula.broker.core.shares import Resource
from nebula.broker.operations.administration import Steps
from nebula.broker.operations.events import COUNTED, ENDINGS
from nebula.broker.operations.metrics import REASONS, BrokerCollector
from nebula.broker.operations.views import BrokerStatus, KindTotals, PoolStatus, StoreStatus
from nebula.broker.server import pages
from nebula.broker.server.http_posts import Asked
from nebula.broker.server.pages import Shared, Token
from nebula.broker.settings import load_broker_settings
from nebula.broker.store.commits import BOUNDS, Commits
from nebula.errors import SettingsError
from tests.faults.served import Served, Wire

DEADLINE = 10.0
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"

SECRET = "0123456789abcdef0123"

T = TypeVar("T")

Answer = tuple[int, dict[str, str], str]


@dataclass
class Observed:
    """A broker, assembled as its program would do it, and its HTTP listener."""

    assembly: Assembly
    served: Served
    http_port: int

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Status, headers and text of an answer."""
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=DEADLINE)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, fields, answer.read().decode()
        finally:
            connection.close()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine on the broker's loop."""
        loop = self.assembly.server.runtime.loop
        return asyncio.run_coroutine_threadsafe(work(), loop).result(DEADLINE)

    def metrics(self) -> dict[str, float]:
        """All samples: `name{label="value"}` without braces where there is no label."""
        status, _, text = self.get("/metrics")
        assert status == 200
        return samples(text)


def samples(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


@pytest.fixture(autouse=True)
def _metrics_are_new_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "METRICS_SECONDS", 0.0)


@contextmanager
def observing(folder: Path, text: str = "", **settings: Any) -> Iterator[Observed]:
    """Run a broker with this file of settings."""
    file = folder / "nebula.toml"
    file.write_text(text)
    flags = {"port": 0, "http": 0, "data": folder / "data", **settings}
    started: list[Observed] = []
    is_started, is_over = threading.Event(), threading.Event()

    async def run() -> None:
        assembly = Assembly(load_broker_settings(file, **flags).value, lambda error: None)
        await assembly.server.start()
        served = Served(assembly.server, asyncio.get_running_loop())
        started.append(Observed(assembly, served, int(assembly.server.urls[-1].rpartition(":")[2])))
        is_started.set()
        await asyncio.to_thread(is_over.wait)
        await assembly.server.stop()

    thread = threading.Thread(target=lambda: uvloop.run(run()), daemon=True)
    thread.start()
    try:
        assert is_started.wait(DEADLINE)
        yield started[0]
    finally:
        is_over.set()
        thread.join(DEADLINE)
        assert not thread.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Observed]:
    with observing(tmp_path) as observed:
        yield observed


# --- probes ---


def test_health_is_that_the_loop_answers(broker: Observed) -> None:
    status, headers, text = broker.get("/healthz")

    assert (status, text) == (200, "ok\n")
    assert headers["cache-control"] == "no-store"
    assert broker.get("/healthz?verbose=1")[0] == 200
    assert broker.get("/healthz", "HEAD")[::2] == (200, "")


def test_broker_is_ready_once_it_listens(broker: Observed) -> None:
    assert broker.get("/readyz")[::2] == (200, "ready\n")
    assert broker.metrics()["nebula_ready"] == 1


def test_broker_whose_disk_is_nearly_full_is_not_ready_and_lives(tmp_path: Path) -> None:
    with observing(tmp_path, f"[limits]\nmin_free_disk_bytes = {1 << 60}") as broker:
        assert broker.get("/readyz")[::2] == (503, "the disk is nearly full\n")
        assert broker.metrics()["nebula_ready"] == 0
        assert broker.get("/healthz")[0] == 200


def test_broker_whose_store_has_failed_is_not_ready(broker: Observed) -> None:
    assert broker.assembly.store is not None
    broker.served.ask(lambda: broker.assembly.store.close())  # type: ignore[union-attr]
    wire = broker.served.connect()
    wire.say("SEND destination:/queue/a; persistent:true | m")
    wire.rest()  # until the broker has ended it

    assert broker.get("/readyz")[::2] == (503, "the store has failed\n")


def test_stopping_broker_says_why_it_is_not_ready(broker: Observed) -> None:
    assert broker.get("/readyz")[::2] == (200, "ready\n")
    server = broker.assembly.server

    broker.served.ask(server.close_listeners)

    assert broker.get("/readyz")[::2] == (503, "it is stopping\n")
    assert broker.get("/healthz")[0] == 200
    assert broker.get("/stomp")[0] == 503
    with pytest.raises(ConnectionRefusedError):
        broker.served.connect()


def test_broker_that_has_stopped_answers_nothing(broker: Observed) -> None:
    broker.served.stop()

    with pytest.raises(ConnectionRefusedError):
        broker.get("/readyz")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("GET", "/metrics/", 404), ("GET", "/", 404), ("HEAD", "/stomp", 405)],
)
def test_other_requests_are_told_that_there_is_nothing(
    broker: Observed, method: str, path: str, status: int
) -> None:
    assert broker.get(path, method)[0] == status


def test_page_that_fails_is_an_internal_error_without_a_word_of_it(tmp_path: Path) -> None:
    async def fail(_asked: Asked) -> Any:
        raise RuntimeError(SECRET)

    with observing(tmp_path) as broker:
        broker.assembly.server.pages["/fails"] = fail

        status, _, text = broker.get("/fails")

        assert (status, text) == (500, "internal error\n")
        assert broker.get("/healthz")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("metrics.example", 200),
        ("page.example:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_metrics_without_a_token_are_for_who_asks_for_a_host_of_ours(
    tmp_path: Path, host: str, status: int
) -> None:
    text = (
        "[[listener]]\nport = 0\n[[listener]]\nport = 0\nhttp = true\n"
        'hosts = ["metrics.example"]\norigins = ["http://page.example"]\n'
    )
    with observing(tmp_path, text, port=None, http=None) as broker:
        found = {path: broker.get(path, host=host)[0] for path in ("/metrics", "/readyz", "/healthz")}

    assert found == {"/metrics": status, "/readyz": 200, "/healthz": 200}


def test_metrics_with_a_token_are_for_who_has_it_by_any_host(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    with observing(tmp_path, metrics_token=token) as broker:
        assert broker.get("/metrics", host="evil.example")[0] == 401
        assert broker.get("/metrics", host="evil.example", authorization=f"Bearer {SECRET}")[0] == 200


def test_walks_of_many_who_ask_do_not_mix(broker: Observed) -> None:
    done: list[str] = []

    def walk(name: str) -> Steps[str]:
        for _ in range(3):
            done.append(name)
            yield
        return name

    async def both() -> tuple[str, str]:
        runtime = broker.assembly.server.runtime
        first, second = await asyncio.gather(runtime.walk(walk("a")), runtime.walk(walk("b")))
        return first, second

    assert broker.run(both) == ("a", "b")
    assert done == ["a", "a", "a", "b", "b", "b"]


def test_page_is_made_once_for_all_who_ask_meanwhile_and_anew_for_the_next() -> None:
    made: list[int] = []

    async def make() -> bytes:
        made.append(len(made))
        await asyncio.sleep(0)
        return b"%d" % made[-1]

    async def ask() -> tuple[list[bytes], bytes]:
        shared = Shared(make, 0.0)
        impatient = asyncio.ensure_future(shared.get())
        others = [asyncio.ensure_future(shared.get()) for _ in range(3)]
        await asyncio.sleep(0)
        impatient.cancel()
        return await asyncio.gather(*others), await shared.get()

    assert asyncio.run(ask()) == ([b"0"] * 3, b"1")


def test_page_that_was_made_just_now_is_told_again_and_one_that_failed_is_not() -> None:
    made: list[int] = []

    async def make() -> bytes:
        made.append(len(made))
        if len(made) == 1:
            raise OSError
        return b"%d" % made[-1]

    async def ask() -> list[bytes]:
        shared = Shared(make, 600.0)
        with pytest.raises(OSError):  # noqa: PT011
            await shared.get()
        return [await shared.get() for _ in range(3)]

    assert asyncio.run(ask()) == [b"1"] * 3


def test_who_reads_metrics_in_a_loop_has_nothing_walked_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "METRICS_SECONDS", 600.0)
    with observing(tmp_path) as broker:
        before = broker.metrics()
        broker.served.connect()

        assert broker.metrics() == before


def test_who_leaves_before_a_page_is_there_harms_nobody(broker: Observed) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", broker.http_port), DEADLINE) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n")

    assert broker.get("/metrics")[0] == 200


# --- metrics ---


def test_metrics_are_in_the_format_that_prometheus_reads(broker: Observed) -> None:
    _, headers, text = broker.get("/metrics")

    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(text))
    ours = [family for family in families if family.name.startswith("nebula_")]
    assert len(ours) > 15
    for family in ours:
        assert family.documentation.endswith("."), family.name
        assert re.fullmatch(r"nebula(_[a-z0-9]+)+", family.name)
        assert {label for sample in family.samples for label in sample.labels} <= {
            *("kind", "reason", "event", "version", "build", "resource", "le"),
        }


def test_metrics_follow_what_happens(broker: Observed) -> None:
    before = broker.metrics()
    alice, bob = broker.served.connect(), broker.served.connect()
    bob.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:2")
    assert bob.is_in_order()
    alice.say(*["SEND destination:/queue/a; persistent:true | m"] * 5, "SEND destination:X/v | v")
    alice.say("SEND destination:/queue/none; require-consumers:true | m")
    alice.say("SEND destination:/queue/b; persistent:true; receipt:r | m")
    while (frame := alice.next()) is not None and frame[1].get("receipt-id") != "r":
        pass

    after = broker.metrics()

    def rise(name: str) -> float:
        return after[name] - before[name]

    assert rise("nebula_connections") == 2
    assert rise("nebula_events_total{event=session opened}") == 2
    assert rise("nebula_messages_received_total") == 7
    assert after["nebula_messages{kind=queue}"] == 6
    assert after["nebula_messages_unacked{kind=queue}"] == 2
    assert after["nebula_messages{kind=last-value}"] == 1
    assert after["nebula_destinations{kind=queue}"] == 2
    assert after["nebula_subscriptions{kind=queue}"] == 1
    assert rise("nebula_messages_dropped_total{reason=rejected-no-consumer}") == 1
    assert after["nebula_memory_bytes"] >= after["nebula_stored_bytes{kind=queue}"] > 0
    assert rise("nebula_read_bytes_total") > 300
    assert rise("nebula_written_bytes_total") > 100
    assert rise("nebula_frames_sent_total") >= 5
    assert rise("nebula_store_rows_total") >= 6
    assert rise("nebula_store_commit_seconds_count") >= 1


def test_octets_of_connections_that_have_gone_still_count(broker: Observed) -> None:
    alice = broker.served.connect()
    assert alice.is_in_order()
    before = broker.metrics()
    alice.say("DISCONNECT receipt:bye")
    assert len(alice.rest()) == 1
    alice.close()
    for _ in range(2_000):
        after = broker.metrics()
        if after["nebula_connections"] == 0:
            break

    assert after["nebula_connections"] == 0
    assert after["nebula_read_bytes_total"] > before["nebula_read_bytes_total"] > 0


def test_there_are_as_many_series_whatever_peers_do(broker: Observed) -> None:
    before = set(broker.metrics())
    alice = broker.served.connect()
    for number in range(50):
        alice.say(f"SEND destination:/queue/{number} | m", f"SEND destination:X/{number} | v")
        alice.say(f"SUBSCRIBE id:{number}; destination:/topic/{number}")
    assert alice.is_in_order()

    assert set(broker.metrics()) == before


def test_reason_that_is_not_known_is_counted_as_another_one(broker: Observed) -> None:
    dropped = broker.assembly.server.broker.account.dropped
    broker.served.ask(lambda: dropped.update({"made-of-a-name": 2, "expired": 3}))

    metrics = broker.metrics()

    assert metrics["nebula_messages_dropped_total{reason=other}"] == 2
    assert metrics["nebula_messages_dropped_total{reason=expired}"] == 3
    assert (
        len([name for name in metrics if name.startswith("nebula_messages_dropped_total")])
        == len(REASONS) + 1
    )


def test_connection_that_the_broker_has_ended_is_counted_by_why(broker: Observed) -> None:
    slow = broker.served.connect()
    server = broker.assembly.server
    (session,) = server.broker.sessions

    def end() -> None:
        server.runtime.administration.end_session(session)
        server.runtime.pump.work(server.runtime.time())

    broker.served.ask(end)
    slow.rest()

    metrics = broker.metrics()

    assert metrics["nebula_connections_ended_total{reason=an operator has ended the connection}"] == 1
    assert metrics["nebula_connections_ended_total{reason=too slow}"] == 0
    assert metrics["nebula_events_total{event=peer ended}"] == 1


def test_each_way_in_which_the_broker_ends_a_connection_has_a_series(broker: Observed) -> None:
    metrics = broker.metrics()

    for ending in ENDINGS:
        assert f"nebula_connections_ended_total{{reason={ending}}}" in metrics


def test_connection_of_a_durable_session_that_an_operator_ends_is_counted(broker: Observed) -> None:
    wire = Wire(broker.served.port)
    wire.send(b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:mine\n\n\0")
    assert wire.next() is not None
    wire.say("SUBSCRIBE id:s; destination:/topic/t; durable:true")
    assert wire.is_in_order()
    server = broker.assembly.server

    def end() -> None:
        server.runtime.administration.end_durable_session("mine", server.runtime.time())
        server.runtime.pump.work(server.runtime.time())

    broker.served.ask(end)
    wire.rest()

    metrics = broker.metrics()
    assert metrics["nebula_connections_ended_total{reason=an operator has ended the session}"] == 1
    assert metrics["nebula_connections_ended_total{reason=other}"] == 0


def test_commits_are_counted_by_how_long_they_took() -> None:
    commits = Commits()
    for rows, seconds in ((10, BOUNDS[0]), (5, BOUNDS[0] * 1.01), (1, BOUNDS[-1] + 1), (1, 0.0)):
        commits.note(rows, seconds)

    assert (commits.count, commits.rows) == (4, 17)
    assert (commits.by_bound[0], commits.by_bound[1], commits.by_bound[-1]) == (2, 1, 1)


# --- identity ---


def write_token(folder: Path, text: str = SECRET) -> Path:
    file = folder / "token"
    file.write_text(text)
    return file


def test_metrics_want_the_token_where_there_is_one_and_probes_do_not(tmp_path: Path) -> None:
    file = write_token(tmp_path, f"{SECRET}\n")
    with observing(tmp_path, metrics_token=file) as broker:
        status, headers, text = broker.get("/metrics")

        assert status == 401
        assert headers["www-authenticate"].startswith("Bearer")
        assert "nebula_" not in text
        for wrong in (
            f"Bearer {SECRET}0",
            f"Bearer {SECRET[:-1]}",
            f"Basic {SECRET}",
            SECRET,
            "Bearer",
            "Bearer é",
        ):
            assert broker.get("/metrics", authorization=wrong)[0] == 401, wrong
        assert broker.get("/metrics", authorization=f"Bearer {SECRET}")[0] == 200
        assert broker.get("/metrics", authorization=f"bearer  {SECRET} ")[0] == 200
        assert broker.get("/healthz")[0] == broker.get("/readyz")[0] == 200


def test_token_is_read_again_at_a_reload_and_stays_when_its_file_is_broken(tmp_path: Path) -> None:
    file = write_token(tmp_path)
    with observing(tmp_path, metrics_token=file) as broker:
        write_token(tmp_path, SECRET[::-1])
        broker.served.ask(broker.assembly.reload)
        assert broker.get("/metrics", authorization=f"Bearer {SECRET}")[0] == 401
        assert broker.get("/metrics", authorization=f"Bearer {SECRET[::-1]}")[0] == 200

        file.unlink()
        with pytest.raises(SettingsError, match="cannot be read"):
            broker.served.ask(broker.assembly.reload)
        assert broker.get("/metrics", authorization=f"Bearer {SECRET[::-1]}")[0] == 200


@pytest.mark.parametrize("text", ["", "short", f"{SECRET} {SECRET}", f"{SECRET}\x01", f"{SECRET}é"])
def test_file_without_a_good_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Token(write_token(tmp_path, text))

    assert str(tmp_path / "token") in str(caught.value)
    assert SECRET not in str(caught.value)


# --- the page ---

OPENING = """\
# Metrics of the broker

Every HTTP listener of the broker serves `GET /metrics` in Prometheus's text format.
`nebula broker --http 8080` opens one on this machine. [Services](service-metrics.md) and the
[recorder](recorder-metrics.md) have metrics of their own. With [`metrics_token`](settings.md#top-level) a
request needs `Authorization: Bearer`, which a scraper sends with this configuration:

```yaml
scrape_configs:
  - job_name: nebula
    authorization: {credentials_file: /etc/prometheus/nebula-token}
    static_configs: [{targets: ["127.0.0.1:8080"]}]
```

Without a token, the page is served only to requests whose `Host` is one of the listener's own: `localhost`,
an IP address, the listener's `host`, the hosts of its `origins`, and the names in
[`hosts`](settings.md#listener). Otherwise a web page could read it through the browser of a user who can
reach the broker, with a name that resolves to the broker (DNS rebinding). Any other host gets status 421; a
client certificate that is denied or has expired gets 403. `/healthz` and `/readyz` accept any host, because
a probe may use any name and gets one word.

Values are computed when the page is requested, at most once a second, and count from the start of the
broker. No series is named after a destination, session or principal, so their number does not depend on
peers. For single queues and connections use `nebula top` and the [verbs for operators](operations.md).
Where the system provides them, there are also `process_resident_memory_bytes`, `process_open_fds`,
`process_cpu_seconds_total` and similar metrics.

| metric | type | labels | |
| --- | --- | --- | --- |
"""


def listed(names: Iterable[str]) -> str:
    *others, last = (f"`{name}`" for name in names)
    return textwrap.fill(f"{', '.join(others)} or {last}", 108, break_on_hyphens=False)


KINDS = (
    """
`kind` is `queue`, `topic` or `last-value`. The messages of a topic are those that wait for durable
subscriptions and for subscriptions with `ack:client` or `ack:client-individual`.

`resource` is one of those that principals [share](../explanation/reliability.md#shares):
"""
    + listed(resource.value for resource in Resource)
    + """.

`event` is what happened to a connection: `session opened`, `session closed`, `connection refused` (too many
connections), `peer refused` (because of its certificate), `login refused`, `peer ended` (by the broker) and
`connection failed` (a bug in the broker). In the log, `session opened` and
`connection failed` are [events of their own](running.md#log). The others are part of
[`connection closed`](running.md#the-end-of-a-connection), with two exceptions: a connection that is refused
before its TLS handshake has the event `connection refused`, and an HTTP request whose login is refused has
`login refused`. The `reason` of `nebula_connections_ended_total` is the text of the
ERROR:

"""
    + "\n".join(f"- `{ending}`" for ending in ENDINGS)
    + """

## Reasons

The reasons of `nebula_messages_dropped_total`. A message that becomes a dead letter is not dropped.

| reason | |
| --- | --- |
"""
)

MEANINGS = {
    "dead-letter-full": "a dead letter found no room",
    "deleted": "its `auto-delete` queue ended with the last subscription",
    "duplicate": "its `dedup-id` was used before",
    "exhausted": "it was delivered too often, and its queue has no dead letters",
    "expired": "its time was over, and it was a request or its queue has no dead letters",
    "full": "it was dropped to make room for a later one",
    "purged": "an operator dropped it",
    "rejected": "a consumer rejected it, and its queue has no dead letters",
    "rejected-full": "the SEND was refused: there was no room",
    "rejected-invalid": "the SEND was refused: a header or the body was invalid",
    "rejected-no-consumer": "the SEND was refused: there was no consumer",
    "rejected-unauthorised": "the SEND was refused: its sender may not send there",
    "share": "the owner of a durable subscription had used up its share of memory or disk",
    "unauthorised": "its receiver had lost the right to it",
    "other": "none of these",
}


def shown_families() -> Iterator[str]:
    kinds = {name: KindTotals() for name in ("queue", "topic", "last-value")}
    numbers = dict.fromkeys((each.name for each in fields(BrokerStatus)), 0)
    status = BrokerStatus(
        **{
            **numbers,
            "version": "1",
            "not_ready": None,
            "dropped": {},
            "events": {},
            "ended": {},
            "kinds": kinds,
            "pools": {resource.value: PoolStatus(0, 0, 0, 0, 0) for resource in Resource},
        }  # type: ignore[arg-type]
        | {"store": StoreStatus(0, 0, 0.0, 0, 0)}
    )
    for family in BrokerCollector(status, Commits()).collect():
        name = {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(
            family.type, family.name
        )
        labels = {label for sample in family.samples for label in sample.labels}
        told = ", ".join(f"`{label}`" for label in sorted(labels - {"le"}))
        yield f"| `{name}` | {family.type} | {told} | {family.documentation} |"


def page() -> str:
    reasons = (f"| `{reason}` | {meaning} |" for reason, meaning in MEANINGS.items())
    return "\n".join([OPENING + "\n".join(shown_families()), KINDS + "\n".join(reasons), ""])


def test_page_says_what_is_shown() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.broker.operations.test_metrics"


def test_each_reason_and_event_has_its_meaning() -> None:
    assert set(MEANINGS) == {*REASONS, "other"}
    assert [each for each in COUNTED if f"`{each}`" not in " ".join(KINDS.split())] == []


def test_broker_shows_what_the_page_lists_and_its_process(broker: Observed) -> None:
    names = {line.split()[2] for line in broker.get("/metrics")[2].splitlines() if line.startswith("# HELP")}
    listed = set(re.findall(r"^\| `(nebula_\w+)`", PAGE.read_text(), re.MULTILINE))

    assert {name for name in names if name.startswith("nebula_")} == listed
    assert "process_resident_memory_bytes" in names


if __name__ == "__main__":
    PAGE.write_text(page())
