"""The venue's service: verbs over the state store, for those who speak Nebulous and no Avro.

NEBULA_BROKER=stomp://LOGIN:PASSCODE@127.0.0.1:61613 nebula run services.venue.app:app

It keeps nothing: each request reads the present values from the store. Money is in cents.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from nebula import Client, Depends, Responder, VerbError, lifespan_state
from services.venue.bodies import AVRO, Bodies, tombstone
from services.venue.controller import Update
from services.venue.invariants import Reading
from services.venue.records import Record
from services.venue.store import read_values
from services.venue.topics import Topic, game_topic, gmid_of, machine_topic

# All requests read the store over one connection, in addition to the service's own.
app = Responder("venue", lifespan=Client)

# They become parts of globs, where an asterisk would name every machine.
Gmid = Annotated[str, Field(pattern=r"^\w+$")]
GameId = Annotated[str, Field(pattern=r"^\w+:\w+$")]


@cache
def _bodies() -> Bodies:
    return Bodies()


class MachineMeters(BaseModel):
    """The latest reading of one machine: cents since its last RAM clear, times in ms since the epoch."""

    gmid: str
    wins: int
    turnover: int
    credits: int
    debits: int
    reset_at: int | None
    updated_at: int


class Machines(BaseModel):
    """A range of machines, both ends included; an end that is left out is open."""

    model_config = ConfigDict(extra="forbid")

    first: str = Field(default="", alias="from")
    last: str | None = Field(default=None, alias="to")

    def has(self, gmid: str) -> bool:
        """Whether a machine is in it."""
        return self.first <= gmid and (self.last is None or gmid <= self.last)


@app.verb
async def meters(gmid: Gmid, *, store: Client = Depends(lifespan_state)) -> MachineMeters:
    """The latest reading of a machine."""
    readings = await _readings(store, gmid)
    if not readings:
        raise VerbError("not-found", f"no machine {gmid!r} has published a reading")
    return MachineMeters.model_validate(readings[0], from_attributes=True)


@app.verb
async def turnover(machines: Machines, *, store: Client = Depends(lifespan_state)) -> int:
    """All money bet on a range of machines since their last RAM clear."""
    readings = await _readings(store, "*")
    return sum(reading.turnover for reading in readings if machines.has(reading.gmid))


@app.verb
async def enable(gmid: Gmid, game: GameId, *, store: Client = Depends(lifespan_state)) -> None:
    """Have a machine offer a game.

    Answered when the desire is written down; the machine follows later, as its detected configuration tells.
    """
    destination, detected = await _detected(store, gmid, game)
    supported = sorted({*detected["activeDenoms"], *detected["disabledDenoms"]})
    desired = {name: value for name, value in detected.items() if name != "disabledDenoms"}
    update = Update(destination, Topic.GAME_DESIRED, {**desired, "activeDenoms": supported})
    body = _bodies().encode(update, time.time_ns() // 1_000_000)
    await app.publish(destination, body, headers=AVRO)


@app.verb
async def disable(gmid: Gmid, game: GameId, *, store: Client = Depends(lifespan_state)) -> None:
    """Have a machine offer a game no longer; answered as `enable` is."""
    destination, _ = await _detected(store, gmid, game)
    await app.publish(destination, tombstone(destination), headers=AVRO)


async def _readings(store: Client, gmid: str) -> list[Reading]:
    found = await _records(store, machine_topic("*", gmid, Topic.METERS))
    return [Reading.of(gmid_of(destination), record) for destination, record in found.items()]


async def _detected(store: Client, gmid: str, game: str) -> tuple[str, Record]:
    """Where the desired configuration of a game goes, and what the game was found to be."""
    found = await _records(store, game_topic("*", gmid, game, Topic.GAME_DETECTED))
    for destination, record in found.items():
        return destination.replace(Topic.GAME_DETECTED, Topic.GAME_DESIRED), record
    raise VerbError("not-found", f"machine {gmid} has no game {game}")


async def _records(store: Client, pattern: str) -> dict[str, Record]:
    values = await read_values(store, pattern)
    records = ((destination, _bodies().decode(body)) for destination, body in values.items())
    return {destination: record for destination, record in records if record is not None}
