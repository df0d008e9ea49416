"""Taking a request back: telling its service that nobody waits for the answer (PROTOCOL G, "Cancel")."""

from __future__ import annotations

from typing import Final

from nebula.errors import NebulaError
from nebula.headers import RESERVED_QUEUE_PREFIX
from nebula.rpc.wire.brokers import whole_milliseconds
from nebula.rpc.wire.cancel import cancel_topic
from nebula.rpc.wire.envelope import JSON_TYPE, dump_json
from nebula.stomp.client import StompClient

__all__ = ["withdraw"]

_QUEUE: Final = "/queue/"

# It is no request, and bears no header of ours.
_HEADERS: Final = {"content-type": JSON_TYPE}


def withdraw(
    client: StompClient, destination: str, reply_to: str, reply_id: str, seconds: float | None
) -> None:
    """Publish the cancel of a request, at once and without waiting; never raises a `NebulaError`.

    Nothing is sent where nobody would hear it: the request went to no queue, or to the broker's own verbs,
    which take no time. A cancel that is lost with the connection is not missed: so is the answer.

    Args:
        client: connected.
        destination: where the request went, `/queue/<service>` or `/queue/<service>.<instance>`.
        reply_to: as the request says it in `neb-reply-to`.
        reply_id: of the request.
        seconds: until the caller would have given up anyway; None: it never would.
    """
    if not destination.startswith(_QUEUE) or destination.startswith(RESERVED_QUEUE_PREFIX):
        return
    fields: dict[str, str | int] = {"reply-to": reply_to, "reply-id": reply_id}
    if seconds is not None:
        fields["timeout"] = whole_milliseconds(seconds)
    try:
        client.post(cancel_topic(destination), dump_json(fields), _HEADERS)
    except NebulaError:
        return
