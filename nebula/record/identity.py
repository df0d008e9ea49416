"""Identity of a message that a broker may deliver again.

| broker | `message-id` on a second delivery | what we take |
| --- | --- | --- |
| ours | the same, also after a restart; never used again (D.20) | `message-id` |
| ActiveMQ | the same: its producer's connection, session and number | `message-id` |
| RabbitMQ | another one: it counts deliveries of a connection | the publisher's `dedup-id`, or AMQP's id |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nebula.headers import DEDUP_ID
from nebula.rpc.wire.brokers import RABBITMQ, Brand

_AMQP_ID: Final = "amqp-message-id"


def has_stable_ids(brand: Brand) -> bool:
    """Whether every message is known again; else those are, that their publisher has named."""
    return brand is not RABBITMQ


def id_of(headers: Mapping[str, str], brand: Brand) -> str:
    """What names a message on every delivery from its destination, if anything does.

    Args:
        headers: of the MESSAGE.
        brand: of the broker.
    """
    # Every broker sets it (STOMP 1.2, "MESSAGE").
    message_id = headers["message-id"]
    if has_stable_ids(brand):
        return message_id
    # The `message-id` of a second delivery differs, so such a message may be recorded twice (`lossless`).
    return headers.get(DEDUP_ID) or headers.get(_AMQP_ID) or message_id
