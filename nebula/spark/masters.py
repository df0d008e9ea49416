"""Where Spark may run, as it is declared: which texts are a master's address at all."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["check_master", "shown"]

_HOST: Final = r"([\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"

# As Spark reads them; a Kubernetes API may have a path.
_MASTER: Final = re.compile(
    r"local|local\[([1-9]\d*|\*)(\s*,\s*\d+)?\]|local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*[1-9]\d*\s*\]"
    rf"|spark://{_HOST}(,{_HOST})*|yarn|k8s://(https?://)?[^\s;?#@/]+(/[^\s;?#@]*)?"
)

_PLACES: Final = "local[*], local[4], spark://host:7077, yarn or k8s://https://host:6443"


def check_master(master: str, source: str) -> None:
    """Check that Spark knows such a master, which it would say itself some ten seconds later.

    Args:
        master: the address.
        source: who says so, for the error.

    Raises:
        ValueError: it does not.
    """
    if not _MASTER.fullmatch(master):
        more = "; a Connect server is sc://host:15002" if source == "NEBULA_SPARK" else ""
        raise ValueError(f"{source} is {shown(master)}, which is no master of Spark's: give {_PLACES}{more}")


def shown(address: str) -> str:
    """As much of a mistaken address as cannot be a password, a token or the name of a user."""
    begin = re.match(r"[^:/;?=@#]*[:/]*", address)
    assert begin is not None  # it matches nothing, too
    return repr(begin[0] + ("…" if begin.end() < len(address) else ""))
