"""Errors that Nebula raises. The bottom layer: nothing is imported."""

from __future__ import annotations

from typing import Any, TypeVar

_E = TypeVar("_E", bound=BaseException)


class NebulaError(Exception):
    """The root of all errors that Nebula raises on purpose."""


# The side at fault decides: a remote error closes the connection, a local one leaves it as it was.
class ProtocolError(NebulaError):
    """A STOMP rule was broken. `str()` names what was wrong and never holds a body.

    Attributes:
        receipt: the receipt header of the frame at fault, if it was read; the ERROR repeats it.
    """

    def __init__(self, message: str, *, receipt: str | None = None) -> None:
        super().__init__(message)
        self.receipt = receipt


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule: the connection has to be closed."""


class LocalProtocolError(ProtocolError):
    """The calling program did something that is not allowed now. Nothing was sent."""


class ServerError(NebulaError):
    """The broker sent an ERROR frame and closes the connection.

    Attributes:
        message: its `message` header, a short text.
        detail: its body as text, possibly empty.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        # Many brokers repeat the `message` header as the body.
        super().__init__(f"{message}: {detail}" if detail and detail != message else message)
        self.message = message
        self.detail = detail


class ConnectionLost(NebulaError):
    """The connection ended. Whether frames in flight took effect is unknown."""


# A `ConnectionLost`, because a caller that handles one has to handle the other. Here nothing was sent.
class ConnectFailed(ConnectionLost):
    """No session could be opened: nothing listens there, the attempt timed out, or the broker refused."""


# The connection stays: the broker refuses one request (D.6).
class Refused(NebulaError):
    """A request was refused: a SUBSCRIBE was ignored, or a policy of the broker forbids it.

    Attributes:
        code: a stable kebab-case word to branch on.
        detail: a text for people.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Rejected(NebulaError):
    """The broker rejected a SEND: it had no effect, and no subscriber will ever receive it.

    Attributes:
        verdict: one of `rejected-…`.
        destination: of the message.
        near: a service with a similar name that the caller may call, or None.
    """

    # Set by the client, which asks the broker for the names of services.
    near: str | None = None

    def __init__(self, verdict: str, destination: str) -> None:
        super().__init__(f"{destination}: {verdict}")
        self.verdict = verdict
        self.destination = destination

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.near is None else f"{text}; did you mean {self.near!r}?"


class NoResponder(Rejected):
    """The service's queue has no consumer. Nothing was stored; it is safe to call again."""


class RemoteError(NebulaError):
    """The other side replied with `error`.

    Attributes:
        code: a stable kebab-case word to branch on.
        message: a text for people.
        details: what the code's documentation says, often a list of fields.
        retryable: the same request may succeed later.
    """

    def __init__(self, code: str, message: str, *, details: Any = None, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details
        self.retryable = retryable


# Also the built-in `TimeoutError`, so that one `except` covers every time limit around a call.
class CallTimeout(NebulaError, TimeoutError):
    """No reply came in time. The request may still be running, or may never have started."""


# The caller learns at once what it would otherwise learn after its timeout.
class CircuitOpen(NebulaError):
    """The client's circuit breaker is open: too many calls in a row failed, and this one was not sent.

    Attributes:
        destination: of the calls that failed.
        failures: the number of calls that failed in a row.
        retry_after: seconds until a call is let through again; 0 while one is on its way.
    """

    def __init__(self, destination: str, failures: int, retry_after: float) -> None:
        when = f"for {retry_after:.1f} s" if retry_after else "until the call that tries it is back"
        super().__init__(
            f"{destination} failed {failures} times: the circuit is open {when}, nothing was sent"
        )
        self.destination = destination
        self.failures = failures
        self.retry_after = retry_after


class JobError(NebulaError):
    """Raised by a job's own code to end it as `failed` with a text (and code) for its caller.

    Attributes:
        message: a text for people.
        code: a stable kebab-case word to branch on.
    """

    def __init__(self, message: str, *, code: str = "job") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class JobEnded(NebulaError):
    """A job ended in a state other than `done`.

    Attributes:
        job: its id, `<service>/<ulid>`.
        state: the end state: failed, cancelled, timed_out, lost or expired.
        code: a stable kebab-case word; `message` a text for people.
    """

    def __init__(self, job: str, state: str, *, code: str, message: str) -> None:
        super().__init__(f"{job} {state}: {message}")
        self.job = job
        self.state = state
        self.code = code
        self.message = message


class SettingsError(NebulaError):
    """Settings that cannot be used. The text names the file, the place, the mistake and its remedy."""


class OtherContract(NebulaError):
    """Another instance of an exclusive service has a different contract; the text names it."""


class MissingExtra(SettingsError, ModuleNotFoundError):
    """The library of an extra is not installed; the text says what to install.

    It is also an `ImportError`, for code that tests whether something can be imported.
    """


class OutsideBroker(SettingsError):
    """A connection to a broker other than the block's own. The text says how to allow it.

    Tests (`TestClient`, `nebula_serve`) and `nebula.embedded` connect to their own broker only, so that they
    do not reach a live service by accident.
    """


class StoreError(NebulaError):
    """The store cannot be written or read. The text says where, why and what to do."""


class AvroError(NebulaError):
    """An invalid datum, envelope or schema. The text says what is wrong, and never contains a body."""


def fresh(error: _E) -> _E:
    """A copy of an error for another caller.

    Raising an error adds frames to its traceback. One error raised by many callers would keep the local
    variables of all of them alive.
    """
    # Not `type(error)(…)` or `copy.copy`, because constructors of subclasses take other arguments than
    # `args`.
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made
