"""Words that a fuzzer would take long to find: libFuzzer's dictionary."""

from __future__ import annotations

from nebula import headers
from nebula.avro.envelope import encode_envelope, make_envelope
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS
from tests.broker.browser import UPGRADE

_STOMP = [
    *("accept-version:1.0,1.1,1.2", "host:h", "heart-beat:0,0", "version:1.2", "id:s", "ack:client"),
    *("ack:client-individual", "ack:auto", "destination:/queue/a", "destination:/topic/t", "message-id:m-1"),
    *("destination:X/a", "destination:X/**", "content-length:", "transaction:t", "receipt:r", "selector:"),
    *(f"destination:/queue/{first}x" for first in "ptdlc"),
    *("destination:X/cx", "destination:/topic/sx", "destination:/queue/record", "destination:/queue/DLQ"),
    *("\n\n\0", "\r\n", "\\c", "\\n", "\\r", "\\\\", ":true", ":false", "id:s m-1", "login:", "passcode:"),
]
_BODIES = ["application/json", "text/plain", "charset=", "utf-16", "unicode_escape", '"verb":', "parameters"]
_AVRO = [
    *('{"type":"record","name":"', '"fields":[', '{"type":"array","items":', '{"type":"map","values":'),
    *('{"type":"enum","name":"', '"symbols":[', '{"type":"fixed","name":"', '"size":', '"logicalType":"'),
    *('"decimal"', '"precision":', '"scale":', '"uuid"', '"date"', '"duration"', '"default":', '"aliases":['),
    *(
        '"null"',
        '"boolean"',
        '"int"',
        '"long"',
        '"float"',
        '"double"',
        '"bytes"',
        '"string"',
        '"namespace":"',
    ),
]


def dictionary() -> str:
    """One word a line, as libFuzzer reads them."""
    ours = [value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)]
    http = [f"{name}: {value}\r\n" for name, value in UPGRADE.items()]
    texts = [
        *CLIENT_COMMANDS,
        *SERVER_COMMANDS,
        *_STOMP,
        *_AVRO,
        *_BODIES,
        *http,
        *(f"{name}:" for name in ours),
    ]
    words = [*(text.encode() for text in texts), encode_envelope(make_envelope(is_tombstone=True))]
    return "".join('"' + "".join(f"\\x{octet:02x}" for octet in word) + '"\n' for word in words)
