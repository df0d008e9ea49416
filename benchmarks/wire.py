"""Raw STOMP 1.2 on a blocking socket: no client library's cost inside what is measured.

Frames go out as blocks of bytes that were built before the clock started. What comes in is counted by its
NULs: our bodies have none, so a frame is a NUL, wherever the chunks of TCP happen to end.
"""

from __future__ import annotations

from benchmarks.peers import Broker
from benchmarks.transports import connected

BODY = b"x" * 200
_CHUNK_BYTES = 1 << 18
_TAIL_BYTES = 600


def message(destination: str, headers: str = "", body: bytes = BODY) -> bytes:
    """A SEND with the 200-byte body that every row uses. `headers` are whole lines."""
    head = f"SEND\ndestination:{destination}\n{headers}content-length:{len(body)}\n\n"
    return head.encode() + body + b"\0"


def subscribe(destination: str, ack: str = "auto", headers: str = "", *, number: int = 0) -> bytes:
    """A SUBSCRIBE with the same window everywhere: each broker reads the header that it knows.

    `headers` are whole lines; `number` is the id, if there is more than one on a connection.
    """
    window = "prefetch-count:1000\nactivemq.prefetchSize:1000\n" if destination.startswith("/queue/") else ""
    lines = f"id:{number}\ndestination:{destination}\nack:{ack}\n{window}{headers}receipt:sub\n"
    return f"SUBSCRIBE\n{lines}\n\0".encode()


def connect_frame(broker: Broker) -> bytes:
    """CONNECT as STOMP 1.2, without heart-beats."""
    who = f"login:{broker.login}\npasscode:{broker.passcode}\n" if broker.login else ""
    return f"CONNECT\naccept-version:1.2\nhost:{broker.host}\n{who}\n\0".encode()


class Link:
    """One connection: bytes out, counted frames in.

    Attributes:
        socket: what goes out is written here.
        last: the end of what `take` has read, with a whole message in it.
        size_bytes: bytes that `take` has read.
    """

    def __init__(self, broker: Broker) -> None:
        self.socket = connected(broker)
        self._buffer = bytearray(_CHUNK_BYTES)
        self.last = b""
        self.size_bytes = 0
        self.exchange(connect_frame(broker), b"CONNECTED\n")

    def fileno(self) -> int:
        """So that a selector takes the link itself."""
        return self.socket.fileno()

    def exchange(self, frame: bytes, expected: bytes) -> bytes:
        """Send a frame and return its whole answer, which has to begin as expected."""
        self.socket.sendall(frame)
        answer = b""
        while b"\0" not in answer:
            answer += self._receive_some()
        answer = answer.lstrip(b"\n")
        if not answer.startswith(expected):
            raise ConnectionError(f"expected {expected!r}, the broker sent {answer[:300]!r}")
        return answer

    def subscribe(self, destination: str, ack: str = "auto") -> None:
        """Subscribe, and wait until the broker says so."""
        self.exchange(subscribe(destination, ack), b"RECEIPT\n")

    def take(self) -> int:
        """Read once, as much as there is, and count the frames that ended in it."""
        size = self.socket.recv_into(self._buffer)
        if size == 0:
            raise ConnectionError(f"the broker closed the connection; it sent {self.last!r}")
        # An ERROR ends a connection, and nothing follows it: its text would be in the last read.
        if self._buffer.startswith(b"ERROR"):
            raise ConnectionError(f"the broker sent {bytes(self._buffer[:300])!r}")
        self.last = bytes(self._buffer[max(0, size - _TAIL_BYTES) : size])
        self.size_bytes += size
        return self._buffer.count(0, 0, size)

    def disconnect(self) -> None:
        """Leave gracefully; messages on their way to us are read and dropped."""
        self.socket.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
        heard = b""
        while b"receipt-id:bye" not in heard:
            heard = heard[-20:] + self._receive_some()
        self.close()

    def close(self) -> None:
        """Drop the connection."""
        self.socket.close()

    def _receive_some(self) -> bytes:
        data = self.socket.recv(_CHUNK_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection")
        return data


class AckingLink(Link):
    """A consumer in `client` mode: exactly one cumulative ACK for each hundred messages, on every broker."""

    _EVERY = 100

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._rest = b""
        self._unacked = 0
        self._latest = b""

    def take(self) -> int:
        """Read once, count the messages that ended in it, and ACK those whose hundred is full."""
        data = self._receive_some()
        self.last = data[-_TAIL_BYTES:]
        self.size_bytes += len(data)
        *frames, self._rest = (self._rest + data).split(b"\0")
        if frames:
            self._acknowledge(frames)
        return len(frames)

    def acknowledge_rest(self) -> None:
        """ACK what the last, unfilled hundred holds."""
        if self._unacked:
            self.socket.sendall(ack_of(self._latest))
        self._unacked = 0

    def _acknowledge(self, frames: list[bytes]) -> None:
        due = range(self._EVERY - self._unacked - 1, len(frames), self._EVERY)
        if due:
            self.socket.sendall(b"".join([ack_of(frames[index]) for index in due]))
        self._unacked = (self._unacked + len(frames)) % self._EVERY
        # Looked at when it matters: the first frame may be a RECEIPT, which has no ACK.
        self._latest = frames[-1]


def ack_of(frame: bytes) -> bytes:
    """The ACK of a MESSAGE; in `client` mode also of all before it."""
    start = frame.find(b"\nack:") + 5
    if start < 5:
        raise ConnectionError(f"expected a MESSAGE to ACK, the broker sent {frame[:300]!r}")
    return b"ACK\nid:" + frame[start : frame.index(b"\n", start)] + b"\n\n\0"
