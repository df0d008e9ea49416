"""Discovery records: what an instance of a service says about itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from nebula.headers import SERVICE_PREFIX
from nebula.shown import Shown, Unit

__all__ = ["Instance", "hash_of"]

# Instances may write anything here, and it is shown and calculated with: within limits.
_Text: TypeAlias = Annotated[str, Field(max_length=500)]
_Texts: TypeAlias = Annotated[tuple[_Text, ...], Field(max_length=10_000)]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=2**53)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)]

# As the command line shows them.
_Service: TypeAlias = Annotated[_Text, Shown("service")]
_Name: TypeAlias = Annotated[_Text, Shown("instance")]
_Version: TypeAlias = Annotated[_Text, Shown("version")]
_Busy: TypeAlias = Annotated[_Count, Shown("busy", Unit.COUNT)]
_Waiting: TypeAlias = Annotated[_Count, Shown("waiting", Unit.COUNT)]


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of a service, as it last described itself.

    Attributes:
        service: its name.
        name: of the instance; unique among those of the service.
        queue: the queue of this instance alone; None if the broker does not let it listen there.
        queues: the queues of the service.
        verbs: that it handles, sorted.
        schemas: a hash of the contracts of all its verbs: two instances with the same one have equal
            contracts.
        version: of the service, as given to its `Responder`.
        busy: requests that are being handled.
        waiting: requests that it has received but not begun.
        started_at: seconds since 1970, by its own clock.
    """

    service: _Service
    name: _Name
    queue: _Text | None = None
    queues: _Texts = ()
    verbs: _Texts = ()
    schemas: _Text = ""
    version: _Version = ""
    busy: _Busy = 0
    waiting: _Waiting = 0
    started_at: _Seconds = 0.0

    @property
    def destination(self) -> str:
        """The last value that describes it."""
        return f"{SERVICE_PREFIX}{self.service}.{self.name}"

    def is_unlike(self, other: Instance) -> bool:
        """Whether another instance of the service is known to have another contract.

        One that has no JSON Schema has no hash, and nothing is known of it.
        """
        return bool(self.schemas and other.schemas) and self.schemas != other.schemas

    def with_load(self, busy: int, waiting: int) -> Instance:
        """The same instance with another load."""
        return replace(self, busy=busy, waiting=waiting)

    def to_json(self) -> bytes:
        """The body of its last value."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def from_json(cls, body: bytes) -> Instance | None:
        """The instance that a body describes; None if it describes none. Its writer is not checked."""
        try:
            return _ADAPTER.validate_json(body)
        except ValidationError:
            return None

    @classmethod
    def from_value(cls, value: Any) -> Instance | None:
        """The same, from parsed JSON."""
        try:
            return _ADAPTER.validate_python(value)
        except ValidationError:
            return None


_ADAPTER: Final = TypeAdapter(Instance)


def hash_of(contracts: Iterable[Any]) -> str:
    """A short hash of contracts as `describe` lists them; their order counts."""
    return hashlib.sha256(to_json(list(contracts))).hexdigest()[:16]
