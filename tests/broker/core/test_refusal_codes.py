"""The codes of what the core refuses. Peers read only the text, so the codes are read as they are made."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.errors import Refused
from nebula.headers import INBOX_PREFIX
from tests.broker.harness import BrokerHarness

CONNECT = "CONNECT accept-version:1.2; host:h"
DURABLE = (
    "CONNECT accept-version:1.2; host:h; client-id:{}",
    "SUBSCRIBE id:s; destination:/topic/a; durable:true",
)

# By code: the limits of the broker, and what each peer says, one after the other. The last frame is too much.
REFUSED: dict[str, tuple[Limits, list[list[str]]]] = {
    "too-many-connections": (
        Limits(max_connections=1, max_connections_per_address=1),
        [[CONNECT], [CONNECT]],
    ),
    "too-many-destinations": (
        Limits(max_destinations=1),
        [[CONNECT, "SUBSCRIBE id:1; destination:/queue/a", "SUBSCRIBE id:2; destination:/queue/b"]],
    ),
    "too-many-globs": (
        Limits(max_globs=1),
        [[CONNECT, "SUBSCRIBE id:1; destination:/topic/a*", "SUBSCRIBE id:2; destination:/topic/b*"]],
    ),
    "too-many-sessions": (
        Limits(max_durable_sessions=1),
        [[frame.format(name) for frame in DURABLE] for name in "ab"],
    ),
    "too-many-subscriptions": (
        Limits(max_subscriptions_in_all=1),
        [
            [CONNECT, "SUBSCRIBE id:1; destination:/topic/a"],
            [CONNECT, "SUBSCRIBE id:1; destination:/topic/a"],
        ],
    ),
    "too-many-inboxes": (
        Limits(max_inboxes=1),
        [
            [
                CONNECT,
                f"SUBSCRIBE id:1; destination:{INBOX_PREFIX}1; exclusive:true",
                f"SUBSCRIBE id:2; destination:{INBOX_PREFIX}2; exclusive:true",
            ]
        ],
    ),
    "exclusive": (
        Limits(),
        [
            [CONNECT, "SUBSCRIBE id:1; destination:/queue/a; exclusive:true"],
            [CONNECT, "SUBSCRIBE id:1; destination:/queue/a"],
        ],
    ),
    "glob": (Limits(), [[CONNECT, "SUBSCRIBE id:1; destination:/topic/[a"]]),
    "transaction": (Limits(), [[CONNECT, "BEGIN transaction:t", "BEGIN transaction:t"]]),
}


@pytest.mark.parametrize("code", REFUSED)
def test_refusal_has_its_code(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Refused] = []
    begin = Refused.__init__

    def note(error: Refused, code: str, detail: str) -> None:
        begin(error, code, detail)
        made.append(error)

    monkeypatch.setattr(Refused, "__init__", note)
    limits, peers = REFUSED[code]
    broker = BrokerHarness(limits)
    for frames in peers:
        assert made == []
        peer = broker.accept()
        peer.say(*frames)

    ((command, headers, *_),) = [frame for frame in peer.received() if frame[0] != "CONNECTED"]
    assert [error.code for error in made] == [code]
    assert (command, headers["message"]) == ("ERROR", made[0].detail)
