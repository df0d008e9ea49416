"""Each error code of the code is in the table of codes, is raised somewhere, and a test provokes it."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.error_codes import BROKER_CODES, CODES, JOB_ENDS, REFUSALS, RESULT_CODES, ErrorCode

ROOT = Path(__file__).parents[2]
TABLES = (CODES, JOB_ENDS, RESULT_CODES, BROKER_CODES, REFUSALS)
ROWS = [row for table in TABLES for row in table.values()]
# A job that expired is not an expired certificate, and nothing raises both.
IN_TWO_TABLES = {"expired"}
TABLE = "nebula/error_codes.py"

# Each takes a code first, or as `code=`.
ERRORS = {"VerbError", "Refused", "RemoteError", "JobFailure", "Failure", "_Failure"}
WITH_A_CODE = ERRORS | {"JobError", "JobEnded", "ResultError", "on_lost", "lost", "_lose"}

# Functions with a code that is known only when they run: what they make of their own. The others hand on one
# that was raised elsewhere, here or by a peer.
NOT_LITERAL: dict[str, set[str]] = {
    "nebula/broker/core/account.py::refuse_more": {
        "too-many-connections",
        "too-many-destinations",
        "too-many-globs",
        "too-many-sessions",
        "too-many-subscriptions",
    },
    "nebula/cli/asking.py::asking_for_jobs": set(),
    "nebula/host/operator_verbs.py::wait": set(),
    "nebula/rpc/jobs/handle.py::_ended": {"timed-out", "lost", "expired"},
    "nebula/rpc/jobs/local/runner.py::_failure": set(),
    "nebula/rpc/jobs/local/runner.py::finish": {"bad-result"},
    "nebula/rpc/jobs/model/status.py::error_from_json": set(),
    "nebula/rpc/jobs/scheduler/scheduler.py::_lose": set(),
    "nebula/rpc/jobs/service/runner_listener.py::on_lost": set(),
    "nebula/rpc/jobs/service/verbs.py::result": {"job"},
    "nebula/rpc/middleware/job_spans.py::on_lost": set(),
    "nebula/rpc/service/message_receiver.py::_failure_of": set(),
    "nebula/rpc/wire/replies.py::remote_error": {"error"},
    "nebula/spark/host/failures.py::describe": set(),
    "nebula/spark/host/results.py::_value": {"bad-result"},
    "nebula/spark/job_table.py::_hear_end": set(),
    "nebula/stomp/client/connection.py::leave": {"ignored"},
}

# For each code a test that provokes it, which has the code in it, or these words of its text.
PROVOKED: dict[str, str | tuple[str, str]] = {
    "bad-request": "rpc/streams/test_stream_wire.py::test_credit_that_is_no_number_is_a_bad_request",
    "unknown-verb": "rpc/service/test_rules.py::test_rule_1_unknown_verb_is_an_error",
    "bad-parameters": "rpc/client/test_client.py::test_wrong_parameters_are_reported_by_the_service",
    "not-allowed": "host/test_broker_verbs.py::test_who_was_not_granted_a_verb_may_only_look",
    "busy": "rpc/jobs/results/test_pages.py::test_number_of_callers_that_wait_for_pages_is_limited",
    "deadline-exceeded": "rpc/middleware/test_middleware.py::test_limit_ends_a_handler_that_takes_longer",
    "cancelled": "rpc/jobs/test_management.py::test_waiting_job_is_cancelled_when_the_answer_comes",
    "too-many-attempts": "rpc/service/test_rules.py::test_request_delivered_too_often_is_not_run_again",
    "streaming-only": "rpc/streams/test_streaming.py::test_call_of_a_long_stream_says_that_it_is_one",
    "not-found": "host/test_broker_verbs.py::test_schemas_are_listed_and_given_by_their_fingerprint",
    "elsewhere": "rpc/jobs/test_management.py::test_job_of_another_instance_is_elsewhere",
    "bad-result": "host/test_http_calls.py::test_number_that_json_has_not_is_a_fault_of_the_service",
    "upstream-timeout": "rpc/service/test_upstream.py::test_failure_of_a_call_keeps_its_kind",
    "upstream-unavailable": "rpc/service/test_upstream.py::test_failure_of_a_call_keeps_its_kind",
    "upstream-error": "rpc/service/test_upstream.py::test_job_in_the_service_fails_with_the_code",
    "internal": "rpc/contract/test_injection.py::test_bug_of_a_provider_is_hidden_from_the_caller",
    "engine-unavailable": "spark/test_host.py::test_missing_java_breaks_the_engine_in_a_sentence",
    "analysis": "spark/test_engine.py::test_failure_has_a_code_and_a_short_text",
    "data": "spark/test_engine.py::test_failure_has_a_code_and_a_short_text",
    "python": "spark/test_engine.py::test_failure_has_a_code_and_a_short_text",
    "worker-crashed": "spark/test_engine.py::test_failure_has_a_code_and_a_short_text",
    "result-too-large": "rpc/service/test_rules.py::test_answer_larger_than_the_broker_takes_is_an_error",
    "out-of-memory": "spark/test_failures.py::test_exception_becomes_a_code_a_line_and_a_state",
    "engine-lost": "rpc/jobs/test_processes.py::test_watcher_of_a_job_whose_service_is_killed_sees_its_loss",
    **dict.fromkeys(
        ("timed-out", "lost"), "rpc/jobs/test_handle.py::test_end_without_a_code_has_that_of_its_state"
    ),
    "job": "spark/test_engine.py::test_failure_has_a_code_and_a_short_text",
    "not-ended": "rpc/jobs/test_management.py::test_result_of_an_open_job_may_be_asked_for_later",
    "no-rows": "rpc/jobs/results/test_pages.py::test_value_has_no_rows",
    "result-gone": "host/test_http_results.py::test_result_that_was_removed_is_gone",
    "result-unreadable": "rpc/jobs/results/test_pages.py::test_damaged_file_is_reported",
    "bad-pattern": "broker/operations/test_administration.py::test_malformed_glob_is_refused",
    "bad-target": "broker/operations/test_replaying.py::test_dead_letters_are_put_into_ordinary_queues_only",
    "hosted": "host/test_operator_verbs.py::test_connection_of_the_brokers_own_service_is_not_ended",
    "bad-schema": "host/test_broker_verbs.py::test_a_schema_that_cannot_be_taken_in_is_refused_with_why",
    "bad-file": "host/test_broker_verbs.py::test_rights_are_read_again_when_somebody_asks_who_may",
    "not-copied": "host/test_operator_verbs.py::test_store_is_copied_into_the_folder_that_was_set",
    "denied": ("broker/server/test_tls.py::test_deny_list_is_taken_up_by_reload", "denied: certificate"),
    "expired": (
        "broker/server/test_tls.py::test_certificate_that_has_expired_does_not_come_in_by_a_session_of_tls_1_2"
    ),
    "session": (
        "broker/core/test_intruders.py::test_session_of_another_principal_is_not_taken_over",
        "the session cannot be had",
    ),
    "memory": (
        "faults/test_peers_take_turns.py::test_snapshot_for_which_there_is_no_room_is_refused_and_leaves_nothing",
        "the broker has no room for all that you would be told",
    ),
    **dict.fromkeys(
        (
            "too-many-connections",
            "too-many-destinations",
            "too-many-globs",
            "too-many-inboxes",
            "too-many-sessions",
            "too-many-subscriptions",
            "exclusive",
            "glob",
            "transaction",
        ),
        "broker/core/test_refusal_codes.py::test_refusal_has_its_code",
    ),
    "ignored": (
        "rpc/client/test_reconnecting.py::test_subscription_that_is_refused_then_fails_alone",
        "ignored: SUBSCRIBE",
    ),
    "unanswered": "stomp/client/test_subscription.py::test_unanswered_subscribe_is_refused_and_unsubscribed",
    "no-last-values": (
        "rpc/client/test_last_values.py::test_broker_without_last_values_is_named",
        "X/a: RabbitMQ/4 keeps none",
    ),
    "refused": (
        "spark/source/test_stream.py::test_query_whose_login_is_refused_fails",
        "no such login",
    ),
    "no-outcome": (
        "testing/test_fakes.py::test_calls_get_one_outcome_after_the_other",
        "no-outcome: the fake",
    ),
    "error": "rpc/wire/test_gem.py::test_error_of_the_gem_is_raised_with_its_text",
}


@functools.cache
def modules() -> dict[str, ast.Module]:
    paths = sorted((ROOT / "nebula").rglob("*.py"))
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}
    return {path: ast.parse(text) for path, text in found.items() if path != TABLE}


@functools.cache
def constants() -> dict[str, str]:
    """Texts that modules give a name to in capitals."""
    return {
        target.id: node.value.value
        for module in modules().values()
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.isupper()
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def codes_of(value: ast.expr) -> set[str] | None:
    """The codes that an expression may be; None: it is known only when it runs."""
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in constants():
            return {constants()[name]}
        case ast.IfExp(body=body, orelse=orelse):
            both = codes_of(body), codes_of(orelse)
            return None if both[0] is None or both[1] is None else both[0] | both[1]
    return None


def raised_in(path: str, node: ast.AST, function: str = "") -> Iterator[tuple[str, set[str] | None]]:
    """Each place within a node that says a code: `PATH::FUNCTION`, and which."""
    place = f"{path}::{function}"
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            function = node.name
            taken = node.args
            by_place = [*taken.posonlyargs, *taken.args]
            pairs = [
                *zip(by_place[len(by_place) - len(taken.defaults) :], taken.defaults, strict=True),
                *zip(taken.kwonlyargs, taken.kw_defaults, strict=True),
            ]
            for argument, default in pairs:
                # `VerbError` itself has an empty one by default.
                is_given = default is not None and ast.unparse(default) not in ("None", "''")
                if argument.arg == "code" and default is not None and is_given:
                    yield f"{path}::{function}", codes_of(default)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in WITH_A_CODE:
            given = [each.value for each in node.keywords if each.arg == "code"]
            if not given and name in ERRORS:
                given = node.args[:1]
            for value in given:
                yield place, codes_of(value)
        case ast.ClassDef():
            for inner in node.body:
                if isinstance(inner, ast.Assign) and ast.unparse(inner.targets[0]) == "code":
                    yield f"{path}::{node.name}", codes_of(inner.value)
        case ast.Return(value=ast.Constant() | ast.IfExp() as value) if function.startswith("_code"):
            yield place, codes_of(value)
    for child in ast.iter_child_nodes(node):
        yield from raised_in(path, child, function)


@functools.cache
def raised() -> list[tuple[str, set[str] | None]]:
    return [each for path, module in modules().items() for each in raised_in(path, module)]


def test_each_code_that_is_raised_is_in_a_table() -> None:
    known = {row.code for row in ROWS}

    assert [(place, codes) for place, codes in raised() if codes is not None and not codes <= known] == []
    assert set().union(*NOT_LITERAL.values()) <= known


def test_only_these_functions_say_codes_that_they_do_not_write_out() -> None:
    assert {place for place, codes in raised() if codes is None} == set(NOT_LITERAL)


def test_each_code_of_the_tables_is_raised() -> None:
    said = set().union(*(codes for _, codes in raised() if codes is not None), *NOT_LITERAL.values())

    assert [row.code for row in ROWS if row.code not in said] == []


def page(name: str) -> str:
    return (ROOT / "docs" / "how-to" / name).read_text(encoding="utf-8")


def test_page_of_jobs_has_the_rows_of_codes_of_results() -> None:
    rows = [f"| `{row.code}` | {row.meaning} |" for row in RESULT_CODES.values()]

    assert [row for row in rows if row not in page("jobs.md").splitlines()] == []


def test_page_of_http_has_every_code_that_the_gateway_replies_with_and_no_other() -> None:
    made = {
        code
        for module in modules().values()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("problem", "Problem")
        for code in (codes_of(node.args[1]) if len(node.args) > 1 else None) or ()
    }
    rows = re.findall(r"^\| (`[^|]+`) \| [45]\d\d \|", page("http.md"), re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`([\w-]+)`", row)}

    assert made <= listed
    assert sorted(listed - made - {row.code for row in ROWS}) == []


def test_code_has_one_row() -> None:
    assert Counter(row.code for row in ROWS) == {
        row.code: 2 if row.code in IN_TWO_TABLES else 1 for row in ROWS
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_row_says_what_happened_and_what_to_do(row: ErrorCode) -> None:
    assert re.fullmatch(r"[A-Z][^:]+: [^:]{8,}\.", row.meaning)


@functools.cache
def source_of(path: str, test: str) -> str:
    """A test with its parameters; and where these have a name in capitals, what that stands for."""
    text = (ROOT / "tests" / path).read_text(encoding="utf-8")
    body = ast.parse(text).body
    (found,) = [
        node
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test
    ]
    named = {
        name.id for part in found.decorator_list for name in ast.walk(part) if isinstance(name, ast.Name)
    }
    given = [
        node for node in body if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in named
    ]
    return "\n".join(ast.unparse(node) for node in (found, *given))


def test_each_code_has_a_test_that_provokes_it() -> None:
    assert set(PROVOKED) == {row.code for row in ROWS}


@pytest.mark.parametrize("code", PROVOKED)
def test_test_that_provokes_a_code_says_it(code: str) -> None:
    place = PROVOKED[code]
    place, words = (place, None) if isinstance(place, str) else place

    source = source_of(*place.split("::"))
    assert re.search(rf"(['\"]){code}\1|(['\"]){code}: ", source) if words is None else words in source
