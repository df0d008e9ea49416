"""The newest dead letters of a queue that is deeper than its window in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.broker.operations.dead_letters import DeadLetters, Filter
from nebula.broker.server.runtime import Runtime
from nebula.host import deep
from nebula.stomp.client import AckMode
from nebula.sync import Client
from nebula.testing.running import RunningBroker

SOURCES = ("/queue/often", "/queue/often", "/queue/often", "/queue/seldom")


class Letters:
    """A broker with dead letters, most of them on disk alone.

    Attributes:
        rows: all of them as the verb lists them page by page, the newest first.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def ask(self, verb: str, **parameters: Any) -> Any:
        return self._client.call("nebula.broker", verb, parameters)

    def newest(self, **parameters: Any) -> list[dict[str, Any]]:
        return list(self.ask("dlq.list", reverse=True, **parameters)["rows"])

    def paged(self, limit: int, **parameters: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        after = 0
        while page := self.newest(limit=limit, after=after, **parameters):
            rows += page
            after = page[-1]["number"]
        return rows

    def die(self, count: int, gap: int) -> None:
        """Have messages die, with numbers between them that others get."""
        for number in range(count):
            self._client.publish(SOURCES[number % 4], number, headers={"persistent": "true"})
            for _ in range(gap):
                self._client.publish("/topic/others", "")
        for source in sorted(set(SOURCES)):
            with self._client.subscribe(source, ack=AckMode.CLIENT_INDIVIDUAL) as subscription:
                for _ in range(sum(SOURCES[number % 4] == source for number in range(count))):
                    subscription.nack(next(subscription), requeue="false")


@contextmanager
def deep_letters(data: Path) -> Iterator[Letters]:
    limits = {"queue_window_bytes": 20_000}
    with RunningBroker(store="sqlite", data=data, limits=limits) as broker, Client(broker.url) as client:
        made = Letters(client)
        made.die(80, gap=0)
        made.die(60, gap=5)
        made.die(160, gap=0)
        yield made


# Small pages, so that windows are cut and grow.
@pytest.fixture(params=[8, 4096], scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Letters]:
    with pytest.MonkeyPatch.context() as patch, deep_letters(tmp_path_factory.mktemp("letters")) as made:
        patch.setattr(deep, "PAGE_MESSAGES", request.param)
        yield made


def test_newest_come_first_from_disk_too_and_each_once(letters: Letters) -> None:
    rows = letters.paged(37)
    numbers = [row["number"] for row in rows]

    assert len(numbers) == 300
    assert numbers == sorted(set(numbers), reverse=True)
    at_hand = letters.ask("dlq.list", limit=1000)
    assert [row["number"] for row in at_hand["rows"]] == sorted(
        row["number"] for row in rows if row["is_at_hand"]
    )
    assert at_hand["on_disk"] > 100
    assert letters.newest(limit=1000) == rows


def test_filter_holds_for_letters_on_disk(letters: Letters) -> None:
    rows = letters.paged(7, source="/queue/seldom")

    assert len(rows) == 75
    assert {row["source"] for row in rows} == {"/queue/seldom"}
    assert letters.newest(source="/queue/none") == []


def test_letter_on_disk_is_shown(letters: Letters) -> None:
    newest, *_, oldest = letters.newest(limit=1000)

    assert (newest["is_at_hand"], oldest["is_at_hand"]) == (False, True)
    for row in (newest, oldest):
        shown = letters.ask("dlq.show", number=row["number"])
        assert (shown["number"], shown["headers"]["dead-letter-from"]) == (row["number"], row["source"])


def test_list_that_stops_early_says_so_and_has_no_gap(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [row["number"] for row in letters.newest(limit=1000)]
    monkeypatch.setattr(deep, "PAGE_MESSAGES", 8)
    monkeypatch.setattr(deep, "_MOST_READ", 20)
    told = letters.ask("dlq.list", reverse=True, limit=1000)
    numbers = [row["number"] for row in told["rows"]]

    assert 0 < len(numbers) < 300
    assert numbers == everything[: len(numbers)]
    assert 0 < told["on_disk"] < 300


def test_list_stops_after_so_many_bytes(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deep, "PAGE_MESSAGES", 8)
    monkeypatch.setattr(deep, "_MOST_READ_BYTES", 100)
    told = letters.ask("dlq.list", reverse=True, limit=1000)

    assert 0 < len(told["rows"]) < 300
    assert told["on_disk"] > 0


def test_each_page_was_looked_at_as_a_whole(letters: Letters) -> None:
    after, sizes = 0, []
    while (page := letters.ask("dlq.list", reverse=True, limit=101, after=after))["rows"]:
        assert page["on_disk"] == 0
        sizes.append(len(page["rows"]))
        after = page["rows"][-1]["number"]

    assert sizes == [101, 101, 98]


def test_letters_that_are_paged_in_meanwhile_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Runtime.walk

    async def walk_and_purge(runtime: Runtime, steps: Any) -> Any:
        # The oldest go after memory was walked, so that others take their place there.
        monkeypatch.setattr(Runtime, "walk", walk)
        found = await walk(runtime, steps)
        queue = runtime.broker.queues.get("/queue/DLQ")
        assert queue is not None
        paged = next(line.paged for line in queue.store.line.lines if line.paged is not None)
        before = paged.after
        drop = DeadLetters(runtime.broker, runtime.administration.arrivals).drop
        await walk(runtime, drop(Filter(), 40, runtime.time()))
        while paged.after == before:
            await anyio.sleep(0.01)
        return found

    with deep_letters(tmp_path) as letters:
        everything = [row["number"] for row in letters.newest(limit=1000)]
        monkeypatch.setattr(Runtime, "walk", walk_and_purge)
        numbers = [row["number"] for row in letters.newest(limit=1000)]

    assert numbers[: len(everything) - 40] == everything[:-40]


def test_broker_without_dead_letters_lists_none(tmp_path: Path) -> None:
    with RunningBroker(store="sqlite", data=tmp_path) as broker, Client(broker.url) as client:
        assert Letters(client).ask("dlq.list", reverse=True) == {"rows": [], "on_disk": 0}


def test_newest_in_memory_are_listed_too() -> None:
    with RunningBroker() as broker, Client(broker.url) as client:
        made = Letters(client)
        made.die(8, gap=1)
        numbers = [row["number"] for row in made.ask("dlq.list")["rows"]]

        assert [row["number"] for row in made.paged(3)] == numbers[::-1]
