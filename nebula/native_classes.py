"""How mypyc compiles a class, where its defaults do not do.

`mypyc_attr` is that of `mypy_extensions`, which the compiler looks for. Installations do not need that
package, as the decorator does nothing when a program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

T = TypeVar("T")

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: object) -> Callable[[T], T]:
        """Leave a class as it is."""
        return lambda cls: cls
