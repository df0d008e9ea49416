"""Header blocks that many frames share.

Not compiled: mypyc gives a subclass of `dict` no class-level defaults, and `memo` is one.
"""

from __future__ import annotations

from typing import Any


class Headers(dict[str, str]):
    """The headers of one parsed frame, without `receipt`; the first of repeated ones counts.

    Frames with the same header block share one object: treat it as read-only.

    Attributes:
        memo: a place for the layer that reads the headers, so that what it derives from a block is computed
            once for all frames that share it. None until that layer sets it.
    """

    # No slot and no `__init__`: made once for each frame, by the C constructor of dict alone.
    memo: Any = None
