"""The one rule for names of destinations, as people write them in calls, services and on the command line.

- What begins with `/` is a destination as it stands: `/queue/orders`, `/topic/news`, `/exchange/logs`.
- A name without a `/` is a queue: `orders` is `/queue/orders`.
- All else with a `/` is a last value, `X/NAME`: its prefixes are the broker's to set.
- `queue/orders` is none of these: the first `/` is missing.

`StompClient` does not follow it: it sends what it is told.
"""

from __future__ import annotations

from typing import Final

__all__ = ["QUEUE", "TOPIC", "destination_named", "is_bare", "queue_named"]

QUEUE: Final = "/queue/"
TOPIC: Final = "/topic/"

# First parts of names that lack the `/` before them.
_MEANT: Final = {"queue": QUEUE, "queues": QUEUE, "topic": TOPIC, "topics": TOPIC}
_GLOB: Final = frozenset("*?[")


def is_bare(name: str) -> bool:
    """Whether a name has no prefix at all, and so is that of a queue."""
    return "/" not in name


def destination_named(name: str, *, takes_globs: bool = False) -> str:
    """The destination that a name means; one that begins with `/` stays as it is.

    Args:
        name: as somebody wrote it.
        takes_globs: it is to be subscribed to. Queues know no globs, so that a bare one is a mistake.

    Raises:
        ValueError: it is empty, or lacks a part of its prefix; the text says what it may mean.
    """
    if not name:
        raise ValueError("a destination has a name: write /queue/NAME, /topic/NAME or X/NAME")
    if is_bare(name):
        if takes_globs and not _GLOB.isdisjoint(name):
            raise ValueError(f"{name!r}: queues have no globs; did you mean {TOPIC + name!r}?")
        return QUEUE + name
    _refuse_half_a_prefix(name)
    return name


def queue_named(name: str) -> str:
    """The queue that a name means, of a service for one; what begins with `/` stays as it is.

    Raises:
        ValueError: it is empty, or lacks the first `/`; the text says what it may mean.
    """
    if not name:
        raise ValueError("a queue has a name: write NAME or /queue/NAME")
    if name.startswith("/"):
        return name
    _refuse_half_a_prefix(name)
    return QUEUE + name


def _refuse_half_a_prefix(name: str) -> None:
    first, _, rest = name.partition("/")
    if rest and (prefix := _MEANT.get(first.lower())) is not None:
        raise ValueError(f"{name!r} is no destination; did you mean {prefix + rest!r}?")
