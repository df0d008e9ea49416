"""Fakes of jobs: a real service accepts, reports and records them, with a result that the test chooses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.signature import Arguments, Signature
from nebula.rpc.jobs.verb import JobVerb

__all__ = ["AnyParameters", "anything", "fake_job"]


def anything(parameters: Any = None) -> Any:
    """Takes whatever it is given: a fake."""


class AnyParameters(Signature):
    """No contract: what comes is the one argument, whatever its shape."""

    def bind(self, parameters: Any, *, is_text: bool = False) -> Arguments:  # noqa: ARG002
        return (parameters,), {}


@dataclass(frozen=True, slots=True)
class _FakeJob(JobVerb):
    """Ends as a fake says, under the contract of a function or none."""

    outcome: Callable[[Any], Awaitable[Any]] = anything

    def __post_init__(self) -> None:
        JobVerb.__post_init__(self)
        if self.function is anything:
            object.__setattr__(self, "signature", AnyParameters(anything, context=(Job,)))
        # What the function wants besides its parameters is for the real one.
        self.signature.plan = None

    # The outcome is a coroutine, whatever the real function is.
    @property
    def is_async(self) -> bool:
        return True

    def told(self, arguments: Arguments) -> Any:
        """The parameters, as the fake is told them."""
        args, kwargs = arguments
        named = dict(zip(self.signature.names, args, strict=False)) | kwargs
        return named["parameters"] if self.function is anything else named

    def parameters_of(self, arguments: Arguments) -> Any:
        return self.told(arguments) if self.function is anything else JobVerb.parameters_of(self, arguments)

    def call(self, parameters: Any, context: Job, given: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return self.outcome(self.told(self.signature.bind(parameters)))


def fake_job(
    name: str,
    function: Callable[..., Any] | None,
    note: Callable[[Any], None],
    outcome: Callable[[Any], Awaitable[Any]],
) -> JobVerb:
    """What a responder declares for the fake of a job.

    Args:
        name: what callers ask for.
        function: whose contract it keeps; None: it takes anything.
        note: told the parameters of each job that is accepted.
        outcome: the job's value, or what it raises.
    """
    job = _FakeJob(name, function or anything, engine=None, timeout=None, outcome=outcome)

    # A job that was asked for twice is looked at once. No check of the real one's: that is its business.
    # `check` is called for each job before it is recorded, so the calls of a fake are known when `start`
    # returns.
    async def check(*args: Any, **kwargs: Any) -> None:
        note(job.told((args, kwargs)))

    return replace(job, check=check)
