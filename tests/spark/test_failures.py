"""What exceptions of a job mean, told by their shape: no Spark needed."""

from __future__ import annotations

import pytest

from nebula.errors import JobError
from nebula.rpc.errors import CODES, VerbError
from nebula.spark.host.failures import ResultError, describe, may_be_engine_loss, may_be_server_loss


class JavaThrowable:
    """A Java exception as py4j shows it."""

    def __init__(self, message: str | None, cause: JavaThrowable | None = None) -> None:
        self._message, self._cause = message, cause

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self._message

    def getCause(self) -> JavaThrowable | None:  # noqa: N802 - Java's name
        return self._cause


class SparkError(Exception):
    """An exception of PySpark's: it has a text and maybe a state."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate

    def getSqlState(self) -> str | None:  # noqa: N802 - PySpark's name
        return self.sqlstate


class PythonException(SparkError):
    """PySpark's name for what was raised in a worker."""


class Py4JJavaError(Exception):
    """py4j's name for whatever the JVM threw: its text is the whole stack."""

    def __init__(self, java_exception: JavaThrowable) -> None:
        super().__init__("An error occurred while calling o1.count")
        self.java_exception = java_exception


class Py4JNetworkError(Exception):
    """py4j's name for a JVM that does not answer."""


for kind in (SparkError, PythonException):
    kind.__module__ = "pyspark.errors.exceptions.captured"
for error in (Py4JJavaError, Py4JNetworkError):
    error.__module__ = "py4j.protocol"

WORKER_TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/app/verbs.py", line 41, in parse
    raise ValueError("meter file is truncated")
  File "/site-packages/pyspark/worker.py", line 1200, in main
    process()
ValueError: meter file is truncated
"""

DEAD_WORKER = JavaThrowable(
    "Job aborted due to stage failure: Task 0 failed",
    JavaThrowable("Python worker exited unexpectedly (crashed)", JavaThrowable(None)),
)
DAMAGED_FILE = JavaThrowable(
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a%20b.avro. SQLSTATE: KD001",
    JavaThrowable("invalid distance too far back", JavaThrowable(None)),
)
TOO_LARGE = JavaThrowable(
    "Total size of serialized results (20.0 MiB) is bigger than spark.driver.maxResultSize (16.0 MiB)"
)


@pytest.mark.parametrize(
    ("error", "code", "message", "sqlstate"),
    [
        (
            SparkError(
                "[TABLE_OR_VIEW_NOT_FOUND] The table `x` cannot be found. SQLSTATE: 42P01;\n'Plan", "42P01"
            ),
            "analysis",
            "The table `x` cannot be found.",
            "42P01",
        ),
        (
            SparkError("[PARSE_SYNTAX_ERROR] Syntax error at 'x'.\n== SQL (line 1)", "42601"),
            "analysis",
            None,
            "42601",
        ),
        (
            SparkError(
                "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. "
                'If necessary set "spark.sql.ansi.enabled" to "false". SQLSTATE: 22012',
                "22012",
            ),
            "data",
            "Division by zero.",
            "22012",
        ),
        (
            SparkError("[USER_RAISED_EXCEPTION] no readings SQLSTATE: P0001", "P0001"),
            "data",
            "no readings",
            "P0001",
        ),
        (
            PythonException(WORKER_TRACEBACK, "38000"),
            "python",
            "ValueError: meter file is truncated (verbs.py:41)",
            "38000",
        ),
        # Spark Connect tells neither condition nor state of these.
        (
            PythonException(WORKER_TRACEBACK),
            "python",
            "ValueError: meter file is truncated (verbs.py:41)",
            None,
        ),
        (
            Py4JJavaError(DEAD_WORKER),
            "worker-crashed",
            "a Python worker process died while it ran the job's code",
            None,
        ),
        (Py4JJavaError(TOO_LARGE), "result-too-large", None, None),
        (
            Py4JJavaError(JavaThrowable("java.lang.OutOfMemoryError: Java heap space")),
            "out-of-memory",
            "the engine ran out of memory",
            None,
        ),
        (MemoryError(), "out-of-memory", None, None),
        (
            Py4JJavaError(JavaThrowable("org.apache.spark.SparkException: Job 2 failed.\n  SQLSTATE: XXKDA")),
            "job",
            "Job 2 failed.",
            "XXKDA",
        ),
        (Py4JJavaError(DAMAGED_FILE), "data", "/a b.avro: invalid distance too far back", "KD001"),
        (JobError("no readings", code="empty"), "empty", "no readings", None),
        (VerbError("not-found", "no such meter"), "not-found", "no such meter", None),
        (ResultError("too long", code="result-too-large"), "result-too-large", "too long", None),
        (KeyError("machine"), "job", "KeyError: 'machine'", None),
        (KeyboardInterrupt(), "job", "KeyboardInterrupt", None),
        # A job's own text may look like Spark's; it is not.
        (ValueError("SQLSTATE: 42000"), "job", "ValueError: SQLSTATE: 42000", None),
    ],
)
def test_exception_becomes_a_code_a_line_and_a_state(
    error: BaseException, code: str, message: str | None, sqlstate: str | None
) -> None:
    failure = describe(error)

    assert (failure.code, failure.sqlstate) == (code, sqlstate)
    assert message is None or failure.message == message
    assert "\n" not in failure.message


@pytest.mark.parametrize("code", ["analysis", "data", "python", "worker-crashed", "result-too-large", "job"])
def test_codes_are_those_of_the_table_that_callers_know(code: str) -> None:
    assert code in CODES


def test_message_is_cut_and_the_trace_is_whole() -> None:
    def fail() -> None:
        raise ValueError("x" * 1000)

    with pytest.raises(ValueError, match="x") as caught:
        fail()
    failure = describe(caught.value)

    assert len(failure.message) == 300
    assert failure.message.endswith("…")
    assert failure.trace.startswith("Traceback")
    assert "in fail" in failure.trace


def test_object_whose_jvm_is_gone_is_still_described() -> None:
    class Gone:
        def __getattr__(self, name: str) -> None:
            raise ConnectionRefusedError

    error = Py4JJavaError(JavaThrowable("x"))
    error.java_exception = Gone()  # type: ignore[assignment]  # py4j's objects fail like this

    assert describe(error).code == "job"


@pytest.mark.parametrize(
    ("error", "may_be"),
    [
        (ConnectionRefusedError(), True),
        (Py4JNetworkError(), True),
        (EOFError(), True),
        (ValueError(), False),
        (SparkError("x"), False),
    ],
)
def test_only_an_error_of_the_connection_may_be_the_engines_end(error: Exception, *, may_be: bool) -> None:
    assert may_be_engine_loss(error) is may_be


@pytest.mark.parametrize(
    ("module", "text", "may_be"),
    [
        ("pyspark.errors.exceptions.connect", "status = StatusCode.UNAVAILABLE", True),
        ("pyspark.errors.exceptions.connect", "[INVALID_HANDLE.SESSION_CHANGED] The handle", True),
        ("pyspark.errors.exceptions.connect", "[TABLE_OR_VIEW_NOT_FOUND] The table", False),
        ("tests", "UNAVAILABLE", False),
    ],
)
def test_only_a_clients_error_of_reach_or_session_may_be_the_servers_end(
    module: str, text: str, *, may_be: bool
) -> None:
    error = type("SparkConnectGrpcException", (Exception,), {"__module__": module})(text)

    assert may_be_server_loss(error) is may_be
