"""What is checked with clients that we did not write, which clients those are, and what they leave out."""

from __future__ import annotations

from typing import Final

VERSIONS: Final = ("1.0", "1.1", "1.2")

# What a program of a judge reports when it finds nothing wrong.
CHECKS: Final = {
    "connects": "CONNECTED names a session, and the version since 1.1",
    "receipts": "a RECEIPT comes for each SEND that asks for one, in order",
    "errors": "SUBSCRIBE with a bad `ack` gets an ERROR with reason and `receipt-id`; the connection ends",
    "auto": "a hundred messages come in order, and none is left",
    "client": "an ACK of the second of three messages leaves the third alone",
    "client-individual": "an ACK of the second of three messages leaves the others",
    "nack": "a NACKed message comes again as `redelivered`",
    "dead-letter": "a message NACKed with `requeue:false` is found in the dead-letter queue, with its reason",
    "commit": "what is sent in a transaction comes after its COMMIT, in order",
    "abort": "what is sent in a transaction never comes after its ABORT",
    "aborted-ack": "a message whose ACK was aborted is still there",
    "binary": "a body of all 256 octets comes back unchanged",
    "mebibyte": "so does one of 1 MiB",
    "headers": "a header in UTF-8 comes back unchanged, with all that the client escapes",
    "heart-beats": "a connection without a frame lives for several intervals, and hears the broker's beats",
}

# Each with the interpreter's name in the ids of the tests.
JUDGES: Final = {
    "ruby": "Ruby's stomp gem",
    "perl": "Perl's Net::Stomp",
    "php": "PHP's php-stomp",
    "java": "ActiveMQ's StompConnection",
    "node": "@stomp/stompjs over the `ws` of Node",
    "chromium": "@stomp/stompjs in Chromium",
}

_NOT_IN_1_0: Final = {
    "client-individual": "STOMP 1.0 has two ack modes",
    "nack": "STOMP 1.0 has no NACK",
    "dead-letter": "STOMP 1.0 has no NACK",
    "heart-beats": "STOMP 1.0 has no heart-beats",
}

_NOT_OFFERED_BY: Final = {
    "php": {
        "heart-beats": "php-stomp cannot write a beat, and readFrame() returns false for each that it reads"
    },
}


def not_offered(judge: str, version: str) -> dict[str, str]:
    """The checks that a judge cannot make in a version, each with the reason."""
    return (_NOT_IN_1_0 if version == "1.0" else {}) | _NOT_OFFERED_BY.get(judge, {})


def offered(judge: str, version: str) -> list[str]:
    """The checks that a judge makes in a version."""
    return [check for check in CHECKS if check not in not_offered(judge, version)]
