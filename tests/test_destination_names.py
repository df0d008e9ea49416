"""One rule for names of destinations, in calls and on the command line."""

from __future__ import annotations

import pytest

from nebula.destinations import destination_named, queue_named


@pytest.mark.parametrize(
    ("name", "destination"),
    [
        ("orders", "/queue/orders"),
        ("nebula.broker", "/queue/nebula.broker"),
        ("/queue/orders", "/queue/orders"),
        ("/topic/news", "/topic/news"),
        ("/exchange/logs/info", "/exchange/logs/info"),
        ("X/EGM.7.state", "X/EGM.7.state"),
        ("meters/7", "meters/7"),
    ],
)
def test_name_without_a_slash_is_a_queue_and_others_stay(name: str, destination: str) -> None:
    assert destination_named(name) == destination


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("queue/orders", "/queue/orders"),
        ("queues/orders", "/queue/orders"),
        ("Topic/news", "/topic/news"),
        ("topics/a/b", "/topic/a/b"),
    ],
)
def test_half_a_prefix_is_refused_with_what_it_may_mean(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        destination_named(name)
    with pytest.raises(ValueError, match=f"did you mean '{meant}'"):
        queue_named(name)


def test_bare_glob_is_no_queue_to_subscribe_to() -> None:
    with pytest.raises(ValueError, match=r"did you mean '/topic/news\.\*'"):
        destination_named("news.*", takes_globs=True)

    assert destination_named("/topic/news.*", takes_globs=True) == "/topic/news.*"
    assert destination_named("what?") == "/queue/what?"


@pytest.mark.parametrize("rule", [destination_named, queue_named])
def test_empty_name_is_refused(rule: object) -> None:
    assert callable(rule)
    with pytest.raises(ValueError, match="has a name"):
        rule("")
