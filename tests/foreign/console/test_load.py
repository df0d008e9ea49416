"""Very much to show, and very much that happens: the page goes on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from nebula.stomp.client import StompClient
from tests.foreign.console.conftest import Site, apart

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

QUEUES = 10_000
RATE = 2_000
_SECONDS = 8

# Counts the frames that the browser draws, and the longest time between two of them.
_COUNT_FRAMES = """seconds => new Promise(resolve => {
  const begin = performance.now();
  let frames = 0, last = begin, longest = 0;
  const frame = now => {
    frames += 1;
    longest = Math.max(longest, now - last);
    last = now;
    if (now - begin < seconds * 1000) requestAnimationFrame(frame);
    else resolve({ frames, longest, seconds: (now - begin) / 1000 });
  };
  requestAnimationFrame(frame);
})"""


@pytest.fixture(scope="module")
def many_queues(site: Site) -> int:
    """Queues with a message each."""

    async def fill() -> None:
        async with StompClient(site.address()) as client:
            for number in range(QUEUES):
                client.post(f"/queue/load-{number:05}", b"waits", {})
                if number % 500 == 0:
                    await client.drain()
            await client.send("/queue/load-last", b"waits", receipt=True)

    apart(fill)
    return QUEUES


@contextmanager
def traffic(site: Site) -> Iterator[None]:
    """Messages to a topic during the block, at the rate."""
    over = threading.Event()

    async def publish() -> None:
        async with StompClient(site.address()) as client:
            numbers = itertools.count()
            while not over.is_set():
                until = anyio.current_time() + 0.1
                for number in itertools.islice(numbers, RATE // 10):
                    client.post("/topic/load", b'{"number": %d}' % number, {})
                await client.drain()
                await anyio.sleep(max(0.0, until - anyio.current_time()))

    thread = threading.Thread(target=anyio.run, args=(publish,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def count_frames(page: Page) -> dict[str, float]:
    """Frames of some seconds, and the longest time between two of them in milliseconds."""
    counted: dict[str, float] = page.evaluate(_COUNT_FRAMES, _SECONDS)
    return counted


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("queues", "/queue/load-"),
        ("overview", "Messages in"),
        ("map", "/topic/load"),
        ("topics/%2Ftopic%2Fload", "/topic/load"),
    ],
)
def test_ten_thousand_queues_and_two_thousand_messages_a_second_do_not_freeze_a_page(
    operator: Page, site: Site, many_queues: int, path: str, shown: str
) -> None:
    with traffic(site):
        operator.goto(site.at(path))
        operator.locator("main").get_by_text(shown).first.wait_for()

        counted = count_frames(operator)

    # Some are missing on a machine that others use too. A page that froze would draw next to none.
    assert counted["frames"] >= 5 * counted["seconds"], counted
    assert counted["longest"] < 2_000, counted
