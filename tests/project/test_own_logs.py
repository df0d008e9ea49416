"""A test hears its own logs alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from nebula.logs import get_logger
from tests.own_logs import own_logs

_log = get_logger("nebula.tests")


def test_threads_of_the_block_are_heard_and_those_before_it_are_not() -> None:
    with ThreadPoolExecutor(1) as others:
        others.submit(_log.info, "ready").result()
        with own_logs() as logged:
            others.submit(_log.info, "of others").result()
            thread = threading.Thread(target=_log.info, args=["of a thread"])
            thread.start()
            thread.join()
            _log.info("of the block")

    assert [entry["event"] for entry in logged] == ["of a thread", "of the block"]


@pytest.mark.anyio
async def test_work_that_is_given_to_threads_that_there_were_is_heard() -> None:
    await anyio.to_thread.run_sync(_log.info, "before")
    with own_logs() as logged:
        await anyio.to_thread.run_sync(_log.info, "within")

    assert [entry["event"] for entry in logged] == ["within"]
