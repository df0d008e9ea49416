"""AsyncAPI document of a service, from its reply to `describe`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from nebula import headers as names
from nebula.codegen.components import Components, Keys, free, key_of
from nebula.codegen.schemas import Schema
from nebula.rpc.contract.signature import PARAMETER_NAME
from nebula.rpc.errors import CODES
from nebula.rpc.wire.avro_bodies import CONTENT_TYPE as AVRO_TYPE
from nebula.rpc.wire.avro_bodies import MESSAGE
from nebula.rpc.wire.envelope import ERROR, JSON_TYPE, SUCCESS
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE

__all__ = ["VERSION", "asyncapi_document"]

VERSION: Final = "3.0.0"

# Of a service that tells no version of its own.
_NO_VERSION: Final = "0.0.0"

_TEXT: Final = {"type": "string"}
_REPLIES: Final = "replies"
_AVRO_FORMAT: Final = "application/vnd.apache.avro;version=1.9.0"
# The same name as `MESSAGE` has: AsyncAPI's own schema of Avro knows no dots in names.
_AVRO_NAME: Final = dict(zip(("namespace", "name"), MESSAGE["name"].rsplit("."), strict=True))


def asyncapi_document(description: Mapping[str, Any], url: str | None = None) -> dict[str, Any]:
    """An AsyncAPI 3 document of a service: its verbs are operations that receive and reply.

    Args:
        description: the service's reply to `describe`.
        url: of the broker, for the document's `servers`; without it `servers` is empty.

    Returns:
        the document, as JSON has it. Schemas are in AsyncAPI's own form, a superset of draft 7.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: that is no description of a service.
    """
    return _Document(description, url).whole()


class _Document:
    def __init__(self, description: Mapping[str, Any], url: str | None) -> None:
        self._description = description
        self._url = url
        self._schemas = Components(_own_form)
        self._messages: dict[str, Any] = {}
        # The channel of replies has a fixed key, which no queue may get.
        self._verbs, self._errors, self._queues = Keys(), Keys(), Keys(_REPLIES)
        self._channels: dict[str, Any] = {
            self._queues.of(queue): {"address": queue, "messages": {}} for queue in description["queues"]
        }
        about = "Where the request says, in `neb-reply-to`: for most callers a queue of their own."
        # In AsyncAPI null means that the address is known only at run time.
        self._channels[_REPLIES] = {"address": None, "description": about, "messages": {}}

    def whole(self) -> dict[str, Any]:
        told = self._description
        operations = {self._verbs.of(verb["verb"]): self._operation(verb) for verb in told["verbs"]}
        for one in told.get("listens", ()):
            operations[free(operations, f"on.{key_of(one['handler'])}")] = self._listens(one)
        document: dict[str, Any] = {
            "asyncapi": VERSION,
            "info": {"title": told["service"], "version": str(told.get("version") or _NO_VERSION)},
            "defaultContentType": JSON_TYPE,
        }
        if self._url is not None:
            document["servers"] = {"broker": _server(self._url)}
        return document | {
            "channels": self._channels,
            "operations": operations,
            "components": {"messages": self._messages, "schemas": self._schemas.components},
        }

    def _operation(self, verb: Mapping[str, Any]) -> dict[str, Any]:
        # Most verbs share the service's queue; a verb may have one of its own.
        channel = self._queues.of(verb.get("queue") or self._description["queues"][0])
        # The request first: of two models of one name, its keeps the name.
        requests = [self._said(channel, name, message) for name, message in self._requests(verb)]
        replies = [self._said(_REPLIES, name, message) for name, message in self._replies(verb)]
        summary, _, more = (verb.get("description") or "").partition("\n")
        operation: dict[str, Any] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{channel}"},
            "title": verb["verb"],
            "messages": requests,
            "reply": {
                "address": {"location": f"$message.header#/{names.REPLY_TO}"},
                "channel": {"$ref": f"#/channels/{_REPLIES}"},
                "messages": replies,
            },
        }
        texts = {"summary": summary, "description": more.strip()}
        # AsyncAPI allows extension fields that begin with `x-`.
        marks = {f"x-{name}": verb[name] for name in ("idempotent", "job", "stream") if verb.get(name)}
        if verb.get("job"):
            name = f"{self._verbs.of(verb['verb'])}.result"
            marks["x-job-result"] = self._schemas.of(verb.get("result") or {}, name)
        return operation | {name: text for name, text in texts.items() if text} | marks

    def _listens(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """What the service takes that is no request."""
        address, handler = one["destination"], key_of(one["handler"])
        channel = free(self._channels, key_of(address))
        self._channels[channel] = {"address": address, "messages": {}}
        name = free(self._messages, f"on.{handler}")
        schema = self._schemas.of(one["message"], name)
        summary, _, more = (one.get("description") or "").partition("\n")
        texts = {"summary": summary, "description": more.strip()}
        marks = {f"x-{mark}": one[mark] for mark in ("durable", "eager") if one.get(mark)}
        return {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{channel}"},
            "title": f"{one['handler']} on {address}",
            "messages": [self._said(channel, name, {"title": one["handler"], "payload": schema})],
            **{text: value for text, value in texts.items() if value},
            **marks,
        }

    def _said(self, channel: str, name: str, message: dict[str, Any]) -> dict[str, str]:
        """Put a message into the channel, and give what refers to it there."""
        self._messages[name] = {"name": name, **message}
        self._channels[channel]["messages"][name] = {"$ref": f"#/components/messages/{name}"}
        return {"$ref": f"#/channels/{channel}/messages/{name}"}

    def _requests(self, verb: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        name = f"{self._verbs.of(verb['verb'])}.request"
        request = self._request(verb, name)
        yield name, request
        if avro := _in_avro(verb, "parameters"):
            yield f"{name}.avro", request | avro

    def _request(self, verb: Mapping[str, Any], name: str) -> dict[str, Any]:
        timeout = {"type": "string", "pattern": "^[0-9]+$", "description": "Milliseconds left."}
        headers = _object({names.REPLY_TO: _TEXT, names.REPLY_ID: _TEXT, names.TIMEOUT: timeout})
        parameters = self._schemas.of(verb["parameters"], name)
        whole = PARAMETER_NAME in verb["parameters"]
        # Parameters may be left out where none of them is required.
        may_lack = "default" in verb["parameters"] or not (whole or verb["parameters"].get("required"))
        message: dict[str, Any] = {
            "title": f"{verb['verb']} request",
            "headers": headers,
            "payload": _envelope(verb["verb"], parameters, needs_parameters=not may_lack),
            "correlationId": {"location": f"$message.header#/{names.REPLY_ID}"},
        }
        if verb.get("deprecated"):
            message |= {"deprecated": True, "description": f"Deprecated: {verb.get(DEPRECATED_BECAUSE)}"}
        return message

    def _replies(self, verb: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        name = self._verbs.of(verb["verb"])
        result = verb.get("item" if verb.get("stream") else "result") or {}
        if verb.get("job"):
            accepted = _object({"job": _TEXT, "state": _TEXT}, "job")
            yield f"{name}.accepted", _reply("The job is recorded.", _envelope(SUCCESS, accepted))
        elif result.get("type") == "null":
            # A verb without a result replies without a value.
            yield SUCCESS, _reply("It worked, and there is nothing to report.", _envelope(SUCCESS))
        else:
            reply = self._value(verb, self._schemas.of(result, f"{name}.result"))
            yield f"{name}.reply", reply
            if avro := _in_avro(verb, "result"):
                yield f"{name}.reply.avro", reply | avro
            # A verb that may reply null has two replies: with a value and without.
            if _may_be_null(result):
                yield SUCCESS, _reply("It worked, and there is nothing to report.", _envelope(SUCCESS))
        for error in verb.get("errors", ()):
            yield (
                f"{ERROR}.{self._errors.of(error['code'])}",
                _error(error["code"], error["description"], {"const": error["code"]}),
            )
        codes = {"enum": list(CODES)}
        # Any verb may fail with the codes that Nebula itself uses (docs/how-to/errors.md).
        yield ERROR, _error("error", "What any verb may reply.", codes)

    def _value(self, verb: Mapping[str, Any], value: Any) -> dict[str, Any]:
        if not verb.get("stream"):
            return _reply(f"The value of {verb['verb']}.", _envelope(verb["response"], value))
        items = {"type": "array", "items": value}
        message = _reply(f"Some items of {verb['verb']}.", _envelope(verb["response"], items))
        message["headers"]["properties"] |= {names.STREAM_SEQ: _TEXT, names.STREAM_END: _TEXT}
        return message


def _own_form(node: Mapping[str, Any], shown: dict[str, Any]) -> None:
    """Change a schema of pydantic's dialect (2020-12) into AsyncAPI's."""
    # Draft 7 has a list of `items` where 2020-12 has `prefixItems`.
    if "prefixItems" in shown:
        shown |= {"additionalItems": shown.get("items", False), "items": shown.pop("prefixItems")}
    # In AsyncAPI a discriminator is only the property's name.
    if isinstance(tag := node.get("discriminator"), Mapping):
        shown["discriminator"] = tag["propertyName"]


def _envelope(verb: str, parameters: Any = None, *, needs_parameters: bool = True) -> dict[str, Any]:
    fields: dict[str, Any] = {"verb": {"const": verb}, "description": _TEXT}
    if parameters is None:
        return _object(fields, "verb")
    needed = ("verb", "parameters") if needs_parameters else ("verb",)
    return _object(fields | {"parameters": parameters}, *needed)


def _reply(about: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": about.rstrip("."),
        "description": about,
        "headers": _object({names.IN_REPLY_TO: _TEXT, names.RESPONSE: {"const": "true"}}),
        "payload": payload,
        "correlationId": {"location": f"$message.header#/{names.IN_REPLY_TO}"},
    }


def _error(title: str, about: str, code: dict[str, Any]) -> dict[str, Any]:
    fields = {
        "code": code,
        "message": _TEXT,
        "retryable": {"type": "boolean"},
        "details": True,
    }
    payload = _envelope(ERROR, _object(fields, "code", "message", "retryable"))
    message = _reply(about, payload) | {"title": title}
    message["headers"]["properties"][names.ERROR_CODE] = code
    return message


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return shown | {"required": list(required)} if required else shown


def _may_be_null(schema: Schema) -> bool:
    # A schema without a type allows any value, null included, unless other keywords restrict it.
    return (
        not schema.get("type")
        and ("anyOf" not in schema or any(one.get("type") == "null" for one in schema["anyOf"]))
        and not {"$ref", "const", "enum", "oneOf"} & set(schema)
    )


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    # Without login and passcode, because the document is for publication.
    shown = {"host": parts.netloc.rpartition("@")[2], "protocol": parts.scheme}
    return shown | {"pathname": parts.path} if parts.path.strip("/") else shown


def _in_avro(verb: Mapping[str, Any], part: str) -> dict[str, Any]:
    """What is different of a message whose `part` is written by an Avro schema; nothing if it has none."""
    declared = (verb.get("avro") or {}).get(part)
    if declared is None:
        return {}
    return {
        "contentType": AVRO_TYPE,
        "description": "Its `parameters` are bytes in Avro's single-object encoding, by the schema in "
        "`x-parameters`.",
        "payload": {"schemaFormat": _AVRO_FORMAT, "schema": {**MESSAGE, **_AVRO_NAME}},
        "x-parameters": {"schemaFormat": _AVRO_FORMAT, **declared},
    }
