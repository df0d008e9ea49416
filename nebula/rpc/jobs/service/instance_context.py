"""What the parts of a job service share: one value, made with the service and handed on whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.registry.capacity import Capacity
from nebula.rpc.jobs.registry.state_folder import StateFolder
from nebula.rpc.jobs.service.clock import Clock
from nebula.rpc.jobs.verb import JobVerb

__all__ = ["InstanceContext"]


# The parts get this and not `JobService`, which makes them: the imports would form a circle.
@dataclass(frozen=True, slots=True)
class InstanceContext:
    """One instance of a service, as the parts of its job service see it.

    Attributes:
        service: the service's name.
        state: the instance's folder.
        verbs: by name. Declarations add to it until the service runs.
        limits: numbers.
        clock: the time, also of the scheduler.
        capacity: decides whether the registry has room.
    """

    service: str
    state: StateFolder
    verbs: Mapping[str, JobVerb]
    limits: JobLimits
    clock: Clock
    capacity: Capacity
