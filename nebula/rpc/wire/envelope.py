"""Bodies of The Nebulous Protocol: bytes to envelopes and back (C.2, C.5).

Two forms carry the same three fields, JSON and text; a third one is ours, see `avro_bodies`. Reading never
fails: what is not a message of the protocol is a *free body*, an envelope without a verb. Writing gives
ASCII-only JSON, because the `nebulous_stomp` gem takes every byte for Latin-1 (D.15).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from nebula.errors import AvroError
from nebula.rpc.wire.avro_bodies import CONTENT_TYPE, AvroSchemas, read_message, write_message, write_value

AVRO_TYPE: Final = CONTENT_TYPE
JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain"

SUCCESS: Final = "success"
ERROR: Final = "error"

# What the gem posts to a queue before it subscribes (C.4, D.11). Services ACK and skip it.
BOO: Final = b"boo"


# Not the `__init__` of a dataclass: that would be interpreted where this module is compiled.
@dataclass(slots=True, init=False)
class Envelope:
    """What one body says.

    Attributes:
        verb: the verb, possibly empty, or None for a free body. A verb that JSON does not write as a
            string is its JSON text (`7`), so that the reply can call it unknown.
        parameters: of any JSON type; a text body gives a string, one in Avro an `AvroValue`. None when
            absent.
        description: a text for people, or None.
        body: the free body of a message without a verb: JSON value, map of a text body's lines, or string.
        is_text: it was read by the text rules.
    """

    verb: str | None
    parameters: Any
    description: str | None
    body: Any
    is_text: bool

    def __init__(
        self,
        verb: str | None = None,
        parameters: Any = None,
        description: str | None = None,
        body: Any = None,
        is_text: bool = False,
    ) -> None:
        self.verb = verb
        self.parameters = parameters
        self.description = description
        self.body = body
        self.is_text = is_text


class Media(NamedTuple):
    """What a content type means to us.

    Attributes:
        is_json: JSON rules, text rules, or None: the body has to decide (D.14).
        charset: as given, or None.
        reply_type: content type of a reply to such a request (rule 5).
        is_avro: it is `avro/binary`.
    """

    is_json: bool | None
    charset: str | None
    reply_type: str
    is_avro: bool = False


@lru_cache(maxsize=256)
def media_of(content_type: str | None) -> Media:
    """Judge a content type. Rule 5: a reply takes the request's type.

    Parameters are kept off a JSON reply: the gem would read `application/json;charset=utf-8` as text (D.14).
    """
    if not content_type:
        return Media(None, None, JSON_TYPE)
    essence, _, rest = content_type.partition(";")
    essence = essence.strip()
    found = re.search(r'charset\s*=\s*"?([^";\s]+)', rest, re.IGNORECASE)
    charset = found[1] if found else None
    # C.5: the gem asks for /json$/i, which takes in `JSON` and `application/hal+json`.
    if essence.lower().endswith("json"):
        return Media(True, charset, essence)
    if essence.lower() == AVRO_TYPE:
        return Media(False, charset, AVRO_TYPE, is_avro=True)
    # All else is read as text, but text must not go out under the name of, say, XML.
    return Media(False, charset, essence if essence.lower().startswith("text/") else TEXT_TYPE)


def content_type_of(headers: Mapping[str, str]) -> str | None:
    """The content type, under any of the three spellings that the gem looks up (C.5)."""
    return headers.get("content-type") or headers.get("content_type") or headers.get("contentType")


def parse(headers: Mapping[str, str], body: bytes) -> Envelope:
    """Read the body of a message. Never raises: what cannot be read is a free body, or the raw string of it.

    Args:
        headers: of the message; its content type decides by which rules the body is read.
        body: of the message.
    """
    is_json, charset, _, is_avro = media_of(headers.get("content-type") or content_type_of(headers))
    if is_json is None:
        is_json = body.lstrip()[:1] in (b"{", b"[")
    if not is_json:
        return _parse_avro(body) if is_avro else _parse_text(_decode(body, charset))
    # The rest is the hot path, in one function: nearly every body is a JSON object with full names.
    try:
        value = from_json(body)
    except ValueError:
        # Not UTF-8, or not JSON at all: then the raw string is the body.
        text = _decode(body, charset)
        try:
            value = from_json(text)
        except ValueError:
            return Envelope(body=text)
    verb = value.get("verb") if isinstance(value, dict) else None
    if verb is None or verb is False:
        return Envelope(body=None if value is False else value)
    if not isinstance(verb, str):
        verb = to_json(verb).decode()
    parameters = value.get("parameters")
    if parameters is None or parameters is False:
        parameters = _field(value, "parameters", "params")
    description = value.get("description")
    if description is None:
        description = value.get("desc")
    if not (description is None or isinstance(description, str)):
        description = _text(_field(value, "description", "desc"))
    return Envelope(verb, parameters, description)


def _parse_avro(body: bytes) -> Envelope:
    try:
        verb, value, description = read_message(body)
    except AvroError:
        return Envelope()
    # Those have no schema but JSON's.
    return Envelope(verb, value.plain if verb in (SUCCESS, ERROR) else value, description)


def _parse_text(text: str) -> Envelope:
    fields = _fields_of_text(text)
    if fields is None:
        return Envelope(body=text, is_text=True)
    verb = fields.get("verb")
    if verb is None:
        return Envelope(body=fields, is_text=True)
    parameters = _field(fields, "parameters", "params")
    return Envelope(verb, parameters, _field(fields, "description", "desc"), is_text=True)


def _fields_of_text(text: str) -> dict[str, str] | None:
    """The map that a text body is, or None: one odd line makes all of it a plain string."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon or name in fields:
            return None
        fields[name] = value.strip()
    return fields


