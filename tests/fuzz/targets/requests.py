"""Bodies of The Nebulous Protocol: any content type and bytes are read, and what was read can be written."""

from __future__ import annotations

from nebula.rpc.wire.envelope import Envelope, dump_json, encode, encode_free, media_of, parse


def read_body(data: bytes) -> None:
    """A content type (none where it is empty) and a body, with a line end between."""
    head, _, body = data.partition(b"\n")
    content_type = head.decode(errors="replace") or None
    envelope = parse({"content-type": content_type} if content_type else {}, body)
    reply_type = media_of(content_type).reply_type
    if envelope.verb is None:
        encode_free(reply_type, envelope.body)
        assert envelope.parameters is None
        return
    parameters = None if envelope.parameters is None else dump_json(envelope.parameters)
    for media in ("application/json", reply_type):
        written = encode(media, envelope.verb, parameters, envelope.description)
        if media_of(media).is_json:
            again = parse({"content-type": media}, written)
            assert _shown(again) == _shown(envelope), "what was written is read as something else"


def _shown(envelope: Envelope) -> tuple[str | None, bytes, str | None]:
    # As bytes: NaN is not equal to itself, and becomes null.
    return envelope.verb, dump_json(envelope.parameters), envelope.description
