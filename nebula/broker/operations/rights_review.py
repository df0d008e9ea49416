"""Grants that are probably mistakes: capabilities without a principal, globs without a match.

The check is a walk in steps, like those of `administration`: there may be many destinations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from nebula.broker.core.access import ANONYMOUS, FREE_VERBS, IDENTITY, AccessPolicy, Grants
from nebula.broker.core.broker import Broker
from nebula.broker.operations.administration import Steps
from nebula.broker.operations.views import RightsView
from nebula.globs import compile_glob, is_glob, literal_prefix

__all__ = ["review"]

# Of a list that is longer the first ones are enough to begin with.
_MOST_SHOWN: Final = 100
_AT_ONCE: Final = 1_000
# Principals of hosted services. The broker makes them up, so no file of users has them.
_HOSTED: Final = "app:"


def review(
    broker: Broker, access: AccessPolicy, logins: Iterable[str], verbs: Sequence[str]
) -> Steps[RightsView]:
    """Look for grants that are probably mistakes.

    Args:
        broker: whose destinations and sessions count.
        access: its rights.
        logins: the users that it knows.
        verbs: of the broker.
    """
    rights = access.rights_of(ANONYMOUS)
    anonymous = sorted(verb for verb in verbs if verb not in FREE_VERBS and rights.may_call(verb))
    grants = access.grants
    if grants is None:
        return RightsView(
            is_open=True, capabilities=0, identities=0, unused_capabilities=[], without_rights=[],
            unknown_verbs=[], unmatched=[], anonymous_verbs=_first(anonymous),
        )  # fmt: skip
    held = {name for names in grants.identities.values() for name in names}
    names = sorted({*broker.queues.by_name, *broker.topics.topics, *broker.values.topics})
    yield
    unmatched = []
    for capability, glob in _destinations(grants):
        if not (yield from _matches_any(glob, names)):
            unmatched.append(f"{capability}: {glob}")
    connected = {session.principal for session in broker.sessions.values()}
    known = {each for each in (*logins, *connected) if not each.startswith(_HOSTED)}
    return RightsView(
        is_open=False,
        capabilities=len(grants.capabilities),
        identities=len(grants.identities),
        unused_capabilities=_first(sorted(grants.capabilities.keys() - held)),
        without_rights=_first(sorted(each for each in known if not grants.identities.get(each))),
        unknown_verbs=_first(_unknown_verbs(grants, verbs)),
        unmatched=_first(unmatched),
        anonymous_verbs=_first(anonymous),
    )


def _destinations(grants: Grants) -> Iterator[tuple[str, str]]:
    """The grants of destinations, each after its capability."""
    for name, capability in grants.capabilities.items():
        for glob in dict.fromkeys((*capability.publish, *capability.subscribe)):
            yield name, glob


def _unknown_verbs(grants: Grants, verbs: Sequence[str]) -> Iterator[str]:
    for name, capability in grants.capabilities.items():
        for glob in capability.call:
            matches = compile_glob(glob.replace(IDENTITY, "*"))
            if not any(matches(verb) for verb in verbs):
                yield f"{name}: {glob}"


def _matches_any(glob: str, names: Sequence[str]) -> Steps[bool]:
    """Whether a glob matches one of some sorted names."""
    # Any identity will do: the question is only whether the grant is in use.
    glob = glob.replace(IDENTITY, "*")
    if not is_glob(glob):
        place = bisect_left(names, glob)
        return place < len(names) and names[place] == glob
    prefix, matches = literal_prefix(glob), compile_glob(glob)
    # Only those that begin as the glob does, so that few names are compared with it.
    place = bisect_left(names, prefix)
    while place < len(names) and names[place].startswith(prefix):
        batch = names[place : place + _AT_ONCE]
        if any(matches(name) for name in batch):
            return True
        place += len(batch)
        yield
    return False


def _first(found: Iterable[str]) -> list[str]:
    return list(islice(found, _MOST_SHOWN))
