"""The venue's destinations: which exist, what they carry, and what their keys are (F.2, B.6)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Protocol(StrEnum):
    """What a machine speaks to its site controller; the letter in its destinations."""

    X_STANDARD = "X"
    QCOM = "Q"
    G2S = "G"


class Topic(StrEnum):
    """What an entity publishes; the last word of a destination."""

    METERS = "EGMMeterReading"
    GAME_PLAY = "EGMMeteredGamePlay"
    STATUS = "EGMStatus"
    DETECTED = "EGMDetectedConfig"
    DESIRED = "EGMDesiredConfig"
    JACKPOT = "EGMJackpotGroupMeterReading"
    CONTRIBUTION = "EGMJackpotContributorMeterReading"
    GAME_DETECTED = "GameDetectedConfig"
    GAME_DESIRED = "GameDesiredConfig"


# The state store of a site controller. It is not part of the key.
_STORE: Final = "X/"

_OF_GAMES: Final = frozenset({Topic.GAME_DETECTED, Topic.GAME_DESIRED})

SCHEMAS: Final = {
    topic: f"egm.games.{topic}_v2" if topic in _OF_GAMES else f"egm.{topic}_v1" for topic in Topic
}
"""The Avro type that each topic carries, with its major version: a minor one may move (B.9)."""


def machine_topic(protocol: str, gmid: str, topic: Topic) -> str:
    """The destination of a machine's own topic; `*` for a part makes it a glob."""
    return f"{_STORE}EGM.{protocol}.{gmid}.{topic}"


def game_topic(protocol: str, gmid: str, game: str, topic: Topic) -> str:
    """The destination of a topic of one game, `<theme>:<paytable>`, on a machine."""
    return f"{_STORE}EGM.{protocol}.{gmid}.Game.{game}.{topic}"


def pattern_of(topic: Topic) -> str:
    """The glob of all destinations of a topic."""
    return game_topic("*", "*", "*", topic) if topic in _OF_GAMES else machine_topic("*", "*", topic)


def topic_of(destination: str) -> Topic:
    """What a destination of the venue carries.

    Raises:
        ValueError: it is none of the venue's.
    """
    return Topic(destination.rpartition(".")[2])


def key_of(destination: str) -> str:
    """The key of a destination in the state store: without the protocol's letter.

    A machine has one protocol at a time. When its interface is replaced the letter changes, the key
    does not, and the store tells the readers of the old destination that it is gone (D.30).
    """
    entity, _, gmid_and_more = destination.removeprefix(_STORE).split(".", 2)
    return f"{entity}.{gmid_and_more}"


def gmid_of(destination: str) -> str:
    """The machine that a destination is about."""
    return destination.split(".", 3)[2]


def game_of(destination: str) -> str:
    """The game that a destination is about.

    Raises:
        ValueError: it is about a machine as a whole.
    """
    _, found, game_and_topic = destination.partition(".Game.")
    if not found:
        raise ValueError(f"{destination} names no game")
    return game_and_topic.rpartition(".")[0]
