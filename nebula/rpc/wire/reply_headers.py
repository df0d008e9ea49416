"""Headers of replies: where each header of a reply and of a part of a stream comes from."""

# Where each header comes from
# ----------------------------
#
#     destination        the request's `neb-reply-to`; without one, the queue that the request was sent to
#                        (rule 3), see `Request.reply_to`
#     content-type       the request's, so that the caller can read it (rule 5), see `envelope.media_of`
#     neb-in-reply-to    the request's `neb-reply-id` (rule 4): the caller finds its call by it. Absent if the
#                        request had none
#     neb-response       always `true`. No Nebula service replies to such a message, wherever it ends up
#                        (D.46), and the broker gives its receiver no reply right (G.reply-right)
#     neb-error-code     the code of an `error`, which is in the body as well: a broker's operator and the
#                        callers of other libraries need not read the body (G.error-codes)
#     neb-stream         `true` on each part of a stream; the last part has `neb-stream-end`, and each its
#                        number, `neb-stream-seq` (G.stream)
#     neb-reply-to       on a part: where the reader sends credit, the queue of this very instance (G.credit)
#     expires            on brokers whose inboxes outlive their readers (`Brand.reply_expiry`)
#
#
# `neb-stream-seq` and `neb-stream-end` are written in `streams.sending`, `expires` in `service.reply_sender`;
# all others here.
#
# Order: headers that are the same for all replies of a kind come first, because they are encoded once
# (`nebula.stomp.client.send_heads`).

from __future__ import annotations

from functools import lru_cache

from nebula import headers as names

__all__ = ["own_headers", "part_headers", "shared_headers"]


@lru_cache(maxsize=256)
def shared_headers(content_type: str) -> tuple[tuple[str, str], ...]:
    """Headers that all whole replies of a content type share: the same tuple each time."""
    return ("content-type", content_type), (names.RESPONSE, "true")


def own_headers(reply_id: str | None, code: str | None = None) -> dict[str, str]:
    """The other headers of a whole reply.

    Args:
        reply_id: of the request, None if it has none.
        code: of an `error`.
    """
    headers = {} if code is None else {names.ERROR_CODE: code}
    if reply_id is not None:
        headers[names.IN_REPLY_TO] = reply_id
    return headers


def part_headers(content_type: str, reply_id: str, credit_to: str) -> dict[str, str]:
    """Headers that all parts of a stream share; number and end are added to each.

    Args:
        content_type: of the bodies.
        reply_id: of the request.
        credit_to: where the reader sends credit.
    """
    return {
        "content-type": content_type,
        names.RESPONSE: "true",
        names.STREAM: "true",
        names.REPLY_TO: credit_to,
        names.IN_REPLY_TO: reply_id,
    }
