"""Names of destinations, as people write them in calls, services and on the command line.

- A name that begins with `/` is a destination as it is: `/queue/orders`, `/topic/news`, `/exchange/logs`.
- A name without a `/` is a queue: `orders` is `/queue/orders`.
- Any other name with a `/` is a last value, `X/NAME`: its prefixes are settings of the broker.
- `queue/orders` is an error: the first `/` is missing.

`StompClient` does not use this rule: it sends names unchanged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

__all__ = ["QUEUE", "TOPIC", "destination_named", "is_bare", "queue_named"]

QUEUE: Final = "/queue/"
TOPIC: Final = "/topic/"

# First parts of names that lack the `/` before them.
_MEANT: Final = {"queue": QUEUE, "queues": QUEUE, "topic": TOPIC, "topics": TOPIC}
# Not `{`, which only rights have.
_GLOB: Final = frozenset("*?[")


def is_bare(name: str) -> bool:
    """Whether a name has no prefix at all, so that it names a queue."""
    return "/" not in name


# docs/decisions/0042: a bare name is a queue wherever a person writes one.
def destination_named(name: str, *, takes_globs: bool = False) -> str:
    """The destination for a name. A name that begins with `/` stays as it is.

    Args:
        name: as a person wrote it.
        takes_globs: the name is for a subscription. Queues have no globs, so a bare one is a mistake.

    Raises:
        ValueError: it is empty, or a part of its prefix is missing; the text makes a suggestion.
    """
    if not name:
        raise ValueError("a destination has a name: write /queue/NAME, /topic/NAME or X/NAME")
    if is_bare(name):
        if takes_globs and not _GLOB.isdisjoint(name):
            raise ValueError(f"{name!r}: queues have no globs; did you mean {TOPIC + name!r}?")
        return QUEUE + name
    _refuse_half_a_prefix(name)
    return name


# Each call asks for the queue of its service.
@lru_cache(maxsize=256)
def queue_named(name: str) -> str:
    """The queue for a name, such as a service's. A name that begins with `/` stays as it is.

    Raises:
        ValueError: it is empty, or the first `/` is missing; the text makes a suggestion.
    """
    if not name:
        raise ValueError("a queue has a name: write NAME or /queue/NAME")
    # Other brokers have other prefixes, such as `/exchange/logs` of RabbitMQ.
    if name.startswith("/"):
        return name
    _refuse_half_a_prefix(name)
    return QUEUE + name


def _refuse_half_a_prefix(name: str) -> None:
    # Without this check `queue/orders` would be a last value, and each message would replace the one before
    # it.
    first, _, rest = name.partition("/")
    if rest and (prefix := _MEANT.get(first.lower())) is not None:
        raise ValueError(f"{name!r} is no destination; did you mean {prefix + rest!r}?")
