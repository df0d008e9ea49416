"""Exit statuses of the commands, and the sentence that goes with each failure."""

from __future__ import annotations

from enum import IntEnum
from ssl import SSLError

from nebula.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    NebulaError,
    NoResponder,
    Refused,
    Rejected,
    RemoteError,
    ServerError,
    SettingsError,
)
from nebula.visible import visible


# Few, so that scripts can branch on each; the sentence and the error's code have the details.
class Exit(IntEnum):
    """What a script can branch on. The help of `nebula` lists the same."""

    OK = 0
    FAILED = 1  # the reply is an error; a job did not end as done
    USAGE = 2  # flags, parameters or settings are wrong: nothing was asked
    UNREACHED = 3  # no broker, no listener, refused, or no reply in time
    INTERRUPTED = 130  # Ctrl-C, as shells have it


class BrokenModule(NebulaError):
    """A user's module raised while it was imported.

    Attributes:
        traceback: of the user's code alone.
    """

    # Not a SettingsError: status 2 means wrong words, and here the code is wrong.
    def __init__(self, target: str, traceback: str) -> None:
        super().__init__(f"{target}: the module cannot be imported, see above")
        self.traceback = traceback


_UNREACHED = (CallTimeout, ConnectionLost, Refused, Rejected, ServerError)


def unwrapped(failure: Exception) -> Exception:
    """The failure itself; of what task groups wrap, the only one, or the first where all were foreseen."""
    if not isinstance(failure, ExceptionGroup):
        return failure
    found = [unwrapped(each) for each in failure.exceptions]
    # A lost connection fails all calls, and one sentence is enough. It does not hide a bug among them.
    if len(found) == 1 or all(isinstance(each, NebulaError) for each in found):
        return found[0]
    return failure


def exit_of(error: NebulaError) -> Exit:
    """The status for a failure that was foreseen."""
    # First: a wrong address is a mistake in the settings, even though nothing was reached.
    if isinstance(error, SettingsError):
        return Exit.USAGE
    return Exit.UNREACHED if isinstance(error, _UNREACHED) else Exit.FAILED


def sentence_of(error: NebulaError) -> str:
    """What a person is told: never a traceback, and nothing of a peer's that a terminal would obey."""
    return visible(_sentence_of(error), keep="\n")


def _sentence_of(error: NebulaError) -> str:
    match error:
        case NoResponder(near=str(near)):
            return f"no service listens on {error.destination}; did you mean {near}?"
        case NoResponder():
            return f"no service listens on {error.destination}; is the service running?"
        case ConnectFailed(__cause__=SSLError()):
            return str(error)  # There is one; it is a matter of trust.
        # SSLError is an OSError too, but is matched above: a broker is running there.
        case ConnectFailed(__cause__=OSError()):
            return f"{error}; is a broker running there (nebula broker)?"
        # A single detail is in the message already.
        case RemoteError(details=[_, _, *_]):
            return "\n  ".join((str(error), *(_detail(detail) for detail in error.details)))
        case _:
            # An exception may have no text.
            return str(error) or type(error).__name__


def _detail(detail: object) -> str:
    # `bad-parameters` lists fields; what else a service sends is shown as it is.
    match detail:
        case {"field": field, "message": message}:
            return f"{field}: {message}"
        case _:
            return str(detail)
