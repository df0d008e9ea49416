"""Quick TCP acknowledgements for peers that wait for them.

A socket without TCP_NODELAY holds a small write back until the write before it is acknowledged (Nagle's
algorithm, RFC 896). The kernel on the broker's side delays acknowledgements by 40 ms or more, and hopes that
data for the peer carry them (RFC 1122, 4.2.3.2). Together they cost 44 ms for each frame that follows one
without a reply: a SEND behind an ACK, or a body behind its head. stomp.py and most plain sockets do that.

A peer does not say whether it has set TCP_NODELAY, but its first wait shows: after a read that the broker
wrote nothing for, nothing comes until the kernel's delay is over, and then the next frame. From then on each
read that the broker writes nothing for is acknowledged at once. This costs a system call and a packet, which
peers with TCP_NODELAY do not pay: see docs/decisions/0065.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from typing import Final

# Seconds: Linux delays acknowledgements by at least 40 ms; the loop's clock and timers are a bit coarser.
# The upper end leaves room for a round trip of 60 ms. Pauses of this length have other reasons too: then the
# peer costs a packet more for each of its reads, and nothing breaks.
_SHORTEST_WAIT_SECONDS: Final = 0.035
_LONGEST_WAIT_SECONDS: Final = 0.1

# -1: this system has no such option, and nothing happens.
_QUICK_ACK: Final[int] = getattr(socket, "TCP_QUICKACK", -1)


class TcpAcks:
    """Decides for one connection which of its reads are acknowledged at once."""

    def __init__(self) -> None:
        self._is_quick = False
        # When a read came that nothing was written for, and what had been written by then.
        self._silent_at = -math.inf
        self._written_bytes = 0

    def are_due(self, now: float, written_before: int, written_after: int) -> bool:
        """Note a read; returns whether to acknowledge it at once.

        Args:
            now: when it came.
            written_before: the bytes that the peer had been sent by then.
            written_after: the same after the read was handled; more bytes carry the acknowledgement.
        """
        is_silent = written_before == written_after
        if not self._is_quick:
            if self._written_bytes == written_before:
                waited_seconds = now - self._silent_at
                self._is_quick = _SHORTEST_WAIT_SECONDS <= waited_seconds < _LONGEST_WAIT_SECONDS
            self._silent_at = now if is_silent else -math.inf
            self._written_bytes = written_after
        return self._is_quick and is_silent


def send_ack(transport: asyncio.BaseTransport) -> None:
    """Let the kernel send the acknowledgement that it delays, if there is one."""
    found = transport.get_extra_info("socket")
    if found is None or _QUICK_ACK < 0:
        return
    # Linux only: the option is not permanent, so each acknowledgement asks for it (tcp(7)).
    with contextlib.suppress(OSError):  # the peer may be gone
        found.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
