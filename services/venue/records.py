"""What a site controller publishes of a machine, as Avro records (F.3)."""

from __future__ import annotations

from typing import Any, Final

from services.venue.model import Game, Link, Machine
from services.venue.topics import Protocol

Record = dict[str, Any]
"""A value of a schema, as fastavro reads and writes it."""

_VENUE: Final = "NSW-0042"
_CONTROLLER: Final = "SC-01"
_MAKER: Final = "07"


def meter_reading(machine: Machine, now: int) -> Record:
    """`EGMMeterReading`: all meters. (Sparse updates are allowed, and a last value cannot be their union.)"""
    meters = machine.meters
    groups = {
        "FundsIn": {
            "Debit": {"NonElectronic": meters.cash_in, "Electronic": meters.electronic_in},
            "Auxiliary": {"NotesAccepted": None},
        },
        "FundsOut": {"Credit": {"CancelCredit": meters.cancel_credit, "Ticket": meters.ticket_out}},
        "Game": {"Credit": {"Wins": meters.wins}, "Debit": {"Turnover": meters.turnover}},
    }
    # The three are structurally alike, so the branch of the union is named.
    branch = f"egm.{machine.protocol}EGMMeters_v1"
    return {
        "from": _state_base(machine, now),
        "meters": {"protocol": (branch, groups)},
        "resetDateTime": machine.reset_at,
    }


def status(machine: Machine, now: int) -> Record:
    """`EGMStatus`: an open door puts the machine out of play."""
    return {
        "from": _state_base(machine, now),
        "faults": {"memory": False, "hopper": False, "printer": False},
        "doors": {"mainOpen": machine.is_door_open, "cashBoxOpen": False, "logicOpen": False},
        "gamePlay": {"inPlay": machine.balance > 0 and not machine.is_door_open},
        "lockupConditions": {"cancelCredit": False},
        "disablingConditions": {
            "doorOpen": machine.is_door_open,
            "fault": False,
            "bySystem": not machine.offered(),
        },
        "egmCommunications": {"online": True},
        "system": {"siteControllerOnline": True},
        "interface": {"connected": True},
    }


def detected_config(machine: Machine, now: int) -> Record:
    """`EGMDetectedConfig`: how the machine is equipped."""
    known = {"model": ""}
    return {
        "from": _state_base(machine, now),
        "egmConfig": {
            "comms": {"protocol": machine.protocol, "version": ""},
            "coinAcceptor": None,
            "noteAcceptor": known,
            "hopper": None,
            "ticketPrinter": known,
        },
    }


def game_detected(machine: Machine, game: Game, now: int) -> Record:
    """`GameDetectedConfig`: a game as it is found; each denomination is in one list only."""
    denominations = list(game.denominations)
    is_off = game.id in machine.disabled
    return {
        **_game(machine, game, now),
        "activeDenoms": [] if is_off else denominations,
        "disabledDenoms": denominations if is_off else [],
    }


def jackpot_reading(machine: Machine, link: Link, machines: int, now: int) -> Record:
    """`EGMJackpotGroupMeterReading` of a link: `machine` hosts it for `machines` machines."""
    level = {
        "levelNumber": 1,
        "displayValueGauge": link.shown,
        "currentValueGauge": link.current,
        "hitsCounter": link.hits,
        "winsMeter": link.wins,
        "positiveAdjustmentsMeter": 0,
        "negativeAdjustmentsMeter": 0,
    }
    return {
        "from": _state_base(machine, now),
        "meters": {"machinesCommunicating": machines, "machinesNotCommunicating": 0, "levels": [level]},
    }


def _game(machine: Machine, game: Game, now: int) -> Record:
    return {
        "from": _state_base(machine, now),
        "gameId": game.id,
        "theme": game.theme,
        "rateReturn": game.rate_return,
        "payTable": game.paytable,
        "centsDenomination": None,
    }


def _state_base(machine: Machine, now: int) -> Record:
    """`EGMStateBase`: each protocol has its own names for the interface and the cabinet."""
    number = machine.number
    interface, electronic_id, maker = {
        Protocol.X_STANDARD: (f"GMIC{number}", machine.gmid, ""),
        Protocol.QCOM: (f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", f"{number:08}", _MAKER),
        Protocol.G2S: (f"NEB_{number}", str(number), ""),
    }[machine.protocol]
    return {
        "venueId": _VENUE,
        "scId": _CONTROLLER,
        "interfaceId": interface,
        "egmElectronicId": electronic_id,
        "manufacturerId": maker,
        "floorPosition": machine.position,
        "updatedTime": now,
    }
