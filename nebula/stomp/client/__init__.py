"""A client for any STOMP broker, on asyncio and trio. I/O: sockets, TLS, WebSockets, clocks and files.

The protocol that it carries is `nebula.stomp.client_protocol`, which does no I/O.
"""

from nebula.stomp.client.messages import AckMode, Message, PushSubscription, Receipt
from nebula.stomp.client.stomp_client import StompClient
from nebula.stomp.client.subscription import Subscription
from nebula.stomp.client.transaction import Transaction

__all__ = ["AckMode", "Message", "PushSubscription", "Receipt", "StompClient", "Subscription", "Transaction"]
