"""How long a frame may be on its way."""

from __future__ import annotations


class FrameClock:
    """Watches the frame of which a part has come.

    An octet now and then is as good as a heart-beat: without this clock a peer could keep what it holds of
    our memory for ever.

    Args:
        timeout: seconds from a frame's first octet to its last.
    """

    __slots__ = ("_begun_at", "_timeout")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._begun_at: float | None = None

    def note(self, now: float, *, is_within_frame: bool) -> None:
        """Octets have come, and have ended within a frame, or not."""
        if not is_within_frame:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = now

    def stop(self) -> None:
        """The frame is whole, or is read no further for now. The next `note` begins anew."""
        self._begun_at = None

    def is_overdue(self, now: float) -> bool:
        """The frame at hand began too long ago."""
        return self._begun_at is not None and now >= self._begun_at + self._timeout

    def deadline(self, now: float) -> float:
        """When to look at `is_overdue` next: a frame that begins after this is late then, or later."""
        return (now if self._begun_at is None else self._begun_at) + self._timeout
