"""What the venue's broker is given at start: each identity may do what MAX API grants it, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.broker.core.access import AccessPolicy, Rights
from nebula.broker.server.rights_files import load_grants
from nebula.broker.settings import load_broker_settings
from services.venue.site import Doors, Login, Site, Who, make_site
from services.venue.topics import SCHEMAS, Protocol, Topic, game_topic, machine_topic

_STATUS = machine_topic(Protocol.QCOM, "GM000101", Topic.STATUS)
_METERS = machine_topic(Protocol.QCOM, "GM000101", Topic.METERS)
_DESIRED = game_topic(Protocol.QCOM, "GM000101", "1A01:02", Topic.GAME_DESIRED)
_DETECTED = game_topic(Protocol.QCOM, "GM000101", "1A01:02", Topic.GAME_DETECTED)
_REQUESTS = "/queue/venue"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("venue"))


@pytest.fixture(scope="module")
def access(site: Site) -> AccessPolicy:
    settings = load_broker_settings(site.settings).value
    assert settings.rights is not None
    return AccessPolicy(load_grants(settings.rights))


def rights_of(access: AccessPolicy, site: Site, who: Who | Login) -> Rights:
    return access.rights_of(site.fingerprints[who] if isinstance(who, Who) else who)


@pytest.mark.parametrize(
    ("who", "destinations"),
    [
        (Who.SIMULATOR, {_STATUS, _METERS, _DETECTED}),
        (Who.DASHBOARD, set()),
        (Who.AUDITOR, set()),
        (Who.INTRUDER, set()),
        (Login.SERVICE, {_DESIRED}),
        (Login.GUEST, {_REQUESTS}),
    ],
)
def test_identity_may_publish_what_its_capabilities_say(
    site: Site, access: AccessPolicy, who: Who | Login, destinations: set[str]
) -> None:
    rights = rights_of(access, site, who)

    every = {_STATUS, _METERS, _DETECTED, _DESIRED, _REQUESTS}
    assert {one for one in every if rights.may_publish(one)} == destinations


@pytest.mark.parametrize(
    ("who", "destinations"),
    [
        (Who.SIMULATOR, {_STATUS, _METERS, _DETECTED, _DESIRED}),
        (Who.DASHBOARD, {_STATUS, _METERS, _DETECTED, _DESIRED}),
        (Who.AUDITOR, {_STATUS, _METERS, _DETECTED, _DESIRED}),
        (Who.INTRUDER, set()),
        (Login.SERVICE, {_STATUS, _METERS, _DETECTED, _DESIRED, _REQUESTS}),
        (Login.GUEST, set()),
    ],
)
def test_identity_may_receive_what_its_capabilities_say(
    site: Site, access: AccessPolicy, who: Who | Login, destinations: set[str]
) -> None:
    rights = rights_of(access, site, who)

    every = {_STATUS, _METERS, _DETECTED, _DESIRED, _REQUESTS}
    assert {one for one in every if rights.may_receive(one)} == destinations


def test_intruder_may_publish_its_own_status_and_nobody_elses(site: Site, access: AccessPolicy) -> None:
    doors = Doors(site, "stomps://127.0.0.1:1", "stomp://127.0.0.1:2")
    intruder = rights_of(access, site, Who.INTRUDER)

    assert intruder.may_publish(doors.own_status_of(Who.INTRUDER))
    assert not intruder.may_publish(doors.own_status_of(Who.AUDITOR))


def test_each_topic_is_bound_to_its_schema(site: Site) -> None:
    settings = load_broker_settings(site.settings).value

    assert {one.avro for one in settings.destination} == set(SCHEMAS.values())


def test_private_keys_are_their_owners_alone(site: Site) -> None:
    keys = list(site.folder.glob("*.key"))

    assert {key.stem for key in keys} == {"ca", "server", *Who}
    assert {key.stat().st_mode & 0o077 for key in keys} == {0}


def test_doors_tell_the_two_listeners_apart_and_give_logins_their_passcodes(site: Site) -> None:
    doors = Doors.of(site, ["stomp://127.0.0.1:2", "stomps://127.0.0.1:1"])

    passcode = site.passcodes[Login.GUEST]
    assert (doors.maxam, doors.standard) == ("stomps://127.0.0.1:1", "stomp://127.0.0.1:2")
    assert doors.url_of(Login.GUEST) == f"stomp://guest:{passcode}@127.0.0.1:2"
    assert passcode not in Path(site.folder / "users.toml").read_text()
