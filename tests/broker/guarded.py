"""A small world with rights, for the tests of those who would like to have more."""

from __future__ import annotations

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.profiles import STANDARD, Profile
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

INBOX = "/queue/nebula.inbox.alice"
IGNORED: Received = ("RECEIPT", {"receipt-id": "r", "result": "ignored"})
SUBSCRIBED: Received = ("RECEIPT", {"receipt-id": "r"})
PRIVATE = ["/queue/alice.1", "/topic/alice.1", "X/alice.1"]
ACCEPTED, UNAUTHORISED = "accepted", "rejected-unauthorised"

CAPABILITIES = {
    "own": Capability(
        publish=("*/{identity}.*", "/*/{identity}.*"), subscribe=("*/{identity}.*", "/*/{identity}.*")
    ),
    "public": Capability(
        publish=("/topic/public.*", "X/public.*"), subscribe=("/topic/public.*", "X/public.*")
    ),
    "auditor": Capability(subscribe=("/topic/**", "X/**", "/queue/**")),
    "asks prices": Capability(publish=("/queue/prices",)),
    "is prices": Capability(subscribe=("/queue/prices",)),
}
EVERYBODY = {
    "alice": ("own", "public", "asks prices"),
    "mallory": ("own", "public", "asks prices"),
    "bob": ("is prices",),
    "audrey": ("auditor",),
}


def grants(**changes: tuple[str, ...]) -> Grants:
    """Everybody's capabilities, with these changes."""
    return Grants(CAPABILITIES, {**EVERYBODY, **changes})


def connect(broker: BrokerHarness, who: str, *, profile: Profile = STANDARD, client_id: str = "") -> Peer:
    return broker.connect(principal=who, profile=profile, heart_beat="10000,10000", client_id=client_id)


def verdict(peer: Peer, destination: str, *headers: str) -> str:
    """What a SEND there is answered with."""
    peer.publish(destination, "intrusion", headers=[*headers, "receipt:sent"])
    (answer,) = (frame[1] for frame in peer.received() if frame[1].get("receipt-id") == "sent")
    return answer["disposition"]


def review(broker: BrokerHarness, **changes: tuple[str, ...]) -> None:
    """Reload the rights."""
    broker.broker.review(grants(**changes), broker.now)
    broker.settle()
