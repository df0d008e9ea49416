"""What has to hold at closing time, when nothing is under way any more (F.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from services.venue.bodies import Bodies
from services.venue.invariants import Accepted, stale, unreconciled
from services.venue.ledger import Ledger, Movement
from services.venue.reader import Reader
from services.venue.report import Check
from services.venue.topics import Topic, gmid_of, topic_of

# A slow reader is one that gets a fraction of what is published.
_CONFLATION: Final = 4


def missed(reader: Reader, accepted: Accepted) -> list[str]:
    """Where a reader's last value is not the last that was accepted, on the topics that it reads."""
    # The simulator does not record what other clients publish, such as the desired games.
    topics = {topic for topic in reader.topics if accepted.counts[topic]}
    return stale(_of(topics, reader.values), _of(topics, accepted.values))


def meters_rise(readers: Mapping[str, Reader]) -> Check:
    """Per machine, turnover and wins never fall except when `resetDateTime` changes."""
    seen = sum(reader.rising.seen for reader in readers.values())
    breaches = [f"{name}: {breach}" for name, reader in readers.items() for breach in reader.rising.breaches]
    return Check("meters fall at a RAM clear and never else", f"{seen:,} readings", breaches)


def books_agree(auditor: Reader, ledger: Ledger, machines: int) -> Check:
    """Credits less debits, machine by machine, are the ledger's."""
    readings = auditor.readings
    breaches = unreconciled(readings, ledger)
    if len(readings) != machines:
        breaches.append(f"the auditor knows {len(readings)} of {machines} machines")
    net = sum(reading.net for reading in readings.values())
    return Check(
        "the auditor's totals reconcile with the ledger",
        f"{len(readings)} machines, net {net:,} cents",
        breaches,
    )


def last_values_arrived(readers: Mapping[str, Reader], accepted: Accepted) -> Check:
    """For every reader, the last value delivered for each key is the last one that was accepted."""
    breaches = [
        f"{name}: {breach}" for name, reader in readers.items() for breach in missed(reader, accepted)
    ]
    evidence = f"{len(accepted.values)} destinations, {len(readers)} readers"
    return Check("the last value delivered is the last accepted", evidence, breaches)


def slow_reader_is_spared(slow: Reader, accepted: Accepted) -> Check:
    """It got the latest values in place of all values."""
    published = accepted.counts[Topic.METERS]
    breaches = []
    if slow.received * _CONFLATION > published:
        breaches.append(f"it received {slow.received:,} of {published:,} readings")
    return Check(
        "a slow reader gets the latest value, not each", f"{slow.received:,} of {published:,}", breaches
    )


def removals_were_told(auditor: Reader, destinations: Sequence[str]) -> Check:
    """When the auditor came back, it learned which destinations were removed while it was away."""
    breaches = [f"{one}: no word of it" for one in destinations if one not in auditor.gone]
    return Check(
        "a reader that was away learns what was removed", f"{len(destinations)} removed games", breaches
    )


def desire_was_followed(auditor: Reader, bodies: Bodies, detected: str) -> Check:
    """A game whose desired configuration was removed is found with all denominations off."""
    record = bodies.decode(auditor.values.get(detected, b""))
    is_off = record is not None and not record["activeDenoms"] and record["disabledDenoms"]
    breaches = [] if is_off else [f"{detected} is still offered"]
    return Check("a game that is not desired is switched off", f"on {gmid_of(detected)}", breaches)


def turnover_is_the_ledgers(answered: int, ledger: Ledger, gmids: Sequence[str]) -> Check:
    """What the service answers from the state store is what the house wrote down."""
    due = sum(ledger.total(gmid, Movement.BET) for gmid in gmids)
    breaches = [] if answered == due else [f"the service said {answered:,} cents, the ledger {due:,}"]
    return Check("the service's turnover is the ledger's", f"{answered:,} cents", breaches)


def _of(topics: set[Topic], values: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: body for name, body in values.items() if topic_of(name) in topics}
