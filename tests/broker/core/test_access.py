"""What each principal may do: grants, the implied rights of every configuration, and what is reserved."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.broker.core.access import (
    BROKERS_OWN,
    FREE_VERBS,
    AccessPolicy,
    Capability,
    Grants,
    Rights,
    check_grant,
)

INBOX = "/queue/nebula.inbox.5f0c"


def granted(
    *,
    publish: tuple[str, ...] = (),
    subscribe: tuple[str, ...] = (),
    call: tuple[str, ...] = (),
    principal: str = "alice",
) -> Rights:
    capability = Capability(publish=publish, subscribe=subscribe, call=call)
    return AccessPolicy(Grants({"Only": capability}, {principal: ("Only",)})).rights_of(principal)


def of_stranger() -> Rights:
    """Somebody whom the rights do not name."""
    return AccessPolicy(Grants({}, {})).rights_of("mallory")


def of_caller() -> Rights:
    return granted(publish=("/queue/flights",))


def of_server() -> Rights:
    return granted(subscribe=("/queue/flights",))


def of_administrator() -> Rights:
    return granted(publish=("**",), subscribe=("**",), call=("*",))


def of_anybody() -> Rights:
    """Somebody where no rights are configured."""
    return AccessPolicy().rights_of("anonymous")


def of_broker() -> Rights:
    return AccessPolicy(Grants({}, {})).rights_of(BROKERS_OWN)


# What follows from `/queue/flights`, for its caller: whether it may publish there, and subscribe.
FOR_A_CALLER = [
    ("/queue/flights", True, False),
    ("/queue/flights.i1", True, False),
    ("/queue/flights.", True, False),
    ("/queue/flights.i1/x", False, False),
    ("/queue/flightsx", False, False),
    ("/queue/flight", False, False),
    ("/queue/.i1", False, False),
    ("/topic/nebula.cancel.flights", True, False),
    ("/topic/nebula.cancel.other", False, False),
    ("/topic/nebula.cancel.", False, False),
    ("/topic/nebula.cancelled", False, False),
    ("X/jobs.flights.01J", False, True),
    ("/topic/jobs.flights.01J", False, True),
    ("X/jobs.flights", False, False),
    ("X/jobs.other.01J", False, False),
    ("X/jobs.flightsx.01J", False, False),
    ("X/jobs..01J", False, False),
    ("X/nebula.services.flights.i1", False, True),
    ("/topic/nebula.services.flights.i1", False, True),
    ("X/nebula.services.flights", False, False),
    ("X/nebula.services.other.i1", False, False),
    ("X/nebula.services.flights.i1/x", False, False),
    ("flights", False, False),
    ("/topic/flights", False, False),
]


@pytest.mark.parametrize(("destination", "publish", "subscribe"), FOR_A_CALLER)
def test_who_may_publish_to_a_service_may_do_what_its_callers_need(
    destination: str, publish: bool, subscribe: bool
) -> None:
    rights = of_caller()

    assert (rights.may_publish(destination), rights.may_subscribe(destination)) == (publish, subscribe)


@pytest.mark.parametrize(("destination", "publish", "subscribe"), FOR_A_CALLER)
def test_who_may_subscribe_to_a_service_stands_at_the_other_end_of_each(
    destination: str, publish: bool, subscribe: bool
) -> None:
    rights = of_server()

    assert (rights.may_publish(destination), rights.may_subscribe(destination)) == (subscribe, publish)


def test_instance_queue_opens_neither_its_service_nor_its_neighbour() -> None:
    rights = granted(publish=("/queue/flights.i1",), subscribe=("/queue/trains.i1",))

    assert rights.may_publish("/queue/flights.i1")
    assert rights.may_subscribe("/queue/trains.i1")
    assert not rights.may_publish("/queue/flights")
    assert not rights.may_publish("/queue/flights.i2")
    assert not rights.may_publish("/topic/nebula.cancel.flights")
    assert not rights.may_subscribe("X/jobs.flights.01J")
    assert not rights.may_publish("X/jobs.trains.01J")


def test_service_has_a_name() -> None:
    assert not granted(publish=("/queue/",)).may_publish("/queue/.i1")


def test_rights_to_a_service_are_implied_by_a_glob_that_covers_it() -> None:
    rights = granted(publish=("/queue/f*",))

    assert rights.may_subscribe("X/nebula.services.flights.i1")
    assert not rights.may_subscribe("X/nebula.services.trains.i1")


@pytest.mark.parametrize("rights_of_one", [of_stranger, of_caller, of_administrator, of_anybody, of_broker])
def test_everybody_may_ask_the_broker_and_listen_on_an_inbox(rights_of_one: Callable[[], Rights]) -> None:
    rights = rights_of_one()

    assert rights.may_publish("/queue/nebula.broker")
    assert rights.may_publish("/topic/nebula.services")
    assert rights.may_publish("/topic/nebula.cancel.nebula")
    assert rights.may_subscribe("X/nebula.services.nebula.broker")
    assert rights.may_subscribe(INBOX)
    assert rights.may_receive(INBOX)
    assert not rights.may_publish(INBOX)


RESERVED = [
    "/queue/nebula.",
    "/queue/nebula.broker.i1",
    "/queue/nebula.other",
    "/queue/nebula.inbox",
    "/topic/nebula.",
    "/topic/nebula.other",
    "/topic/nebula.inbox.5f0c",
    "/topic/nebula.cancel",
    "/topic/nebula.servicesx",
    "X/nebula.",
    "X/nebula.other",
    "X/nebula.services",
    "X/nebula.services.flights",
]


@pytest.mark.parametrize("destination", RESERVED)
@pytest.mark.parametrize("rights_of_one", [of_stranger, of_administrator, of_anybody])
def test_all_else_under_our_name_is_refused_to_everybody(
    rights_of_one: Callable[[], Rights], destination: str
) -> None:
    rights = rights_of_one()

    assert not rights.may_publish(destination)
    assert not rights.may_subscribe(destination)
    assert not rights.may_receive(destination)


@pytest.mark.parametrize("rights_of_one", [of_stranger, of_administrator, of_anybody])
def test_nobody_answers_in_the_brokers_place(rights_of_one: Callable[[], Rights]) -> None:
    rights = rights_of_one()

    assert not rights.may_subscribe("/queue/nebula.broker")
    assert not rights.may_receive("/queue/nebula.broker")
    assert not rights.may_subscribe("/topic/nebula.cancel.nebula")
    assert not rights.may_publish("X/nebula.services.nebula.broker")


def test_brokers_own_responder_serves_without_a_grant() -> None:
    rights = of_broker()

    assert rights.may_subscribe("/queue/nebula.broker")
    assert rights.may_subscribe("/queue/nebula.broker.i1")
    assert rights.may_subscribe("/topic/nebula.cancel.nebula")
    assert rights.may_publish("X/nebula.services.nebula.broker")
    assert not rights.may_publish("/queue/orders")
    assert not rights.may_subscribe("/queue/orders")


def test_without_configured_rights_everything_else_is_open() -> None:
    rights = of_anybody()

    assert rights.is_open
    for destination in (
        *("/queue/a", "/topic/a", "X/a", "a", "/queue/DLQ", "/queue/nebula", "/queue/nebulous.x"),
        *("X/nebula.services.flights.i1", "/topic/nebula.cancel.flights", "X/jobs.flights.01J"),
    ):
        assert rights.may_publish(destination)
        assert rights.may_subscribe(destination)
        assert rights.may_receive(destination)
    assert rights.may_call("schema.register")


def test_with_configured_rights_nothing_is_open_but_what_is_granted() -> None:
    rights = granted(publish=("X/EGM.Q.*",), subscribe=("X/EGM.*.*.EGMStatus",))

    assert not rights.is_open
    assert rights.may_publish("X/EGM.Q.GM1.EGMStatus")
    assert not rights.may_publish("X/EGM.G.GM1.EGMStatus")
    assert rights.may_subscribe("X/EGM.G.GM1.EGMStatus")
    assert not rights.may_subscribe("X/EGM.Q.GM1.EGMMeterReading")
    assert rights.may_receive("X/EGM.G.GM1.EGMStatus")
    assert not rights.may_receive("X/EGM.Q.GM1.EGMMeterReading")


def test_rights_of_several_capabilities_add_up() -> None:
    grants = Grants(
        {"Read": Capability(subscribe=("X/*",)), "Write": Capability(publish=("X/a",))},
        {"alice": ("Read", "Write"), "bob": ("Read",)},
    )
    policy = AccessPolicy(grants)
    alice, bob = policy.rights_of("alice"), policy.rights_of("bob")

    assert alice.may_subscribe("X/a")
    assert alice.may_publish("X/a")
    assert bob.may_subscribe("X/a")
    assert not bob.may_publish("X/a")


@pytest.mark.parametrize(
    ("grant", "may"),
    [("**", False), ("/queue/DL?", False), ("/queue/[D]LQ", False), ("/queue/DLQ", True)],
)
def test_dead_letters_are_read_by_whom_a_grant_names_their_queue(grant: str, may: bool) -> None:
    rights = granted(subscribe=(grant,), publish=("**",))

    assert rights.may_subscribe("/queue/DLQ") is may
    assert rights.may_receive("/queue/DLQ") is may
    assert rights.may_subscribe("/queue/DLQ.i1") is (may or grant == "**")
    assert rights.may_publish("/queue/DLQ")


@pytest.mark.parametrize(
    ("subscribe", "call", "may"),
    [
        (("**",), ("*",), False),
        ((), ("queue.peek", "*.show", "d*"), False),
        (("/queue/DLQ",), ("queue.peek",), True),
        ((), ("dlq.*",), True),
        ((), ("dlq.show",), True),
    ],
)
def test_dead_letters_are_shown_to_whom_a_grant_names_them(
    subscribe: tuple[str, ...], call: tuple[str, ...], may: bool
) -> None:
    rights = granted(subscribe=subscribe, call=call)

    assert rights.may_look_into("/queue/DLQ") is may
    assert rights.may_look_into("/queue/orders")


def test_dead_letters_are_shown_to_everybody_where_no_rights_are_configured() -> None:
    assert of_anybody().may_look_into("/queue/DLQ")


def test_dead_letter_queue_that_is_named_as_an_instance_is_not_opened_by_its_service() -> None:
    grants = Grants({"Serve": Capability(subscribe=("/queue/orders",))}, {"alice": ("Serve",)})
    rights = AccessPolicy(grants, dead_letter_queues=frozenset({"/queue/orders.dead"})).rights_of("alice")

    assert rights.may_subscribe("/queue/orders.i1")
    assert not rights.may_subscribe("/queue/orders.dead")
    assert not rights.may_receive("/queue/orders.dead")


def test_identity_stands_for_the_principal() -> None:
    grants = Grants(
        {"Own": Capability(publish=("X/site.{identity}.*",), subscribe=("/queue/{identity}",))},
        {"ab12": ("Own",), "cd34": ("Own",)},
    )
    rights = AccessPolicy(grants).rights_of("ab12")

    assert rights.may_publish("X/site.ab12.status")
    assert not rights.may_publish("X/site.cd34.status")
    assert not rights.may_publish("X/site.{identity}.status")
    assert rights.may_subscribe("/queue/ab12")
    assert rights.may_subscribe("/queue/ab12.i1")


@given(
    st.text(alphabet="a*?[]!-{identy}/.", min_size=1, max_size=12), st.text(alphabet="ab*?[]/.", max_size=8)
)
def test_identity_with_special_characters_gains_nothing(principal: str, other: str) -> None:
    rights = granted(publish=("X/{identity}",), principal=principal)

    assert rights.may_publish(f"X/{principal}") == (not principal.startswith("nebula."))
    assert rights.may_publish(f"X/{other}") == (other == principal)


def test_identity_that_makes_a_glob_too_long_gains_nothing_and_breaks_nothing() -> None:
    principal = "*" * 1000
    rights = granted(publish=("X/{identity}.*", "X/a"), principal=principal)

    assert not rights.may_publish(f"X/{principal}.a")
    assert rights.may_publish("X/a")


def test_verbs_of_the_broker_need_a_grant_but_for_those_that_show_schemas() -> None:
    assert granted(call=("schema.*",)).may_call("schema.register")
    assert not granted(publish=("**",), subscribe=("**",)).may_call("schema.register")
    assert all(of_stranger().may_call(verb) for verb in FREE_VERBS)


def test_reload_changes_rights_that_somebody_holds() -> None:
    policy = AccessPolicy()
    rights = policy.rights_of("alice")
    assert rights.may_publish("/queue/b")
    assert rights.may_subscribe("/queue/a")
    epoch = policy.epoch

    policy.replace(Grants({"Write": Capability(publish=("/queue/a",))}, {"alice": ("Write",)}))

    assert policy.rights_of("alice") is rights
    assert policy.epoch > epoch
    assert not policy.is_open
    assert not rights.is_open
    assert rights.may_publish("/queue/a")
    assert not rights.may_publish("/queue/b")
    assert not rights.may_subscribe("/queue/a")
    assert not rights.may_receive("/queue/a")


def test_reload_may_open_everything_again() -> None:
    policy = AccessPolicy(Grants({}, {}))
    rights = policy.rights_of("alice")
    assert not rights.may_subscribe("/queue/a")

    policy.replace(None)

    assert policy.is_open
    assert rights.is_open
    assert rights.may_subscribe("/queue/a")


@pytest.mark.parametrize(
    ("capabilities", "identities", "said"),
    [
        ({"Read": Capability(subscribe=("X/[",))}, {}, 'capability Read: "X/\\[" has a "\\["'),
        ({}, {"alice": ("Read",)}, 'identity "alice": no capability is called "Read"'),
    ],
)
def test_bad_grants_cannot_be_made(
    capabilities: dict[str, Capability], identities: dict[str, tuple[str, ...]], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Grants(capabilities, identities)


@pytest.mark.parametrize("pattern", ["X/[{identity}]", "X/[a{identity}", "X/[]{identity}]", "X/*[", "X/]"])
def test_grant_with_a_broken_class_or_an_identity_within_one_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r'"[\[\]]" without its'):
        check_grant(pattern)


def test_grant_that_is_too_much_only_as_a_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="has 40 stars"):
        check_grant("*{identity}" * 40)


def test_capability_without_any_right_is_none() -> None:
    with pytest.raises(ValueError, match="gives no right"):
        Capability()


def test_rights_that_nobody_holds_are_forgotten_at_once() -> None:
    policy = AccessPolicy()
    rights = policy.rights_of("mallory-1")
    assert policy.rights_of("mallory-1") is rights
    rights.may_publish("/queue/a")
    held = weakref.ref(rights)

    del rights

    assert held() is None


def test_answers_are_right_and_bounded_however_many_names_are_asked_for() -> None:
    rights = granted(publish=("/queue/*7",), subscribe=("/queue/*8",))
    asked = 0
    for number in range(25_000):
        asked += rights.may_publish(f"/queue/{number}") + rights.may_subscribe(f"/queue/{number}")

    assert asked == 5_000
    assert len(rights._publish) <= 10_000
    assert len(rights._subscribe) <= 10_000


def test_very_long_names_are_judged_but_not_remembered() -> None:
    rights = of_anybody()

    assert rights.may_publish("/queue/" + "a" * 8000)
    assert rights._publish == {}
