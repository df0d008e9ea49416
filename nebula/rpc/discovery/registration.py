"""Registration of an instance: it makes itself known, keeps its load up to date, and says when it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from nebula import headers as names
from nebula.errors import NebulaError, Refused, Rejected
from nebula.logs import get_logger
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.wire.brokers import LONGEST_HEADER, Brand
from nebula.rpc.wire.envelope import JSON_TYPE, Envelope, ascii_json, encode, parse
from nebula.rpc.wire.reply_headers import own_headers, shared_headers
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.messages import Message

__all__ = ["WHO", "Registration"]

_log = get_logger(__name__)

WHO: Final = "neb.who"
"""The verb by which instances are asked to describe themselves, on `/topic/nebula.services`."""

# A load that changes with each request is told no more often.
_RENEW_SECONDS: Final = 1.0
_REPLY_SECONDS: Final = 5.0

# Without `neb-response`: replies need a right to reply, and this is sent by the service's own rights.
_HEADERS: Final[Mapping[str, str]] = {"content-type": JSON_TYPE, names.EPHEMERAL: "true"}


# docs/decisions/0024: a last value goes with its connection, so no heart-beat and no expiry are needed.
class Registration:
    """One instance's place among those that are there, for one connection.

    Where the broker keeps last values the place is one, and goes with the connection however that ends.
    Elsewhere the instance replies to questions for it.

    Args:
        client: connected.
        brand: of the broker.
        describe: asked once for what is told; its load is replaced.
        load: asked for what there is to do now: how much is busy, and how much waiting.
        renew: seconds between two tellings at least.
    """

    def __init__(
        self,
        client: StompClient,
        brand: Brand,
        describe: Callable[[], Instance],
        load: Callable[[], tuple[int, int]],
        *,
        renew: float = _RENEW_SECONDS,
    ) -> None:
        self._client, self._brand, self._load, self._renew = client, brand, load, renew
        self._describe = describe
        self._told: Instance | None = None
        self._left = anyio.Event()

    async def enter(self) -> None:
        """Be known from now on. Call it once requests are taken.

        A broker that forbids it does not stop the service: it is just not found.

        Raises:
            ConnectionLost, ServerError: the connection ended.
        """
        told = self._now(self._describe())
        try:
            if self._brand.has_last_values:
                # With a receipt: when this returns, clients that look for it find it.
                post = partial(self._client.send, receipt=True, timeout=_REPLY_SECONDS)
                await post(told.destination, told.to_json(), _HEADERS)
            else:
                await self._client.listen(
                    names.SERVICES_TOPIC, self._on_question, ack=AckMode.AUTO, timeout=_REPLY_SECONDS
                )
        except (Refused, Rejected, TimeoutError) as error:
            _log.warning("instance not announced", service=told.service, reason=str(error))
        self._told = told

    async def keep(self) -> None:
        """Tell a load that changed, from `enter` to `leave`."""
        while not self._left.is_set():
            with anyio.move_on_after(self._renew):
                await self._left.wait()
            if self._told is None or self._left.is_set() or (now := self._now(self._told)) == self._told:
                continue
            self._told = now
            if self._brand.has_last_values:
                with suppress(NebulaError):  # the service's own task says what happened
                    self._client.post(now.destination, now.to_json(), _HEADERS)

    def leave(self) -> None:
        """Be known no longer. Idempotent; requests that were begun still get their reply."""
        if self._left.is_set():
            return
        self._left.set()
        if self._told is not None and self._brand.has_last_values:
            with suppress(NebulaError):  # it goes with the connection
                self._client.post(self._told.destination, b"", {})

    def _now(self, instance: Instance) -> Instance:
        busy, waiting = self._load()
        return instance.with_load(busy, waiting)

    def _on_question(self, message: Message) -> None:
        """Reply to questions for this instance. Other messages there, and malformed ones, are left alone."""
        headers = message.headers
        asked = parse(headers, message.body)
        destination = headers.get(names.REPLY_TO, "")
        reply_id = headers.get(names.REPLY_ID, "")
        told = self._told
        if asked.verb != WHO or told is None or self._left.is_set():
            return
        if _wanted(asked) not in (None, told.service) or not self._may_reply(destination, reply_id):
            return
        body = encode(JSON_TYPE, f"{WHO}response", ascii_json(self._now(told).to_json()))
        reply = dict(shared_headers(JSON_TYPE)) | own_headers(reply_id)
        with suppress(NebulaError):
            self._client.post(destination, body, reply)

    def _may_reply(self, destination: str, reply_id: str) -> bool:
        # A broker ends the connection over what it cannot read, and no peer may cause that.
        is_short = len(destination) <= LONGEST_HEADER and 0 < len(reply_id) <= LONGEST_HEADER
        return destination != "" and is_short and self._brand.may_reply_to(destination)


def _wanted(asked: Envelope) -> object:
    """The service that is asked for; None: any."""
    return asked.parameters.get("service") if isinstance(asked.parameters, dict) else None
