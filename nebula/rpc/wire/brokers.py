"""Broker brands: the headers by which each brand does the same thing. All other rpc modules know no brand."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from nebula.errors import Refused
from nebula.headers import (
    AUTO_DELETE,
    EXCLUSIVE,
    JOB_PREFIX,
    JOB_TOPIC_PREFIX,
    PREFETCH_COUNT,
    RESERVED_QUEUE_PREFIX,
    TIMEOUT,
)
from nebula.milliseconds import Milliseconds, to_seconds

# What a peer wrote into a header and we write into another may be longer there: the name is, and escapes
# may be; and a broker ends the connection over a line that is too long. In characters, of which each is
# four bytes at most; our broker takes 16 KiB a line, ActiveMQ 10.
LONGEST_HEADER: Final = 2000

_CLOCKS_APART: Final = 60.0

# Names of services have no dot, see `Responder`.
_OF_AN_INSTANCE: Final = re.compile(r"/queue/([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Brand:
    """How one brand of broker is spoken to.

    Attributes:
        prefetch_count: the header of SUBSCRIBE that says how many un-ACKed messages may be out.
        inbox_headers: of the SUBSCRIBE that makes an inbox.
        reply_to: the destination that repliers are told, from the inbox that was subscribed to.
        destinations: what a caller may name as its reply destination. These brokers end the connection over
            one that they do not know, and a caller must not be able to end a service. None: any.
        requeues_on_unsubscribe: UNSUBSCRIBE gives back what was not acked.
        durable: headers of the SUBSCRIBE that makes a durable subscription, besides ours, from its name.
        more_expiry: headers of a message that expires after a number of milliseconds, besides `neb-timeout`;
            None: there are no others.
        reply_expiry: headers of a reply whose requester waits for that many more seconds. None: what comes
            too late goes with the inbox.
        job_prefix: what the destinations begin with that jobs' statuses are told on.
        keeps_message_ids: a message has the same `message-id` whenever it is delivered, and no other one
            ever does.
    """

    prefetch_count: str = PREFETCH_COUNT
    inbox_headers: tuple[tuple[str, str], ...] = ((EXCLUSIVE, "true"), (AUTO_DELETE, "true"))
    reply_to: Callable[[str], str] = str
    destinations: re.Pattern[str] | None = None
    requeues_on_unsubscribe: bool = True
    durable: Callable[[str], dict[str, str]] = lambda _name: {}
    more_expiry: Callable[[Milliseconds], dict[str, str]] | None = None
    reply_expiry: Callable[[float], dict[str, str]] | None = None
    job_prefix: str = JOB_TOPIC_PREFIX
    keeps_message_ids: bool = False

    def durable_headers(self, name: str | None) -> dict[str, str]:
        """Headers of a SUBSCRIBE, besides ours; the name is None where it is not durable."""
        return {} if name is None else self.durable(name)

    def expiry(self, milliseconds: Milliseconds) -> dict[str, str]:
        """Headers of a message that expires after a number of milliseconds."""
        headers = {TIMEOUT: str(milliseconds)}
        return headers if self.more_expiry is None else headers | self.more_expiry(milliseconds)

    @property
    def has_last_values(self) -> bool:
        """There are destinations that keep their last message, and jobs' statuses are told on such."""
        return self.job_prefix == JOB_PREFIX

    @property
    def has_verbs(self) -> bool:
        """The broker has a service of its own, which knows schemas."""
        return self.has_last_values

    def may_reply_to(self, destination: str) -> bool:
        """Whether a reply may be sent there."""
        return self.destinations is None or self.destinations.fullmatch(destination) is not None

    def service_of(self, destination: str) -> str | None:
        """The service whose instance alone listens there, as it tells its callers; None: it is no such queue.

        A peer may name any destination as its own. Only names of this form are believed: no topic, inbox or
        queue of a service as such. Another queue whose name has a dot may be meant all the same; what it can
        get by this is empty objects.
        """
        plain = "/queue/" + destination.rpartition("/")[2]
        found = _OF_AN_INSTANCE.fullmatch(plain)
        if found is None or plain.startswith(RESERVED_QUEUE_PREFIX):
            return None
        return found[1] if destination in (plain, self.reply_to(plain)) else None


def _under_amq(inbox: str) -> str:
    # A SEND to /queue/… declares the queue anew, with other properties than an inbox has, and RabbitMQ
    # ends the connection over it. Under /amq/queue/… it sends to what is there.
    return inbox.replace("/queue/", "/amq/queue/", 1)


def _expiration(milliseconds: Milliseconds) -> dict[str, str]:
    return {"expiration": str(milliseconds)}


def _expires(milliseconds: Milliseconds) -> dict[str, str]:
    # By the wall clock, which client and broker may not share: for a call it is the best there is.
    return {"expires": str(int(time.time() * 1000) + round(to_seconds(milliseconds) * 1000))}


def _expires_later(seconds: float) -> dict[str, str]:
    # Only so that it does not stay for ever: no reply must be lost over two clocks.
    return {"expires": str(int((time.time() + seconds + _CLOCKS_APART) * 1000))}


NEBULA = Brand(job_prefix=JOB_PREFIX, keeps_message_ids=True)
OTHER = Brand()
# Its UNSUBSCRIBE leaves what was not acked with the connection, where no consumer can get it. Its message-id
# names a delivery, and not the message.
RABBITMQ = Brand(
    reply_to=_under_amq,
    destinations=re.compile(r"/(queue|topic|amq/queue|reply-queue)/[^/]+"),
    requeues_on_unsubscribe=False,
    # The queue behind a topic's subscription goes with its connection, durable or not, unless it is told.
    durable=lambda _name: {AUTO_DELETE: "false"},
    more_expiry=_expiration,
)
ACTIVEMQ = Brand(
    prefetch_count="activemq.prefetchSize",
    inbox_headers=(("activemq.exclusive", "true"),),
    destinations=re.compile(r"/(queue|topic|(remote-)?temp-(queue|topic))/.+"),
    durable=lambda name: {"activemq.subscriptionName": name},
    more_expiry=_expires,
    reply_expiry=_expires_later,
    keeps_message_ids=True,
)


def brand_of(server: str | None) -> Brand:
    """The brand, by CONNECTED's `server` header.

    An unknown broker is used like ours, except that it need not have last values. A broker that does not
    say its name may be ours: MaXaM's profile has no such header.
    """
    name = (server or "nebula").partition("/")[0]
    return {"nebula": NEBULA, "RabbitMQ": RABBITMQ, "ActiveMQ": ACTIVEMQ}.get(name, OTHER)


def is_last_value(destination: str) -> bool:
    """Whether a destination is one of those that keep their last message, `X/…` by default."""
    return not destination.startswith("/") and "/" in destination


def no_last_values(destination: str, server: str | None) -> Refused:
    """The error over a last value where the broker keeps none: such a name may be a queue to it."""
    return Refused("no-last-values", f"{destination}: {server or 'this broker'} keeps none; ours does")


def instance_queue(service: str, instance: str) -> str:
    """The queue of one instance of a service, which it alone listens to."""
    return f"/queue/{service}.{instance}"
