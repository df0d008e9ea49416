"""Results of handlers: checked against their annotation, and written as JSON.

Checked as parameters are: by pydantic, which converts what it can (`"2"` to an `int`). Beyond that:

- A dataclass of the standard library checks nothing when it is made, so its fields are checked here.
- A model has checked itself when it was made. Where its fields are of another type by now, its JSON has to
  read as the result that is declared.
- JSON has no NaN and no infinity: where pydantic would write `null` instead, the result is bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from nebula.rpc.errors import VerbError
from nebula.rpc.wire.finite import NOT_FINITE, odd_places
from nebula.rpc.wire.json_types import Adapter

__all__ = ["BadResult", "ResultContract", "of_job"]


# docs/decisions/0041: without this check, a bug of the service is an error at its callers.
class BadResult(VerbError):
    """The handler returned what its annotation does not allow, or what JSON cannot carry.

    Callers learn the fields at fault, and no values.

    Args:
        field: where it is in the result; empty: the result itself.
        problem: what is wrong there, for the log.
        details: an entry for each field at fault.
    """

    code = "bad-result"

    def __init__(self, field: str, problem: str, details: list[dict[str, str]] | None = None) -> None:
        where = f" at {field}" if field else ""
        super().__init__(f"the service returned what its verb does not declare{where}", details=details)
        self.field = field
        self.problem = problem


def of_job(error: BadResult) -> str:
    """What a job that returned it has failed with: in full, for readers of its log."""
    place = f"{error.field}: " if error.field else ""
    return f"the result is not what the job declares: {place}{error.problem}"


class ResultContract:
    """What one handler returns.

    Args:
        kind: its annotation.
        checks: without it a result of another type goes out by its own type, and NaN as `null`.
        are_items: a result is a list of items that were yielded one by one: their number says nothing.

    Attributes:
        adapter: reads and writes results.

    Raises:
        PydanticUserError, PydanticSchemaGenerationError: the type has no JSON form.
    """

    def __init__(self, kind: Any, *, checks: bool = True, are_items: bool = False) -> None:
        # An `Iterable` would be checked as it is read, which can be done once.
        self._kind = list[get_args(kind)[0]] if get_origin(kind) is Iterable else kind  # type: ignore[misc]  # at run time
        self.adapter = Adapter(self._kind)
        self._checks = checks
        self._are_items = are_items

    def check(self, result: Any) -> Any:
        """The result, converted to what is declared.

        Raises:
            BadResult: it is something else.
        """
        if not self._checks or type(result) is self._checked_model:
            return result
        try:
            taken = self.adapter.take(result)
            if self._distrustful is not None:
                # Only looked at: making dataclasses anew could change them.
                self._distrustful.take(taken)
        except ValidationError as error:
            raise self._bad(error) from None
        return taken

    def write(self, result: Any) -> bytes:
        """The result as ASCII-only JSON.

        Raises:
            BadResult: it is something else than declared, or has no JSON form.
        """
        taken = self.check(result)
        try:
            # First strictly by the declared type. Only a result that does not fit is written by its own type
            # and read back.
            data = self.adapter.write(taken, is_exact=self._checks)
        except ValueError:
            data = self._written_otherwise(taken)
        # Not even looked for where there is nothing that could stand for it.
        if self._checks and (data.find(b"null") >= 0 or _may_be_endless(data)):
            self._refuse_endless(taken, data)
        return data

    def plain(self, result: Any) -> Any:
        """The result as dicts, lists and scalars of Python.

        Raises:
            BadResult: it is something else than declared.
        """
        return self.adapter.plain(self.check(result))

    @cached_property
    def _distrustful(self) -> Adapter | None:
        """Checks dataclasses anew; None without any. Made late: callers do not need it."""
        return Adapter(self._kind, trusts=False) if self.adapter.can_check_dataclasses() else None

    @cached_property
    def _checked_model(self) -> type | None:
        """The class whose instances need no check: a model without dataclasses, which has checked itself."""
        return self.adapter.model() if self._distrustful is None else None

    def _written_otherwise(self, taken: Any) -> bytes:
        """A result that is not written by its declared type."""
        if self._checks and self.adapter.is_lazy():
            raise BadResult("", "an item of it is not what is declared") from None
        try:
            data = self.adapter.write(taken)
            if self._checks:
                # Some types are written as another one, and read so.
                self.adapter.read(from_json(data))
        except ValidationError as error:
            raise self._bad(error) from None
        except ValueError as error:
            raise BadResult("", f"it has no JSON form: {error}") from error
        return data

    def _refuse_endless(self, taken: Any, data: bytes) -> None:
        plain = self.adapter.plain(taken)
        # pydantic finds out whether there is any in a tenth of the time that it takes to find where.
        if not _may_be_endless(
            to_json(plain, inf_nan_mode="constants", bytes_mode="base64", serialize_unknown=True)
        ):
            return
        written = from_json(data)
        for place in odd_places(plain, ()):
            # A type may have a text for it.
            if _is_lost(_found_at(written, place)):
                field = self._field(place)
                raise BadResult(field, NOT_FINITE, [{"field": field, "type": "finite_number"}])

    def _bad(self, error: ValidationError) -> BadResult:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        details = [{"field": self._field(one["loc"]), "type": one["type"]} for one in found]
        return BadResult(details[0]["field"], found[0]["msg"], details)

    def _field(self, place: Iterable[Any]) -> str:
        names = [str(one) for one in place]
        return ".".join(names[1:] if self._are_items else names)


def _may_be_endless(data: bytes) -> bool:
    """Whether a number in some JSON is none, or a text says so."""
    # `in` takes twice as long: it tries bytes as a number first.
    return data.find(b"NaN") >= 0 or data.find(b"Infinity") >= 0


def _found_at(value: Any, place: Iterable[Any]) -> Any:
    for name in place:
        try:
            value = value[str(name)] if isinstance(value, Mapping) else value[name]
        except (LookupError, TypeError):
            return None
    return value


def _is_lost(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
