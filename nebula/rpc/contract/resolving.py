"""Whom to ask for a function, and what it takes, as its callers see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from nebula.destinations import queue_named
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.signature import Signature, job_signature
from nebula.rpc.contract.verbs import Target, promises_of, target_of, verb_name_of


class Resolved(NamedTuple):
    """A function's target and contract."""

    target: Target
    contract: Signature


def resolve(function: Callable[..., Any], service: str | None, *, as_job: bool) -> Resolved:
    """Find out whom to ask for a function.

    Args:
        function: a verb or a job.
        service: whom to ask whoever declared it; None: the service that did.
        as_job: it is to be started, else called.

    Raises:
        TypeError: no service declared it, or it is a job that is called, or a verb that is started.
    """
    known = target_of(function)
    contract_of = _contract_of_job if as_job else _contract_of
    if service is not None:
        name = verb_name_of(function) if known is None else known.verb
        target = Target(service, destination_of(service), name, options=promises_of(function))
        return Resolved(target, contract_of(function))
    if known is None:
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(
            f"no service declared {name}: say whom to ask, with client.service(NAME).call({name}, …)"
        )
    if known.is_job and not as_job:
        raise TypeError(f"{known.verb} is a job: use client.start(…), and .result() of what it returns")
    if as_job and not known.is_job:
        raise TypeError(f"{known.verb} is no job: use client.call(…)")
    return Resolved(known, contract_of(function))


def destination_of(queue: str) -> str:
    """The destination of a queue or service given by name; a destination stays as it is.

    Raises:
        ValueError: as `queue_named`.
    """
    return queue_named(queue)


@lru_cache(maxsize=1024)
def _contract_of(function: Callable[..., Any]) -> Signature:
    return Signature(function, context=(Request, Job))


@lru_cache(maxsize=1024)
def _contract_of_job(function: Callable[..., Any]) -> Signature:
    return job_signature(function, context=(Request, Job))
