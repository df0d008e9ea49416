"""Subscriptions of tests that need no connection."""

from __future__ import annotations

from typing import Any, cast

from nebula.stomp.client import AckMode, Message, PushSubscription


def unconnected() -> PushSubscription:
    """A subscription whose messages are never settled."""
    return PushSubscription(cast(Any, None), "1", "/queue/a", AckMode.AUTO, _ignore)


def _ignore(_message: Message) -> None:
    pass
