"""Features of RPC that other brokers lack, each with the tests that show it.

`python -m tests.foreign.lacks` writes the table of `docs/reference/brokers.md`.

Where the table says that a broker lacks a feature, these tests must fail there. If a new version of a
broker or an adapter has the feature, the suite fails until the table is corrected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "brokers.md"

BROKERS: Final = {"rabbitmq": "RabbitMQ 3.10", "activemq": "ActiveMQ Classic 5.17"}

_FIRST: Final = "| Nebula |"
_YES: Final = "yes"


@dataclass(frozen=True, slots=True)
class Lack:
    """A feature of Nebula's broker.

    Attributes:
        what: the feature.
        lacking: what happens instead, by broker; brokers without an entry have the feature.
        tests: fail where it is lacking.
    """

    what: str
    lacking: Mapping[str, str]
    tests: tuple[str, ...]


LACKS: Final = (
    Lack(
        "a call that no service can take fails at once (`NoResponder`), and is not kept",
        {
            "rabbitmq": "it waits until its deadline (`CallTimeout`); then the request is dropped",
            "activemq": "it waits until its deadline (`CallTimeout`); then the request is dropped",
        },
        (
            "test_call_fails_at_once_without_a_listener",
            "test_request_that_no_service_took_is_not_kept",
            "test_call_of_a_client_with_a_long_backlog_is_answered",
            "test_stopped_service_finishes_what_it_began",
            "test_nobody_to_ask_is_told_at_once",
            "test_instance_that_dies_is_not_waited_for",
        ),
    ),
    Lack(
        "all instances are known, and one that dies is removed at once (`nebula services`, `call_all`)",
        {
            "rabbitmq": "they are asked; one that dies is noticed because it does not reply",
            "activemq": "they are asked; one that dies is noticed because it does not reply",
        },
        (
            "test_service_whose_connection_is_cut_is_gone",
            "test_instance_without_a_queue_of_its_own_is_missing",
            "test_instance_that_is_known_but_gone_is_missing_at_once",
        ),
    ),
    Lack(
        "`send` to a destination that cannot take it is `Rejected`",
        {"rabbitmq": "it is accepted, and dropped", "activemq": "it is accepted, and kept"},
        ("test_send_that_the_broker_refuses_is_rejected",),
    ),
    Lack(
        "a service knows its caller: `request.principal`, `@verb(allow=[…])`",
        {
            "rabbitmq": "it is `None`, `allow` admits no caller, and all callers share idempotency keys",
            "activemq": "it is `None`, `allow` admits no caller, and all callers share idempotency keys",
        },
        (
            "test_handler_may_see_its_request",
            "test_verb_is_open_to_the_principals_on_its_list_only",
            "test_key_is_known_for_its_verb_only",
        ),
    ),
    Lack(
        "deliveries are counted, so that a request that kills its service ends after `max_attempts`",
        {
            "rabbitmq": "classic queues say only that it is a repetition; UNSUBSCRIBE gives nothing back",
            "activemq": "a NACK moves a message to the dead-letter queue at once",
        },
        (
            "test_request_delivered_too_often_is_not_run_again",
            "test_handler_sees_that_its_request_was_delivered_before",
        ),
    ),
    Lack(
        'last values, `X/…`: `client.value`, `@app.on("X/…")`, `eager`',
        {
            "rabbitmq": "not available: `Refused`, `no-last-values`",
            "activemq": "not available: `Refused`, `no-last-values`",
        },
        ("test_last_values_are_listened_to_read_and_set", "test_snapshot_and_deletions_are_read_too"),
    ),
    Lack(
        "a reader of Avro asks the broker for an unknown schema",
        {
            "rabbitmq": "not available: such a message cannot be read (`AvroError`)",
            "activemq": "not available: such a message cannot be read (`AvroError`)",
        },
        ("test_value_is_sent_as_avro_and_read_as_a_model_or_a_dict",),
    ),
    Lack(
        "requests that a stopping service has not started go to its other instances at once",
        {
            "rabbitmq": "the reply is `busy`, to be retried; requests without a reply are dropped at the end",
            "activemq": "the reply is `busy`, to be retried; requests without a reply are dropped at the end",
        },
        (
            "test_calls_made_while_one_instance_stops_are_answered_by_the_other",
            "test_request_that_waited_for_a_worker_or_its_turn_goes_to_the_other_instance_uncounted",
            "test_message_that_an_instance_gave_back_may_fail_as_often_as_any_other",
        ),
    ),
    Lack(
        "a service whose queue another consumer holds exclusively fails with an error",
        {"activemq": "`exclusive` is only a preference: the service waits, and gets no requests"},
        ("test_service_whose_queue_is_taken_says_so",),
    ),
)


def reason_of(test: str, broker: str) -> str | None:
    """Why a test fails on a broker; None: it has to pass."""
    reasons = (lack.lacking.get(broker) for lack in LACKS if test in lack.tests)
    return next((reason for reason in reasons if reason is not None), None)


def table() -> str:
    """The table of the page, as it has to be."""
    return "\n".join(_rows()) + "\n"


def _rows() -> Iterator[str]:
    yield f"{_FIRST} {' | '.join(BROKERS.values())} |"
    yield f"| --- |{' --- |' * len(BROKERS)}"
    for lack in LACKS:
        yield f"| {lack.what} | {' | '.join(lack.lacking.get(broker, _YES) for broker in BROKERS)} |"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        re.sub(rf"^{re.escape(_FIRST)}.*?\n(?=\n)", table(), text, count=1, flags=re.DOTALL | re.MULTILINE)
    )
