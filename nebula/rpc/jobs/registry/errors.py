"""Errors of job registries."""

from __future__ import annotations

from nebula.errors import NebulaError

__all__ = [
    "Fenced", "RegistryAway", "RegistryClosed", "RegistryFailed", "RegistryFull", "RegistryLost",
    "Superseded",
]  # fmt: skip


class RegistryFull(NebulaError):
    """The disk is full: nothing can be recorded until there is room. The message says where."""


class RegistryFailed(NebulaError):
    """The database has rolled back a whole transaction because a part of it failed."""


# Not the end: the writer tries the batch again until its deadline.
class RegistryAway(NebulaError):
    """The database cannot be reached or refused for now: the transaction may be done again."""


class RegistryLost(NebulaError):
    """The database has not replied in time. What has to ask it first must not go on."""


class RegistryClosed(NebulaError):
    """The service stops, or its disk has failed: the work was not done."""


class Superseded(NebulaError):
    """Another instance has changed the job meanwhile: nothing was written."""


class Fenced(NebulaError):
    """The other instances have not heard of this one for too long, and have taken its jobs over."""
