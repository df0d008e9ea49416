"""Calls in the loop's next turn, on asyncio and trio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from nebula.waiter import runs_on_asyncio

Soon: TypeAlias = Callable[[Callable[[], None]], object]
"""Has something called on the loop's thread before long. What is called must not raise."""


def call_soon() -> Soon:
    """For callers on the thread of the loop that runs now."""
    return asyncio.get_running_loop().call_soon if runs_on_asyncio() else call_soon_from_thread()


def call_soon_from_thread() -> Soon:
    """For callers on any thread. Raises RuntimeError there when the loop has ended."""
    if runs_on_asyncio():
        return asyncio.get_running_loop().call_soon_threadsafe
    # Installed where it runs, and nowhere else.
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon
