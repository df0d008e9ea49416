"""Fixed limits: each has a test that presses it, and a comment that says why it is so."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nebula.broker.core import fixed_limits as core_limits
from nebula.broker.core import patterns
from nebula.broker.core.account import Account, Refusal
from nebula.broker.core.fixed_limits import (
    HTTP_PORTION_BYTES,
    MAX_ACCEPTED_TYPES,
    MAX_ERROR_MESSAGE_CHARACTERS,
    MAX_KEPT_REFUSALS,
    MAX_KNOWN_HEAD_CHARACTERS,
    MAX_NUMBER_DIGITS,
    SLICE_BYTES,
)
from nebula.broker.core.known_heads import KnownHeads
from nebula.broker.core.limits import Limits
from nebula.broker.core.patterns import PatternTable
from nebula.broker.protocol.encoding import error_frame
from nebula.broker.server import authenticator as authenticating
from nebula.broker.server import connection
from nebula.broker.server import server as serving
from nebula.broker.server.authenticator import Authenticator
from nebula.broker.server.http_posts import preferences
from nebula.broker.server.linger import LingeringClose
from nebula.globs import MAX_COMPILED_GLOBS, compile_glob
from nebula.stomp.dialects import V1_2
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
    "STOP_SECONDS": "tests/broker/server/test_fixed_limits.py::"
    "test_peer_that_does_not_close_is_cut_off_at_a_stop",
    "LONG_FRAME_ACTIONS": "tests/faults/test_peers_take_turns.py::"
    "test_one_frame_that_is_much_work_is_followed_by_a_rest",
    "WEBSOCKET_PORTION_BYTES": "tests/broker/server/test_websocket_transport.py::"
    "test_very_many_frames_of_one_read_take_several_turns_and_arrive_in_order",
    "MAX_ACCEPTED_TYPES": "tests/broker/server/test_fixed_limits.py::"
    "test_media_types_behind_the_most_are_ignored",
    "MAX_NUMBER_DIGITS": "tests/broker/server/test_fixed_limits.py::test_number_has_few_digits",
    "MAX_ERROR_MESSAGE_CHARACTERS": "tests/broker/server/test_fixed_limits.py::"
    "test_message_header_of_an_error_is_cut_and_its_body_is_whole",
    "MAX_LOGGED_CHARACTERS": "tests/faults/test_event_log.py::test_name_of_a_peers_own_choice_is_cut",
    "MAX_LINES_OF_ONE_EVENT": "tests/faults/test_event_log.py::test_flood_of_one_reason_hides_no_other",
    "MAX_KEPT_REFUSALS": "tests/broker/server/test_fixed_limits.py::test_few_refusals_are_kept_for_the_log",
    "MAX_LATEST_GLOBS": "tests/broker/server/test_fixed_limits.py::test_more_new_globs_are_matched_anew",
    "MAX_KNOWN_HEAD_BYTES": "tests/broker/core/test_shared_heads.py::"
    "test_messages_whose_first_is_gone_count_for_their_headers",
    "MAX_KNOWN_HEAD_CHARACTERS": "tests/broker/server/test_fixed_limits.py::test_long_head_is_not_known",
    "MAX_COMPILED_GLOBS": "tests/broker/server/test_fixed_limits.py::test_few_globs_are_kept_compiled",
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


@pytest.mark.interpreted
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
    alice.protocol.is_turn_over = lambda: True
    alice.protocol.receive_data(frame * (3 * SLICE_BYTES // len(frame)), broker.now)

    assert len(alice.protocol._parked) <= SLICE_BYTES // len(frame)
    assert len(alice.protocol._unread) > SLICE_BYTES


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


@pytest.mark.interpreted
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


@pytest.mark.interpreted
def test_peer_that_does_not_close_is_cut_off_at_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_SECONDS", 3600.0)
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.01)
    peer = Sink()
    with serve() as broker:
        broker.ask(lambda: attach(broker, peer))
        broker.stop()

        assert peer.is_aborted


def test_media_types_behind_the_most_are_ignored() -> None:
    types = [f"text/t{number}" for number in range(MAX_ACCEPTED_TYPES + 1)]

    assert preferences(",".join(types[:-1])) == types[:-1]
    assert preferences(",".join(types)) == types[:-1]


@pytest.mark.parametrize(("digits", "is_valid"), [(MAX_NUMBER_DIGITS, True), (MAX_NUMBER_DIGITS + 1, False)])
def test_number_has_few_digits(digits: int, *, is_valid: bool) -> None:
    alice = BrokerHarness().connect()
    number = "7".zfill(digits)
    alice.say(f"SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:{number}; receipt:r")

    assert [frame[0] for frame in alice.received()] == ["RECEIPT" if is_valid else "ERROR"]


@pytest.mark.parametrize(("digits", "is_valid"), [(MAX_NUMBER_DIGITS, True), (MAX_NUMBER_DIGITS + 1, False)])
def test_time_has_few_digits(digits: int, *, is_valid: bool) -> None:
    alice = BrokerHarness().connect()
    alice.say(f"SEND destination:/queue/a; delay:{'7'.zfill(digits)}; receipt:r | x")

    (receipt,) = alice.received()
    assert receipt[1]["disposition"] == ("accepted" if is_valid else "rejected-invalid")


def test_message_header_of_an_error_is_cut_and_its_body_is_whole() -> None:
    text = "x" * (MAX_ERROR_MESSAGE_CHARACTERS + 1)
    head, _, body = error_frame(text, None, V1_2).decode().partition("\n\n")

    assert f"message:{text[:-1]}" in head.splitlines()
    assert body.startswith(text)


def test_few_refusals_are_kept_for_the_log() -> None:
    account = Account(Limits())
    refusal = Refusal("alice", "s", "SEND", "/queue/a", "rejected-unauthorised")
    for _ in range(MAX_KEPT_REFUSALS + 3):
        account.refuse(refusal)

    assert account.take_refusals() == ([refusal] * MAX_KEPT_REFUSALS, 3)
    assert [account.note_unheard(refusal) for _ in range(MAX_KEPT_REFUSALS + 1)][-2:] == [True, False]


@pytest.mark.parametrize(
    ("count", "is_anew"), [(core_limits.MAX_LATEST_GLOBS, False), (core_limits.MAX_LATEST_GLOBS + 1, True)]
)
def test_more_new_globs_are_matched_anew(
    monkeypatch: pytest.MonkeyPatch, count: int, *, is_anew: bool
) -> None:
    tried: list[str] = []

    def watched(pattern: str) -> Callable[[str], bool]:
        def matches(text: str) -> bool:
            tried.append(pattern)
            return bool(compile_glob(pattern)(text))

        return matches

    monkeypatch.setattr(patterns, "compile_glob", watched)
    table: PatternTable[int] = PatternTable()
    table.add("X/a*", 0)
    assert table.matching("X/a") == [0]
    tried.clear()

    for number in range(count):
        table.add(f"X/?{number}", number)

    assert table.matching("X/a") == [0]
    # Anew means by the index of their texts, which rules most of them out.
    assert (len(tried) < count) is is_anew


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("characters", "is_known"), [(MAX_KNOWN_HEAD_CHARACTERS, True), (MAX_KNOWN_HEAD_CHARACTERS + 1, False)]
)
def test_long_head_is_not_known(characters: int, *, is_known: bool) -> None:
    closed: list[int] = []

    def close() -> bool:
        closed.append(characters)
        return False

    head: Any = SimpleNamespace(text_characters=characters, own_bytes=1, copy=None, close=close)
    account = Account(Limits())
    heads = KnownHeads(account, account.own)
    heads.add(head)
    heads.clear()

    assert closed == ([characters] if is_known else [])


def test_few_globs_are_kept_compiled() -> None:
    first = compile_glob("kept/0*")
    assert compile_glob("kept/0*") is first

    for number in range(MAX_COMPILED_GLOBS):
        compile_glob(f"others/{number}*")

    assert compile_glob("kept/0*") is not first
