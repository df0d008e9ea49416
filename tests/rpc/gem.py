"""Frames of the gem NebulousStomp 3.1.0, byte by byte (C.4); braces are filled in.

`{session}_{time}` is the gem's reply id. The stomp gem puts length and type on every frame.
"""

from __future__ import annotations

from typing import Final

_EMPTY: Final = "content-length:0\ncontent-type:text/plain; charset=UTF-8\n\n\0"

REPLY_ID: Final = "{session}_1795165882.3711545"

CONNECT: Final = f"CONNECT\nlogin:guest\npasscode:guest\n{_EMPTY}"
REQUEST: Final = (
    f"SEND\ncontent-type:{{content_type}}\nneb-reply-id:{REPLY_ID}\nneb-reply-to:{{replies}}\n"
    "destination:{queue}\ncontent-length:{length}\n\n{body}\0"
)
REPLY: Final = (
    "SEND\ncontent-type:{content_type}\nneb-in-reply-to:{reply_id}\n"
    "destination:{reply_to}\ncontent-length:{length}\n\n{body}\0"
)
BOO: Final = "SEND\ndestination:{queue}\ncontent-length:3\ncontent-type:text/plain; charset=UTF-8\n\nboo\0"
SUBSCRIBE: Final = f"SUBSCRIBE\nack:client-individual\ndestination:{{queue}}\n{_EMPTY}"
ACK: Final = f"ACK\nmessage-id:{{message_id}}\n{_EMPTY}"
UNSUBSCRIBE: Final = f"UNSUBSCRIBE\ndestination:{{queue}}\n{_EMPTY}"
DISCONNECT: Final = f"DISCONNECT\n{_EMPTY}"

# Since 1.1 its requester names its subscription, and ACKs by that or by the `ack` of the MESSAGE.
CONNECT_SINCE_1_1: Final = (
    "CONNECT\naccept-version:{version}\nhost:localhost\nlogin:guest\npasscode:guest\n" + _EMPTY
)
SUBSCRIBE_SINCE_1_1: Final = f"SUBSCRIBE\nack:client-individual\nid:{{id}}\ndestination:{{queue}}\n{_EMPTY}"
ACK_1_1: Final = f"ACK\nsubscription:{{id}}\nmessage-id:{{message_id}}\n{_EMPTY}"
ACK_1_2: Final = f"ACK\nid:{{ack}}\n{_EMPTY}"
UNSUBSCRIBE_SINCE_1_1: Final = f"UNSUBSCRIBE\nid:{{id}}\ndestination:{{queue}}\n{_EMPTY}"
