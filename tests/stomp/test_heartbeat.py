"""Heart-beats (A.8): plain numbers in, no clock."""

from __future__ import annotations

import math

import pytest

from nebula.errors import RemoteProtocolError
from nebula.milliseconds import Milliseconds
from nebula.stomp.heartbeat import Heartbeat, heart_beat_of, negotiate_intervals, parse_heart_beat


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (None, (0, 0)),
        ("0,0", (0, 0)),
        ("1000,2000", (1000, 2000)),
        (" 1000 , 2000 ", (1000, 2000)),
        ("9999999999999999999,1", (9999999999999999999, 1)),
    ],
)
def test_heart_beat_of_is_two_numbers(text: str | None, numbers: tuple[int, int]) -> None:
    assert parse_heart_beat(text) == tuple(map(Milliseconds, numbers))


@pytest.mark.parametrize(
    "text", ["", "1000", "1,2,3", "-1,0", "+1,0", "1.5,0", "a,b", "1_0,0", "٣,0", ",", "9" * 5000 + ",0"]
)
def test_garbage_in_a_heart_beat_of_is_the_peers_fault(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="heart-beat"):
        parse_heart_beat(text)


@pytest.mark.parametrize(
    ("client", "server", "client_to_server", "server_to_client"),
    [
        ((0.0, 0.0), (0.0, 0.0), 0.0, 0.0),
        ((1.0, 0.0), (0.0, 2.0), 2.0, 0.0),
        ((3.0, 0.0), (0.0, 2.0), 3.0, 0.0),
        ((0.0, 0.5), (1.0, 0.0), 0.0, 1.0),
        ((0.0, 1.5), (1.0, 0.0), 0.0, 1.5),
        ((1.0, 1.0), (0.0, 0.0), 0.0, 0.0),
        ((10.0, 10.0), (1.0, 1.0), 10.0, 10.0),
    ],
)
def test_both_sides_agree_on_the_slower_interval_of_each_direction(
    client: tuple[float, float], server: tuple[float, float], client_to_server: float, server_to_client: float
) -> None:
    of_client, of_server = heart_beat_of(*client), heart_beat_of(*server)

    assert negotiate_intervals(of_client, of_server) == (client_to_server, server_to_client)
    assert negotiate_intervals(of_server, of_client) == (server_to_client, client_to_server)


@pytest.mark.parametrize(
    ("intervals", "header"),
    [((10.0, 0.02), "10000,20"), ((0.0, 0.0), "0,0"), ((0.0001, 1.0), "1,1000")],
)
def test_header_is_in_whole_milliseconds_and_turns_no_beats_off(
    intervals: tuple[float, float], header: str
) -> None:
    assert "{},{}".format(*heart_beat_of(*intervals)) == header


def test_beat_is_due_after_half_the_interval_without_a_write() -> None:
    heartbeat = Heartbeat(10.0, 0.0, now=100.0)

    assert not heartbeat.beat_due(104.9)
    assert heartbeat.beat_due(105.0)
    assert heartbeat.next_deadline(100.0) == 105.0


def test_any_write_puts_off_the_next_beat() -> None:
    heartbeat = Heartbeat(10.0, 0.0, now=100.0)

    heartbeat.last_sent = 104.0

    assert not heartbeat.beat_due(108.9)
    assert heartbeat.beat_due(109.0)


def test_peer_is_dead_after_two_intervals_of_silence() -> None:
    heartbeat = Heartbeat(0.0, 10.0, now=100.0)

    assert not heartbeat.is_dead(119.9)
    assert heartbeat.is_dead(120.0)
    assert heartbeat.next_deadline(100.0) == 120.0


def test_any_byte_proves_life() -> None:
    heartbeat = Heartbeat(0.0, 10.0, now=100.0)

    heartbeat.last_received = 119.0

    assert not heartbeat.is_dead(138.9)
    assert heartbeat.is_dead(139.0)


def test_connection_without_heart_beats_has_no_deadline() -> None:
    heartbeat = Heartbeat(0.0, 0.0, now=100.0)

    assert heartbeat.next_deadline(1e12) == math.inf
    assert not heartbeat.is_dead(1e12)
    assert not heartbeat.beat_due(1e12)


def test_peer_that_is_not_read_never_dies() -> None:
    heartbeat = Heartbeat(0.0, 1.0, now=100.0)

    heartbeat.pause()

    assert not heartbeat.is_dead(1000.0)


def test_peer_that_is_read_again_gets_its_whole_time_anew() -> None:
    heartbeat = Heartbeat(0.0, 1.0, now=100.0)
    heartbeat.pause()

    heartbeat.resume(1000.0)

    assert not heartbeat.is_dead(1001.9)
    assert heartbeat.is_dead(1002.0)


def test_resume_without_a_pause_forgives_nothing() -> None:
    heartbeat = Heartbeat(0.0, 1.0, now=100.0)

    heartbeat.resume(101.5)

    assert heartbeat.is_dead(102.0)


def test_timer_set_while_paused_does_not_miss_a_death_after_the_resume() -> None:
    heartbeat = Heartbeat(0.0, 1.0, now=100.0)
    heartbeat.pause()
    timer = heartbeat.next_deadline(500.0)

    heartbeat.resume(500.0)

    assert 500.0 < timer <= 502.0
    assert heartbeat.is_dead(502.0)


def test_we_still_owe_beats_to_a_peer_that_we_do_not_read() -> None:
    heartbeat = Heartbeat(10.0, 1.0, now=100.0)

    heartbeat.pause()

    assert heartbeat.beat_due(105.0)
    assert heartbeat.next_deadline(104.0) == 105.0
