"""Failures of jobs: the stable code, the one line for people and the SQLSTATE of an exception.

Spark's exceptions are read by their shape, so that this module needs no pyspark.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from nebula.errors import JobError
from nebula.rpc.errors import VerbError

_MAX_MESSAGE_CHARS = 300
_MAX_TRACE_CHARS = 64 * 1024

# Spark's texts end with hints for the person who wrote the query; the caller of a verb cannot set
# spark.sql.ansi.enabled, nor read a query context.
_HINT = re.compile(
    r"\s*(If necessary,? set |If you did not qualify |To return NULL instead|Use `\w+` to tolerate |"
    r"== SQL|SQLSTATE: \w).*$",
    re.DOTALL,
)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error)\w*:\s*")

# What our readers say of data, in a worker's traceback: the name of the file is in it.
_DATA_ERROR = re.compile(r"^nebula\.spark\.reading\.errors\.\w+: (.+)$", re.MULTILINE)

# What Spark's own readers say of a file; what is wrong with it says the deepest cause.
_UNREADABLE = re.compile(r"Encountered error while reading file (?:file:(?://)?)?(\S+)\.\s")

# The ways in which py4j says that the JVM does not answer; only then it is worth asking whether it lives.
_CONNECTION_ERRORS = ("Py4JNetworkError", "Py4JError")

# How gRPC reports a server out of reach, and a server a session that it does not have.
_SERVER_ERRORS = ("UNAVAILABLE", "failed to connect", "INVALID_HANDLE.SESSION_")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed. `message` is one short line without a stack; `trace` belongs in the job's log."""

    code: str
    message: str
    sqlstate: str | None
    trace: str


class ResultError(Exception):
    """What the job returned cannot travel: too large, or not a value that JSON has."""

    def __init__(self, message: str, *, code: str = "job") -> None:
        super().__init__(message)
        self.code = code


def describe(error: BaseException) -> Failure:
    """Map any exception of a job (never raises; unknown ones are the job's own, code `job`)."""
    texts = [text for text in _texts(error) if text]
    sqlstate = _sqlstate(error, texts)
    code = _code(error, texts, sqlstate)
    trace = "".join(traceback.format_exception(error))[-_MAX_TRACE_CHARS:]
    return Failure(code, _one_line(_message(error, code, texts)), sqlstate, trace)


def may_be_engine_loss(error: BaseException) -> bool:
    """Whether this exception may come from a JVM that is gone: ask the JVM before believing it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, ConnectionError | EOFError) or not names.isdisjoint(_CONNECTION_ERRORS)


def is_death_of_java(error: BaseException) -> bool:
    """Whether this exception of a start says that the JVM has ended, and not that it refused something."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return "Py4JNetworkError" in names or "JAVA_GATEWAY_EXITED" in str(error)


def may_be_server_loss(error: BaseException) -> bool:
    """Whether this exception may come from a Connect server that is gone, or that is another one by now."""
    is_clients = type(error).__module__ == "pyspark.errors.exceptions.connect"
    return is_clients and any(sign in str(error) for sign in _SERVER_ERRORS)


# Callers act on the code (retry, correct the query, correct the data), so codes must not change.
def _code(error: BaseException, texts: list[str], sqlstate: str | None) -> str:
    # By text where Spark has one exception for many things; the order is from the special to the general.
    everything = "\n".join(texts)
    if isinstance(error, JobError | VerbError | ResultError):
        return error.code
    if _DATA_ERROR.search(everything):
        return "data"
    if "Python worker exited unexpectedly" in everything:
        return "worker-crashed"
    if "spark.driver.maxResultSize" in everything:
        return "result-too-large"
    if isinstance(error, MemoryError) or "Java heap space" in everything or "OutOfMemory" in everything:
        return "out-of-memory"
    if type(error).__name__ == "PythonException" or sqlstate == "38000":
        return "python"
    if _unreadable(error, texts):
        return "data"
    if sqlstate is not None:
        return _code_of_sqlstate(sqlstate)
    return "job"


def _code_of_sqlstate(sqlstate: str) -> str:
    # 42: the query is wrong whatever the data; 22 and P0001: a row is; the rest is Spark's own.
    if sqlstate.startswith("42"):
        return "analysis"
    return "data" if sqlstate.startswith("22") or sqlstate == "P0001" else "job"


# Only in Spark's texts: an exception of the user's own code may contain "SQLSTATE" too.
def _sqlstate(error: BaseException, texts: list[str]) -> str | None:
    told = _ask(error, "getSqlState")
    if told:
        return str(told)
    found = (_SQLSTATE.search(text) for text in texts if _is_from_spark(error))
    return next((match[1] for match in found if match), None)


def _message(error: BaseException, code: str, texts: list[str]) -> str:
    if code == "data" and (told := _DATA_ERROR.search("\n".join(texts))):
        return told[1]
    if code == "data" and (path := _unreadable(error, texts)):
        return f"{path}: {texts[-1]}"
    if code == "python":
        return _python_message(texts)
    if code == "worker-crashed":
        return "a Python worker process died while it ran the job's code"
    if code == "out-of-memory":
        return "the engine ran out of memory"
    if isinstance(error, JobError | VerbError | ResultError):
        return str(error)
    if not _is_from_spark(error):
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    # The deepest cause that has a text is what went wrong; what stands above it tells the way there.
    return _HINT.sub("", _CONDITION.sub("", texts[-1]))


def _unreadable(error: BaseException, texts: list[str]) -> str | None:
    """The file that one of Spark's own readers could not read."""
    named = _UNREADABLE.search("\n".join(texts)) if _is_from_spark(error) else None
    return None if named is None else unquote(named[1])


def _python_message(texts: list[str]) -> str:
    """The last line of the worker's traceback, with the place in the job's code before it."""
    lines = [line.strip() for text in texts for line in text.splitlines()]
    # A traceback ends with what was raised, but texts around it may follow; the last match is it.
    raised = [line for line in lines if re.match(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b", line)]
    places = [line for line in lines if line.startswith("File ") and "/pyspark/" not in line]
    if not raised:
        return texts[0] if texts else "the job's Python code failed"
    place = re.match(r'File "(?:.*/)?([^"/]+)", line (\d+)', places[-1]) if places else None
    return f"{raised[-1]} ({place[1]}:{place[2]})" if place else raised[-1]


def _texts(error: BaseException) -> Iterator[str]:
    """The exception's own text, then those of its Java causes, outermost first."""
    yield str(_ask(error, "desc") or error)
    java = getattr(error, "java_exception", None)
    for _ in range(20):  # a chain of causes may be a ring
        if java is None:
            return
        yield _JAVA_CLASS.sub("", str(_ask(java, "getMessage") or ""))
        java = _ask(java, "getCause")


def _is_from_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _ask(thing: Any, name: str) -> Any:
    """Ask an object of another library; it may lack the method, or its JVM may be gone."""
    try:
        found = getattr(thing, name, None)
        return found() if callable(found) else found
    except Exception:  # the question must not hide the failure that it is about
        return None


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE_CHARS else line[: _MAX_MESSAGE_CHARS - 1] + "…"
