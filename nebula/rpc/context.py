"""What a handler may know of the request it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nebula import headers as names
from nebula.rpc.envelope import Envelope


class Request:
    """One request, for handlers that declare a parameter of this type. It is no part of the verb's contract.

    Attributes:
        verb: as sent.
        parameters: as sent, before validation.
        description: a text for people, or None.
        headers: of the MESSAGE. Shared with other requests: read only.
        destination: the queue that it came by.
        principal: who sent it, as the broker vouches for it; None where the broker does not say.
        deadline: when its caller stops waiting, on `time.monotonic`'s clock, or None.
    """

    __slots__ = ("deadline", "description", "destination", "headers", "parameters", "principal", "verb")

    def __init__(
        self,
        envelope: Envelope,
        headers: Mapping[str, str],
        *,
        destination: str,
        principal: str | None = None,
        deadline: float | None = None,
    ) -> None:
        self.verb: str = envelope.verb or ""
        self.parameters: Any = envelope.parameters
        self.description = envelope.description
        self.headers = headers
        self.destination = destination
        self.principal = principal
        self.deadline = deadline

    @property
    def reply_to(self) -> str:
        """Where the answer goes. Rule 3: without `neb-reply-to`, to where the request was sent."""
        return self.headers.get(names.REPLY_TO) or self.destination

    @property
    def reply_id(self) -> str | None:
        """What the answer bears as `neb-in-reply-to` (rule 4), or None."""
        return self.headers.get(names.REPLY_ID)

    def __repr__(self) -> str:
        return f"Request({self.verb!r}, destination={self.destination!r}, principal={self.principal!r})"