def _field(fields: Mapping[str, Any], name: str, alias: str) -> Any:
    """A field by its full name, which beats the alias; null and false fall through to it (C.2)."""
    value = fields.get(name)
    if value is None or value is False:
        other = fields.get(alias)
        # Without an alias false is a value: the gem loses it, but verbs do return it.
        return value if other is None else other
    return value


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else to_json(value).decode()


def text_of(content_type: str | None, body: bytes) -> str:
    """A body as text, whatever bytes it has."""
    return _decode(body, media_of(content_type).charset)


def _decode(body: bytes, charset: str | None) -> str:
    """D.15: strict UTF-8, then the charset that was named, then Latin-1, which takes any byte."""
    with suppress(ValueError):
        return body.decode()
    if charset is not None:
        with suppress(ValueError, LookupError):  # wrong bytes; a name that is no charset's
            text = body.decode(charset)
            # Some of Python's own charsets make halves of characters, which no reply could hold.
            text.encode()
            return text
    return body.decode("latin-1")


def encode(
    content_type: str, verb: str, parameters: bytes | None = None, description: str | None = None
) -> bytes:
    """Write a message of the protocol. Fields that are None are left out, as the gem does.

    Args:
        content_type: decides between JSON, Avro and text; see `media_of`.
        verb: goes first in all forms.
        parameters: the value as JSON, from `dump_json`. In text, a string goes out bare and any other
            value as compact JSON (D.40). In Avro it may be one of `write_value`.
        description: a text for people.
    """
    media = media_of(content_type)
    if not media.is_json:
        return (write_message if media.is_avro else _encode_text)(verb, parameters, description)
    if description is None:
        # The hot path: a request, or a reply with a value.
        if parameters is None:
            return b'{"verb":%b}' % _json_text(verb)
        return b'{"verb":%b,"parameters":%b}' % (_json_text(verb), parameters)
    shown = b"" if parameters is None else b',"parameters":%b' % parameters
    return b'{"verb":%b%b,"description":%b}' % (_json_text(verb), shown, dump_json(description))


def request_body(verb: str, parameters: Any, avro: AvroSchemas | None = None) -> bytes:
    """A request as JSON, with any parameters that pydantic can write as JSON; or in a verb's Avro.

    Raises:
        ValueError: the parameters have no JSON form.
        AvroError: they are not of the verb's schema.
    """
    if avro is not None:
        return _avro_request(verb, parameters, avro)
    if parameters is None:
        return b'{"verb":%b}' % _json_text(verb)
    document = to_json(parameters, bytes_mode="base64")
    if not document.isascii():
        document = ascii_json(document)
    return b'{"verb":%b,"parameters":%b}' % (_json_text(verb), document)


def _avro_request(verb: str, parameters: Any, avro: AvroSchemas) -> bytes:
    if avro.parameters is not None and parameters is not None:
        return write_message(verb, write_value(avro.parameters, parameters), None)
    return write_message(verb, None if parameters is None else dump_json(parameters), None)


def _encode_text(verb: str, parameters: bytes | None, description: str | None) -> bytes:
    lines = [f"verb: {_one_line(verb)}"]
    if parameters is not None:
        value = from_json(parameters)
        lines.append(f"parameters: {_one_line(value if isinstance(value, str) else parameters.decode())}")
    if description is not None:
        lines.append(f"description: {_one_line(description)}")
    return ("\n".join(lines) + "\n\n").encode()


def _one_line(text: str) -> str:
    # D.38: a line break inside a value would make the whole body a plain string.
    return text.replace("\r", " ").replace("\n", " ")


def encode_free(content_type: str, body: Any) -> bytes:
    """Write a free body: bytes as they are, in text a string as it is, else JSON (C.5)."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str) and not media_of(content_type).is_json:
        return body.encode()
    return dump_json(body)


def dump_json(value: Any) -> bytes:
    """A value as compact ASCII-only JSON: what pydantic can serialize (models, Decimal, datetime, …).

    Bytes go as base64, except in models that choose another form.

    Raises:
        ValueError: the value, or something in it, has no JSON form.
    """
    return ascii_json(to_json(value, bytes_mode="base64"))


def load_json(document: bytes) -> Any:
    """A document's value. NaN and infinity, which some write and JSON has not, are null; so is `1e999`.

    Raises:
        ValueError: it is none, or a number in it has thousands of digits.
    """
    return json.loads(document, parse_constant=lambda _constant: None, parse_float=_finite)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def ascii_json(document: bytes) -> bytes:
    r"""The same JSON document with `\uXXXX` for everything beyond ASCII (D.15)."""
    # Nearly every body is ASCII already, and this look costs nothing. Beyond ASCII there are only
    # characters inside strings, so the document need not be parsed again.
    return document if document.isascii() else _BEYOND_ASCII.sub(_escaped, document.decode()).encode()


_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")  # a pair of surrogates beyond the basic plane
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


@lru_cache(maxsize=1024)
def _json_text(text: str) -> bytes:
    return dump_json(text)
