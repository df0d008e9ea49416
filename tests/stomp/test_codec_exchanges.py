"""The heads of requests and replies: what differs on each of them is read apart."""

from __future__ import annotations

from nebula.stomp.codec import FrameLimits, FrameParser
from nebula.stomp.dialects import V1_2
from nebula.stomp.frames import CLIENT_COMMANDS


def test_exchange_receipt_and_length_together_do_not_pass_the_limit_of_headers() -> None:
    limits = FrameLimits(max_headers=8)
    extra = "".join(f"h{number}:x\n" for number in range(5))
    head = f"SEND\ndestination:/queue/a\n{extra}"
    parser = FrameParser(CLIENT_COMMANDS, limits)
    parser.begin(V1_2)

    assert len(parser.feed(f"{head}content-length:0\nneb-reply-id:1\n\n\0".encode())) == 1
    parser.feed(f"{head}receipt:r\ncontent-length:0\nneb-reply-id:2\n\n\0".encode())

    assert parser.failure is not None
    assert "more than 8 headers" in str(parser.failure)


def test_first_of_two_lengths_counts_beside_an_exchange_id() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    parser.begin(V1_2)

    frames = parser.feed(
        b"SEND\ndestination:/queue/a\ncontent-length:2\ncontent-length:x\nneb-reply-id:1\n\nhi\0"
    )

    assert parser.failure is None
    assert [frame.body for frame in frames] == [b"hi"]


def test_exchange_id_stands_apart_and_the_rest_of_the_head_is_shared() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    parser.begin(V1_2)

    requests = [
        f"SEND\ndestination:/queue/a\ncontent-length:{size}\nneb-reply-id:id\\c{size}\n\n{'x' * size}\0"
        for size in range(3)
    ]
    frames = parser.feed("".join(requests).encode())

    assert [frame.exchange for frame in frames[1:]] == [("neb-reply-id", "id:1"), ("neb-reply-id", "id:2")]
    assert frames[1].headers is frames[2].headers
    assert [frame.all_headers()["neb-reply-id"] for frame in frames] == ["id:0", "id:1", "id:2"]


def test_receipt_stands_apart_and_the_rest_of_the_head_is_shared() -> None:
    parser = FrameParser(CLIENT_COMMANDS)
    parser.begin(V1_2)

    frames = parser.feed(b"".join(b"SEND\ndestination:/queue/a\nreceipt:%d\n\nx\0" % at for at in range(3)))

    assert [frame.receipt for frame in frames] == ["0", "1", "2"]
    assert frames[1].headers is frames[2].headers
    assert dict(frames[2].headers) == {"destination": "/queue/a"}
