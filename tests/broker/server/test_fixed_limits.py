"""Fixed limits: each has a test that presses it, and a comment that says why it is so."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from nebula.broker.core import fixed_limits as core_limits
from nebula.broker.core.fixed_limits import HTTP_PORTION_BYTES, SLICE_BYTES
from nebula.broker.server import authenticator as authenticating
from nebula.broker.server import connection
from nebula.broker.server.authenticator import Authenticator
from nebula.broker.server.linger import LingeringClose
from tests.broker.harness import BrokerHarness
from tests.broker.server.slow_reader import Socket
from tests.faults.served import serve, wait_until
from tests.faults.sinks import Deaf, Sink, attach
from tests.limit_comments import fixed_limits

ROOT = Path(__file__).parents[3]

TESTS = {
    "FLUSH_SECONDS": "tests/broker/server/test_fixed_limits.py::test_peer_has_its_time_to_read_its_end",
    "LINGER_SECONDS": "tests/broker/server/test_fixed_limits.py::test_peer_has_its_time_to_read_its_end",
    "TLS_LINGER_SECONDS": "tests/broker/server/test_http_posts.py::test_answer_waits_for_who_reads_late",
    "ERROR_WAIT_SECONDS": "tests/broker/core/test_receipts.py::test_error_waits_no_longer_than_its_time",
    "KEEPALIVE_PROBES": "tests/faults/test_peers_at_the_door.py::"
    "test_system_asks_silent_peers_whether_they_are_there",
    "SUBNET_BITS": "tests/faults/test_peers_at_the_door.py::test_one_place_is_an_address_or_a_subnet",
    "REFUSAL_REST_SECONDS": "tests/faults/test_peers_take_turns.py::"
    "test_who_is_refused_more_than_its_share_is_not_read_for_a_while",
    "MAX_REFUSAL_REST_SECONDS": "tests/faults/test_peers_take_turns.py::"
    "test_who_is_refused_more_than_its_share_is_not_read_for_a_while",
    "LONG_READ_BYTES": "tests/faults/test_turns.py::"
    "test_peers_with_much_to_say_are_read_some_at_a_time_in_turns",
    "READ_BEHIND_BYTES": "tests/faults/test_large_bodies.py::"
    "test_good_readers_of_many_large_bodies_are_not_ended",
    "LONG_READS_AT_ONCE": "tests/faults/test_turns.py::"
    "test_peers_with_much_to_say_are_read_some_at_a_time_in_turns",
    "TURN_SECONDS": "tests/faults/test_turns.py::"
    "test_peers_with_much_to_say_are_read_some_at_a_time_in_turns",
    "SHORT_TURN_SECONDS": "tests/faults/test_peers_take_turns.py::"
    "test_who_is_read_beside_others_has_short_turns",
    "AT_WORK_SECONDS": "tests/faults/test_peers_take_turns.py::"
    "test_who_is_read_beside_others_has_short_turns",
    "LONG_WRITES_BYTES": "tests/faults/test_large_bodies.py::"
    "test_others_have_their_turn_before_a_large_body_is_written_to_all",
    "SLICE_BYTES": "tests/broker/server/test_fixed_limits.py::test_no_more_than_a_slice_is_parsed_ahead",
    "FRAMES_AT_ONCE": "tests/faults/test_peers_take_turns.py::"
    "test_very_many_frames_of_one_read_take_several_turns",
    "SLICES_AT_ONCE": "tests/faults/test_peers_take_turns.py::"
    "test_large_heads_of_one_message_of_a_websocket_take_several_turns",
    "FRAMES_BETWEEN_LOOKS": "tests/faults/test_peers_take_turns.py::"
    "test_turn_that_is_over_ends_after_few_frames",
    "LARGE_BODY_BYTES": "tests/faults/test_large_bodies.py::test_all_receivers_are_handed_the_same_octets",
    "MAX_HTTP_HEAD_BYTES": "tests/broker/server/test_websocket.py::"
    "test_what_is_no_fit_request_gets_a_status_and_the_end",
    "HTTP_PORTION_BYTES": "tests/broker/server/test_fixed_limits.py::test_reply_is_written_in_portions",
    "HTTP_CHUNKS_AT_ONCE": "tests/broker/server/test_http_posts.py::"
    "test_very_many_chunks_of_one_read_take_several_turns",
    "HTTP_BODIES": "tests/broker/server/test_http_posts.py::test_only_so_many_bodies_are_taken_in_at_once",
    "WEBSOCKET_FRAMES_AT_ONCE": "tests/broker/server/test_websocket_transport.py::"
    "test_very_many_frames_of_one_read_take_several_turns_and_arrive_in_order",
    "WEBSOCKET_OPENING_BYTES": "tests/faults/test_peers_at_the_door.py::"
    "test_opening_without_end_is_ended_and_not_kept",
    "METRICS_SECONDS": "tests/broker/operations/test_metrics.py::"
    "test_who_reads_metrics_in_a_loop_has_nothing_walked_each_time",
    "HASHES_AT_ONCE": "tests/broker/server/test_rate_limit.py::"
    "test_no_more_than_so_many_have_a_turn_at_the_same_time",
    "MAX_PASSCODE_WAIT_SECONDS": "tests/broker/server/test_rate_limit.py::"
    "test_place_with_most_in_the_line_makes_room_for_others",
    "MAX_REMEMBERED_PASSCODES": "tests/broker/server/test_fixed_limits.py::"
    "test_only_so_many_passcodes_are_remembered",
    "TOKEN_LEEWAY_SECONDS": "tests/broker/server/test_identity.py::"
    "test_token_expires_when_it_says_and_the_clocks_may_differ",
    "MAX_GLOB_CHARACTERS": "tests/broker/core/test_globs.py::test_bad_glob_is_told_what_is_wrong",
    "MAX_GLOB_STARS": "tests/broker/core/test_globs.py::test_bad_glob_is_told_what_is_wrong",
    "MAX_KNOWN_DESTINATIONS": "tests/broker/core/test_patterns.py::"
    "test_only_so_many_destinations_are_remembered",
    "MAX_KNOWN_MATCHES": "tests/broker/core/test_patterns.py::test_only_so_many_matches_are_remembered",
    "MAX_KNOWN_CHARACTERS": "tests/broker/core/test_patterns.py::"
    "test_names_that_are_absurdly_long_are_not_remembered",
    "MAX_REMEMBERED_RIGHTS": "tests/broker/core/test_access.py::"
    "test_answers_are_right_and_bounded_however_many_names_are_asked_for",
    "MAX_REMEMBERED_CHARACTERS": "tests/broker/core/test_access.py::"
    "test_very_long_names_are_judged_but_not_remembered",
    "EXPIRED_AT_ONCE": "tests/broker/core/destinations/test_queue_policies.py::"
    "test_much_that_waits_is_looked_at_in_portions",
    "PUT_BACK_AT_ONCE": "tests/broker/server/test_fixed_limits.py::"
    "test_postponed_messages_are_put_back_in_portions",
    "DUE_AT_ONCE": "tests/broker/core/test_scarcity.py::"
    "test_much_that_is_due_at_once_comes_in_portions_and_in_order",
    "SNAPSHOT_DESTINATIONS_AT_ONCE": "tests/faults/test_peers_take_turns.py::"
    "test_large_snapshot_is_told_whole_once_and_with_its_end",
    "REPLY_RIGHT_SECONDS": "tests/broker/core/test_reply_rights.py::test_right_ends_after_an_hour",
    "MAX_REPLY_RIGHTS": "tests/broker/core/test_reply_rights.py::"
    "test_consumer_that_never_answers_keeps_the_rights_of_its_latest_requests",
    "RETIRED_INBOX_SECONDS": "tests/broker/core/test_inboxes.py::"
    "test_name_of_an_inbox_is_not_given_out_again_for_an_hour",
    "MAX_RETIRED_INBOXES": "tests/broker/core/test_inboxes.py::"
    "test_names_of_inboxes_that_are_gone_push_out_those_of_whoever_has_most",
    "MAX_OWN_REQUEST_BYTES": "tests/broker/core/test_own_requests.py::test_large_requests_of_one_are_few",
}
"""The test of each limit."""

FIXED_LIMITS = fixed_limits()


def test_each_fixed_limit_has_a_test() -> None:
    assert TESTS.keys() == FIXED_LIMITS.keys()


@pytest.mark.parametrize("test", sorted(set(TESTS.values())))
def test_test_of_a_fixed_limit_exists(test: str) -> None:
    file, _, name = test.partition("::")

    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


@pytest.mark.parametrize("name", FIXED_LIMITS)
def test_fixed_limit_says_why_and_what_happens_at_it(name: str) -> None:
    value, comment = FIXED_LIMITS[name]
    unit, _, why = comment.why.partition(": ")

    assert value > 0
    assert unit
    assert why
    assert comment.at_it


def test_each_constant_is_declared_with_its_comment() -> None:
    assert {name for name in vars(core_limits) if name.isupper()} <= FIXED_LIMITS.keys()


@pytest.mark.parametrize(("sink", "name"), [(Deaf, "FLUSH_SECONDS"), (Sink, "LINGER_SECONDS")])
def test_peer_has_its_time_to_read_its_end(
    sink: type[Sink], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ("FLUSH_SECONDS", "LINGER_SECONDS")
    for each in both:
        monkeypatch.setattr(connection, each, 0.01 if each == name else 3600.0)
    peer = sink()
    with serve() as broker:
        broker.ask(lambda: attach(broker, peer, "COMMIT transaction:none"))
        wait_until(broker, lambda: peer.is_aborted)

        # A transport tells of its end; this one is told to.
        broker.ask(lambda: peer.connection.connection_lost(None))


def test_no_more_than_a_slice_is_parsed_ahead() -> None:
    broker = BrokerHarness()
    alice = broker.connect()
    frame = b"SEND\ndestination:/queue/a\n\nx\0"
    alice._protocol.is_turn_over = lambda: True
    alice._protocol.receive_data(frame * (3 * SLICE_BYTES // len(frame)), broker.now)

    assert len(alice._protocol._parked) <= SLICE_BYTES // len(frame)
    assert len(alice._protocol._unread) > SLICE_BYTES


def test_reply_is_written_in_portions() -> None:
    async def close() -> list[int]:
        transport = Socket()
        closing = LingeringClose(transport, bytes(2 * HTTP_PORTION_BYTES + 2), 60.0)
        transport.pause, transport.resume = closing.pause, closing.resume
        closing.begin()
        sizes = []
        while not transport.is_ended:
            sizes.append(transport.get_write_buffer_size())
            transport.read(sizes[-1])
            await asyncio.sleep(0)
        closing.cancel()
        return sizes

    assert asyncio.run(close()) == [HTTP_PORTION_BYTES, HTTP_PORTION_BYTES, 2]


def test_only_so_many_passcodes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticating, "MAX_REMEMBERED_PASSCODES", 3)
    authenticator = Authenticator()
    for number in range(10):
        authenticator._remember(b"%d" % number, "alice", "hash")

    assert list(authenticator._good) == [b"7", b"8", b"9"]


def test_postponed_messages_are_put_back_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nebula.broker.core.destinations.queues.PUT_BACK_AT_ONCE", 10)
    broker = BrokerHarness()
    bob = broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual")
    broker.connect().publish("/queue/a", *map(str, range(50)))
    for frame in bob.received():
        bob.nack(frame, "redelivery-delay:1000")

    broker.now += 2
    broker.broker.advance(broker.now)
    broker.settle()
    first = len(bob.bodies())
    broker.advance(2)

    assert first == 10
    assert len(bob.bodies()) == 40
