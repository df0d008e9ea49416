"""A function as a long-running verb: its contract and the rules for its runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio
import anyio.to_thread
from pydantic_core import from_json

from nebula.rpc.envelope import dump_json
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.context import Job
from nebula.rpc.signature import Arguments, Signature, handler_of, job_signature

__all__ = ["JobVerb"]


@dataclass(frozen=True, slots=True)
class JobVerb:
    """One declaration of a job. Times are seconds.

    Attributes:
        name: what callers ask for.
        function: its code; a parameter of type `Job` gets the context.
        engine: the runner that runs it; None: the service itself.
        timeout: what a run may take, None for any time. A request may ask for less.
        check: called with the same arguments (without the context) before the job is accepted; a text
            that it returns refuses the request, in these words. Quick and without side effects.
        on_lost: what happens when whatever ran it dies: `rerun` only if it may run twice.
        retries: how often it is run again, at most.
        max_running: how many of this verb run at a time, None for what the runner bears.
        expires: how long it may wait for its turn, None for ever.
        signature: the contract.

    Raises:
        TypeError: the function cannot be a job's.
        ValueError: a number that makes no sense.
    """

    name: str
    function: Callable[..., Any]
    engine: str | None = None
    timeout: float | None = 3600.0
    check: Callable[..., Any] | None = None
    on_lost: Literal["fail", "rerun"] = "fail"
    retries: int = 1
    max_running: int | None = None
    expires: float | None = None
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        function = handler_of(self.function)
        object.__setattr__(self, "function", function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} yields; a job returns one value")
        if self.on_lost not in ("fail", "rerun"):
            raise ValueError(f"job {self.name!r}: on_lost is 'fail' or 'rerun', not {self.on_lost!r}")
        for what in ("timeout", "max_running", "expires"):
            value = getattr(self, what)
            if value is not None and value <= 0:
                raise ValueError(f"job {self.name!r}: {what} is more than 0, or None")
        if self.retries < 0:
            raise ValueError(f"job {self.name!r}: retries is 0 or more")
        object.__setattr__(self, "signature", job_signature(function, context=(Job,)))
        if self.engine is not None and self.signature.plan is not None:
            raise TypeError(
                f"job {self.name!r} runs in another process than its service, where nothing can be given by "
                "Depends; make it itself, or declare the job with engine=None"
            )

    @property
    def address(self) -> str:
        """Where another process finds the function: `module:qualname`."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def is_async(self) -> bool:
        """Whether its code is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def may_run_again(self, attempt: int) -> bool:
        """Whether a job whose attempt of this number was lost gets another one."""
        return self.on_lost == "rerun" and attempt <= self.retries

    def parameters_of(self, arguments: Arguments) -> Any:
        """Validated arguments as JSON that `signature.bind` turns into the same arguments, in any process."""
        args, kwargs = arguments
        named = dict(zip(self.signature.names, args, strict=False)) | kwargs
        return from_json(dump_json(self.signature.pack((), named)))

    async def run_check(self, arguments: Arguments, timeout: float) -> None:
        """Let the verb's `check` look at the arguments; a plain function does so in a thread.

        Raises:
            VerbError: `bad-parameters` in the check's own words, or `deadline-exceeded` after `timeout`.
        """
        check = self.check
        assert check is not None
        args, kwargs = arguments
        try:
            with anyio.fail_after(timeout):
                if inspect.iscoroutinefunction(check):
                    objection = await check(*args, **kwargs)
                else:
                    call = partial(check, *args, **kwargs)
                    objection = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        except TimeoutError:
            raise VerbError("deadline-exceeded", "the check of the parameters took too long") from None
        if objection:
            raise VerbError("bad-parameters", str(objection))

    def call(self, parameters: Any, context: Job, given: Mapping[str, Any]) -> Any:
        """Call the function with recorded parameters: its result, or its coroutine if `is_async`.

        Args:
            parameters: as `parameters_of` made them.
            context: of this run.
            given: what was made for its parameters with `Depends`.
        """
        args, kwargs = self.signature.bind(parameters)
        kwargs = {**kwargs, **given}
        if (name := self.signature.context_name) is not None:
            # By name throughout: the context may stand anywhere among the parameters.
            kwargs = dict(zip(self.signature.names, args, strict=False)) | kwargs | {name: context}
            args = ()
        return self.function(*args, **kwargs)
