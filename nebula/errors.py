"""Every error that Nebula raises. The bottom layer: plain values in, nothing imported."""

from __future__ import annotations

from typing import Any, TypeVar

_E = TypeVar("_E", bound=BaseException)


class NebulaError(Exception):
    """The root of all errors that Nebula raises on purpose."""


class ProtocolError(NebulaError):
    """A STOMP rule was broken. `str()` names what was wrong and never holds a body.

    Attributes:
        receipt: the receipt header of the frame at fault, if it was read; an ERROR answers it.
    """

    def __init__(self, message: str, *, receipt: str | None = None) -> None:
        super().__init__(message)
        self.receipt = receipt


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule: the connection has to be closed."""


class LocalProtocolError(ProtocolError):
    """Our own side tried what is not legal now: a bug at the caller's, nothing was sent."""


class ServerError(NebulaError):
    """The broker answered with an ERROR frame and closes the connection.

    Attributes:
        message: its `message` header, a short text.
        detail: its body as text, possibly empty.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(f"{message}: {detail}" if detail and detail != message else message)
        self.message = message
        self.detail = detail


class ConnectionLost(NebulaError):
    """The connection ended. What was in flight may or may not have had its effect."""


class ConnectFailed(ConnectionLost):
    """No session could be had: nobody listens there, it timed out, or the broker refused."""


class Refused(NebulaError):
    """A request was turned down: a SUBSCRIBE ignored, or a broker's policy.

    Attributes:
        code: a stable kebab-case word to branch on.
        detail: a text for people.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Rejected(NebulaError):
    """The broker's verdict on a SEND: it had no effect and nobody will ever receive it.

    Attributes:
        verdict: one of `rejected-…`.
        destination: where it was to go.
        near: a service with a similar name that the caller may call, or None.
    """

    near: str | None = None

    def __init__(self, verdict: str, destination: str) -> None:
        super().__init__(f"{destination}: {verdict}")
        self.verdict = verdict
        self.destination = destination

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.near is None else f"{text}; did you mean {self.near!r}?"


class NoResponder(Rejected):
    """Nobody listens on the service's queue. Nothing was stored; it is safe to call again."""


class RemoteError(NebulaError):
    """The other side answered `error`.

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


class CallTimeout(NebulaError, TimeoutError):
    """No answer came in time. The request may still be running or may never have started."""


class CircuitOpen(NebulaError):
    """The client's circuit breaker is open: so many calls there failed that this one was not even sent.

    Attributes:
        destination: that failed.
        failures: so many calls failed, one after the other.
        retry_after: seconds until one is let through again; 0 while one is on its way.
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
    """A job ended otherwise than `done`.

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
    """Settings that cannot be used: says file, place, what is wrong and what is right."""


class OtherContract(NebulaError):
    """Another instance of an exclusive service has a different contract; the text names it."""


class MissingExtra(SettingsError, ModuleNotFoundError):
    """The library of an extra is not installed; the text says what to install.

    It is also an `ImportError`, for code that tries whether something can be imported.
    """


class OutsideBroker(SettingsError):
    """A connection to another broker than the one of the block: says how to allow it.

    Tests (`TestClient`, `nebula_serve`) and `nebula.embedded` connect to their own broker alone, so that none
    reaches a live service by accident.
    """


class StoreError(NebulaError):
    """What must survive cannot be kept or read: says where, why and what to do."""


class AvroError(NebulaError):
    """A datum, an envelope or a schema that is not what it should be. Says what; never holds a body."""


def fresh(error: _E) -> _E:
    """The same error for one more who is to get it: whoever raises an error adds his frames to it.

    One for all would hold what each of their calls had at hand, for as long as anybody holds the error.
    """
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made
