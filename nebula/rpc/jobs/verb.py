"""`JobVerb`: a function as a long-running verb, its contract and the rules for its runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
from pydantic_core import from_json

from nebula.rpc.contract.hints import name_of, parameters_of
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.job_runner import ENGINE_LOST, OUT_OF_MEMORY
from nebula.rpc.contract.signature import (
    Arguments,
    Signature,
    handler_of,
    job_signature,
    leave_results,
    refuse_method,
    refuse_unannotated,
)
from nebula.rpc.errors import VerbError
from nebula.rpc.wire.envelope import dump_json
from nebula.rpc.wire.finite import check_finite

__all__ = ["JobVerb"]

# If an engine dies, one of its jobs may be the cause; it is not always known which.
_DEATHS: Final = frozenset({ENGINE_LOST, OUT_OF_MEMORY})

_LONGEST_DELAY: Final = 600.0
_MAX_KEY_LENGTH: Final = 256


@dataclass(frozen=True, slots=True)
class JobVerb:
    """One declaration of a job. Times are seconds.

    Attributes:
        name: what callers ask for.
        function: its code; a parameter of type `Job` gets the context.
        engine: the runner that runs it; None: the service itself.
        timeout: how long a run may take, None for no limit. A request may ask for less.
        check: called with the same arguments (without the context) before the job is accepted; if it returns
            a text, the request is refused with that text. It must be quick and without side effects.
        on_lost: what happens when its runner dies: `rerun` only if it may run twice.
        retry_on: codes of failures after which it is run again, only if it may run twice: `worker-crashed`,
            `out-of-memory`, those of its own `JobError`s. A run that is lost with its engine is repeated for
            `engine-lost` as well as `out-of-memory`: an engine that runs out of memory ends all its jobs, and
            which of them used the memory is not always known.
        retry_delay: seconds between a failure of `retry_on` and the second attempt; for each further one
            twice as long, 600 at most. What `on_lost` runs again does not wait.
        retries: how often it is run again, at most.
        exclusive: jobs with the same key never run at the same time, whichever verbs of the service they
            belong to. Give the name of a parameter, whose value is the key, or a function that gets the same
            arguments (without the context) and returns the key, or None for none. It must be quick; if it
            raises, the request is refused.
        max_running: how many of this verb run at a time, None for the runner's limit. This and `exclusive`
            hold within one instance of the service, since each has jobs of its own; over all instances only
            where they share a registry in PostgreSQL (`Responder(jobs=…)`, `NEBULA_JOBS`).
        expires: how long it may wait for its turn, from its `not_before` on if it has one; None for ever.
        isolation: `process`: each run has an engine process of its own, which ends with it; `shared`: it
            runs together with others.
        validate_results: a job that returns what its annotation does not allow, or what JSON cannot carry
            (NaN), fails with `bad-result`. Without it such a result is kept by its own type, NaN as null.
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
    retry_on: Sequence[str] = ()
    retry_delay: float = 5.0
    retries: int = 1
    exclusive: Callable[..., str | None] | str | None = None
    max_running: int | None = None
    expires: float | None = None
    isolation: Literal["shared", "process"] = "shared"
    validate_results: bool = True
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        function = handler_of(self.function)
        object.__setattr__(self, "function", function)
        refuse_method(function, "a job is a function: write it outside of {kind}")
        # A stream needs its connection to the end, and a job outlives connections.
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__qualname__} yields; a job returns one value")
        if self.on_lost not in ("fail", "rerun"):
            raise ValueError(f"job {self.name!r}: on_lost is 'fail' or 'rerun', not {self.on_lost!r}")
        for what in ("timeout", "max_running", "expires"):
            value = getattr(self, what)
            if value is not None and value <= 0:
                raise ValueError(f"job {self.name!r}: {what} is more than 0, or None")
        if self.retries < 0 or self.retry_delay < 0:
            raise ValueError(f"job {self.name!r}: retries and retry_delay are 0 or more")
        if isinstance(self.retry_on, str):
            # A string is a sequence, too: of letters, none of which is a code.
            raise TypeError(f'job {self.name!r}: retry_on is a tuple of codes, ("{self.retry_on}",)')
        object.__setattr__(self, "retry_on", tuple(self.retry_on))
        if self.isolation not in ("shared", "process"):
            raise ValueError(f"job {self.name!r}: isolation is 'shared' or 'process', not {self.isolation!r}")
        if self.isolation == "process" and self.engine is None:
            raise ValueError(
                f"job {self.name!r} runs in the service itself (engine=None); isolation='process' is for one "
                "that runs in an engine"
            )
        if not self.validate_results:
            leave_results(function)
        signature = job_signature(function, context=(Job,), checks=self.validate_results)
        object.__setattr__(self, "signature", signature)
        refuse_unannotated(signature, name_of(function), ("ctx", "job"), Job)
        if isinstance(self.exclusive, str) and self.exclusive not in self.signature.names:
            raise ValueError(f"job {self.name!r}: exclusive={self.exclusive!r} is none of its parameters")
        # `Depends` makes resources in the service's process, and an open file or pool cannot be sent to
        # another one.
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

    def retry_after(self, code: str, attempt: int, *, is_lost: bool = False) -> float | None:
        """Seconds until a job whose attempt ended in this way gets another one, or None.

        Args:
            code: it failed with, or was lost with.
            attempt: its number, from 1 on.
            is_lost: its runner is gone.
        """
        # `retries` counts runs after the first, and `attempt` the first one too.
        if attempt > self.retries:
            return None
        is_lost = is_lost or code == ENGINE_LOST
        codes = _DEATHS if is_lost else {code}
        # `retry_on` before `on_lost`: where both apply, the author's `retry_delay` counts.
        if not codes.isdisjoint(self.retry_on):
            # Two to the power of some thousands is no float any more.
            return min(self.retry_delay * 2.0 ** min(attempt - 1, 50), _LONGEST_DELAY)
        return 0.0 if is_lost and self.on_lost == "rerun" else None

    def exclusive_key(self, arguments: Arguments) -> str | None:
        """The key of the jobs that must not run at the same time as one with these arguments.

        Raises:
            VerbError: `bad-parameters`, it is too long.
            Exception: what the verb's own function raised.
        """
        if self.exclusive is None:
            return None
        args, kwargs = arguments
        key: Any
        if isinstance(self.exclusive, str):
            key = self._value_of(self.exclusive, arguments)
        else:
            key = self.exclusive(*args, **kwargs)
        if key is None:
            return None
        # The keys 7 and "7" are the same, which errs on the safe side.
        text = key if isinstance(key, str) else dump_json(key).decode()
        if len(text) > _MAX_KEY_LENGTH:
            raise VerbError(
                "bad-parameters", f"the exclusive key is longer than {_MAX_KEY_LENGTH} characters"
            )
        return text

    def _value_of(self, name: str, arguments: Arguments) -> Any:
        args, kwargs = arguments
        given = dict(zip(self.signature.names, args, strict=False)) | kwargs
        default = next(one.default for one in parameters_of(self.function) if one.name == name)
        # Through JSON, so that a date or a model gives the same key as its JSON form.
        return from_json(dump_json(given.get(name, default)))

    def parameters_of(self, arguments: Arguments) -> Any:
        """Validated arguments as JSON that `signature.bind` turns into the same arguments, in any process.

        Raises:
            VerbError: `bad-parameters`, one is NaN or infinite.
        """
        args, kwargs = arguments
        named = dict(zip(self.signature.names, args, strict=False)) | kwargs
        packed = self.signature.pack(
            (), {name: one for name, one in named.items() if not self._is_endless(name, one)}
        )
        # JSON has neither: `job.show` would send parameters that other readers refuse.
        check_finite(packed)
        # Validated values are written back to JSON: a later attempt, perhaps in another process, binds them
        # again.
        return from_json(dump_json(packed))

    def _is_endless(self, name: str, value: Any) -> bool:
        """Whether it is a default such as `math.inf`, which JSON lacks; binding restores it."""
        if not isinstance(value, float) or math.isfinite(value):
            return False
        default = next(one.default for one in parameters_of(self.function) if one.name == name)
        return value is default or value == default

    async def run_check(self, arguments: Arguments, timeout: float) -> None:
        """Call the verb's `check` with the arguments; a plain function runs in a thread.

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
                    # `abandon_on_cancel`, so that the caller is refused in time although the check hangs in
                    # its thread.
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
            given: the values of its parameters with `Depends`.
        """
        args, kwargs = self.signature.bind(parameters)
        arguments: Arguments = args, {**kwargs, **given}
        if self.signature.is_called_by_name:
            arguments = self.signature.complete(arguments, context)
        args, kwargs = arguments
        return self.function(*args, **kwargs)
