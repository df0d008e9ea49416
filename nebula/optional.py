"""Optional dependencies: the extra that installs a missing library.

The package alone is what callers and services need. Modules of the broker and of the commands import their
libraries as if they were always there. Where users reach such a module, a failed import is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final

from nebula.errors import MissingExtra

__all__ = ["EXTRA_OF", "explain", "needing"]

EXTRA_OF: Final[Mapping[str, str]] = {
    "argon2": "broker",
    "cryptography": "broker",
    "h11": "broker",
    "jwt": "broker",
    "prometheus_client": "broker",
    "pydantic_settings": "broker",
    "rich": "cli",
    "typer": "cli",
}
"""The extra of each library that the package alone does not install."""


# docs/decisions/0057: the base package is small, and this says which extra is missing.
def explain(error: ModuleNotFoundError, what: str) -> None:
    """Raise `MissingExtra` for a failed import of a library that an extra installs.

    Returns for any other import, such as of the user's own modules: the caller raises `error` again.

    Args:
        error: of the import.
        what: the name or command that needs the extra, the subject of the message.

    Raises:
        MissingExtra: a module of Nebula imports a library that is not installed.
    """
    library = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(library)
    # Only for imports by Nebula: an extra is no remedy for a failed `import rich` in the user's own code.
    if extra is not None and _importer(error.__traceback__).partition(".")[0] == "nebula":
        raise MissingExtra(
            f"{what} needs {library}, which is not installed: pip install 'nebula-rpc[{extra}]'",
            name=error.name,
        ) from error


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Explain a library that an import inside the block does not find.

    Args:
        extra: installs it.
        what: needs it, the subject of the sentence.

    Raises:
        MissingExtra: it is not installed. Says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        raise MissingExtra(
            f"{what} needs {library}, which is not installed: pip install 'nebula-rpc[{extra}]'",
            name=error.name,
        ) from error


def _importer(traceback: TracebackType | None) -> str:
    """The module whose import failed: that of the innermost frame outside the import system."""
    importer = ""
    # From the outermost frame to the failed import, with frames of importlib in between.
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith("importlib."):
            importer = module
        traceback = traceback.tb_next
    return importer
