"""OpenAPI document of a service's verbs, as an HTTP listener serves them, from its reply to `describe`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from nebula.codegen.components import COMPONENTS, Components, Keys
from nebula.rpc.contract.signature import PARAMETER_NAME
from nebula.rpc.contract.verbs import is_reserved
from nebula.rpc.errors import CODES
from nebula.rpc.http_problems import status_of
from nebula.rpc.wire.envelope import JSON_TYPE

__all__ = ["LISTENER_ERRORS", "VERSION", "openapi_document"]

VERSION: Final = "3.1.0"

# Of a service that tells no version of its own.
_NO_VERSION: Final = "0.0.0"

_ERROR: Final = "NebulaError"
_TIMEOUT: Final = "Timeout"
_BUILT_IN: Final = "built-in"

_TEXT: Final = {"type": "string"}
_MEDIA_TYPES: Final = {
    "application/x-ndjson": 'A line of JSON for each item; an error is the line `{"nebula-error": {…}}`.',
    "text/event-stream": "An event for each item, JSON in `data`; then `nebula-error` or `nebula-end`.",
}
_RESULT_TYPES: Final = ("application/x-ndjson", "text/csv", "application/vnd.apache.parquet")

_Errors: TypeAlias = dict[HTTPStatus, dict[str, tuple[str, bool]]]
"""By status: the meaning of each code, and whether the same call may succeed later."""

LISTENER_ERRORS: Final[Mapping[HTTPStatus, Mapping[str, str]]] = {
    HTTPStatus.BAD_REQUEST: {"bad-request": "Path, query, body or `Neb-Timeout` cannot be read."},
    HTTPStatus.UNAUTHORIZED: {
        "not-admitted": "There are no credentials, they are wrong, or they became invalid during the call."
    },
    HTTPStatus.FORBIDDEN: {
        "not-allowed": "The caller has no right to call this service or verb.",
        "wrong-origin": "The request comes from a page of a foreign origin.",
    },
    HTTPStatus.NOT_FOUND: {"no-responder": "No such service is running."},
    HTTPStatus.METHOD_NOT_ALLOWED: {"method-not-allowed": "Only POST is answered here, and GET for results."},
    HTTPStatus.NOT_ACCEPTABLE: {"not-acceptable": "The result is not available in that form."},
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: {"too-large": "The body is too large."},
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: {"not-json": "`Content-Type` is not `application/json`."},
    HTTPStatus.MISDIRECTED_REQUEST: {"wrong-host": "`Host` is not one of the listener's `hosts`."},
    HTTPStatus.INTERNAL_SERVER_ERROR: {"error": "A service that does not use Nebula replied `error`."},
    HTTPStatus.BAD_GATEWAY: {
        "stream-broken": "Items are missing, because the instance that sent them is gone.",
        "unexpected-reply": "The service's reply cannot be read.",
    },
    HTTPStatus.SERVICE_UNAVAILABLE: {
        "busy": "The service or the broker has too much to do.",
        "unavailable": "The broker does not take the call now.",
        "stopping": "The broker is shutting down.",
    },
    HTTPStatus.GATEWAY_TIMEOUT: {"timeout": "No reply came in time; the service may still be working on it."},
}
"""What an HTTP listener itself answers, besides the codes of services."""

# Codes of `CODES` that a call of a verb can end with; the others are ends of jobs, or of their results.
_OF_CALLS: Final = (
    "bad-request", "bad-parameters", "not-allowed", "unknown-verb", "busy", "deadline-exceeded", "cancelled",
    "too-many-attempts", "not-found", "bad-result", "internal", "upstream-error", "upstream-unavailable",
    "upstream-timeout",
)  # fmt: skip
# Verbs of every service that has jobs.
_JOBS: Final = "job."
_OF_RESULTS: Final[Mapping[str, str]] = {
    "not-found": "There is no such job.",
    "elsewhere": "Another instance holds the job: `details.via`.",
    "no-rows": "The result has no rows, and the format needs them.",
    "not-ended": "The job has no result yet.",
    "result-gone": "The files of the result no longer exist.",
    "result-too-large": "The result is larger than a reply may be.",
    "result-unreadable": "The service cannot read the result.",
}
_LATER: Final = frozenset({HTTPStatus.SERVICE_UNAVAILABLE})
_OF_VERBS: Final = frozenset({HTTPStatus.UNPROCESSABLE_ENTITY, *_LATER})
_RETRYABLE: Final = frozenset({"no-responder", "stream-broken"})
_METHOD: Final = HTTPStatus.METHOD_NOT_ALLOWED
_NOT_FOR_RESULTS: Final = frozenset({_METHOD, HTTPStatus.UNSUPPORTED_MEDIA_TYPE})


# docs/decisions/0078: one document for the command and the broker, from `describe`.
def openapi_document(description: Mapping[str, Any], url: str = "/") -> dict[str, Any]:
    """An OpenAPI 3.1 document of a service: `POST /call/SERVICE/VERB` for each of its verbs.

    Args:
        description: the service's reply to `describe`.
        url: of the HTTP listener, for the document's `servers`; the default is the host that serves the
            document.

    Returns:
        the document, as JSON has it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: that is no description of a service.
    """
    return _Document(description, url).whole()


class _Document:
    def __init__(self, description: Mapping[str, Any], url: str) -> None:
        self._description, self._url = description, url
        self._schemas = Components(_own_form, [_ERROR])
        # Verbs of almost the same name have keys that differ.
        self._keys = Keys()

    def whole(self) -> dict[str, Any]:
        told = self._description
        service = told["service"]
        paths: dict[str, Any] = {
            f"/call/{quote(service, safe='')}/{quote(verb['verb'], safe='')}": {"post": self._operation(verb)}
            for verb in told["verbs"]
        }
        if any(verb.get("job") for verb in told["verbs"]):
            paths[f"/jobs/{quote(service, safe='')}/{{id}}/result"] = {"get": self._result()}
        info = {
            "title": service,
            "version": str(told.get("version") or _NO_VERSION),
            "description": "Calls of the service over HTTP, by way of a Nebula broker.",
        }
        return {
            "openapi": VERSION,
            "info": info,
            "servers": [{"url": self._url}],
            # Any one of them: which of them a listener accepts is up to its operator.
            "security": [{"basic": []}, {"bearer": []}, {"certificate": []}, {}],
            "tags": [
                {"name": service, "description": "The service's own verbs."},
                {"name": _BUILT_IN, "description": "Verbs that every service has."},
            ],
            "paths": paths,
            "components": {
                "schemas": {**self._schemas.components, _ERROR: _error_schema()},
                "parameters": {_TIMEOUT: _timeout_parameter()},
                "securitySchemes": _security_schemes(),
            },
        }

    def _operation(self, verb: Mapping[str, Any]) -> dict[str, Any]:
        name = self._keys.of(verb["verb"])
        summary, _, more = (verb.get("description") or "").partition("\n")
        texts = {"summary": summary, "description": more.strip()}
        if verb.get("deprecated"):
            texts["description"] = f"Deprecated: {verb.get('deprecationMessage')}\n\n{more.strip()}".strip()
        marks = {f"x-{mark}": verb[mark] for mark in ("idempotent", "job", "stream") if verb.get(mark)}
        tag = _BUILT_IN if is_reserved(verb["verb"]) else self._description["service"]
        return {
            "operationId": name,
            "tags": [tag],
            **{text: value for text, value in texts.items() if value},
            **({"deprecated": True} if verb.get("deprecated") else {}),
            **marks,
            "parameters": [{"$ref": f"#/components/parameters/{_TIMEOUT}"}],
            "requestBody": self._request(verb, name),
            "responses": {"200": self._success(verb, name), **_responses(_errors_of(verb))},
        }

    def _request(self, verb: Mapping[str, Any], name: str) -> dict[str, Any]:
        parameters = verb["parameters"]
        is_whole = PARAMETER_NAME in parameters
        schema = self._schema(parameters, f"{name}.request")
        about = "The parameter." if is_whole else "The parameters by name, `{}` for none."
        # Always required: a request without a body needs its content type all the same, and OpenAPI cannot
        # ask for a type without a body.
        return {"description": about, "required": True, "content": {JSON_TYPE: {"schema": schema}}}

    def _schema(self, schema: Mapping[str, Any], name: str) -> dict[str, Any]:
        reference: dict[str, Any] = self._schemas.of(schema, name)
        components = self._schemas.components
        # A component that is a reference to another one confuses generators of clients.
        if "$ref" in (shown := components[name]) and shown.keys() <= {"$ref", PARAMETER_NAME}:
            del components[name]
            return {"$ref": shown["$ref"]}
        # They name types by titles, and two may have the title of one model.
        shown.pop("title", None)
        return reference

    def _success(self, verb: Mapping[str, Any], name: str) -> dict[str, Any]:
        if verb.get("job"):
            job = {"type": "string", "description": "Its id. `job.status` tells how far it is."}
            accepted = _object({"job": job, "state": _TEXT}, "job", "state")
            return {"description": "The job is recorded.", "content": {JSON_TYPE: {"schema": accepted}}}
        result = verb.get("item" if verb.get("stream") else "result") or {}
        schema: dict[str, Any] = self._schemas.of(
            result, f"{name}.{'item' if verb.get('stream') else 'result'}"
        )
        if not verb.get("stream"):
            return {"description": "The value.", "content": {JSON_TYPE: {"schema": schema}}}
        streams = {
            media: {"schema": {**_TEXT, "description": about}, "x-item": schema}
            for media, about in _MEDIA_TYPES.items()
        }
        items = {"type": "array", "items": schema}
        about = "The items: all at once, or as they come if `Accept` asks for a stream."
        return {"description": about, "content": {JSON_TYPE: {"schema": items}, **streams}}

    def _result(self) -> dict[str, Any]:
        """The result of any job of the service."""
        service = self._description["service"]
        errors: _Errors = {
            status: {code: (text, _is_retryable(status, code)) for code, text in codes.items()}
            for status, codes in LISTENER_ERRORS.items()
            if status not in _NOT_FOR_RESULTS
        }
        for code, meaning in _OF_RESULTS.items():
            _add(errors, code, meaning, is_retryable=False)
        forms = {"type": "string", "enum": ["ndjson", "csv", "parquet"]}
        return {
            "operationId": self._keys.of("read-job-result"),
            "tags": [service],
            "summary": "Result of a job, row by row.",
            "parameters": [
                {
                    "name": "id",
                    "in": "path",
                    "required": True,
                    "description": "The ULID in the job's id.",
                    "schema": _TEXT,
                },
                {
                    "name": "format",
                    "in": "query",
                    "description": "Takes precedence over `Accept`.",
                    "schema": forms,
                },
                {"$ref": f"#/components/parameters/{_TIMEOUT}"},
            ],
            "responses": {
                "200": {"description": "The rows.", "content": {media: {} for media in _RESULT_TYPES}},
                **_responses(errors),
            },
        }


def _errors_of(verb: Mapping[str, Any]) -> _Errors:
    errors: _Errors = {
        status: {code: (text, _is_retryable(status, code)) for code, text in codes.items()}
        for status, codes in LISTENER_ERRORS.items()
        if status is not _METHOD and status is not HTTPStatus.NOT_ACCEPTABLE
    }
    known = [*_OF_CALLS, *(["streaming-only"] if verb.get("stream") else [])]
    for code in known:
        _add(errors, code, CODES[code].meaning, is_retryable=CODES[code].is_retryable)
    if verb["verb"].startswith(_JOBS):
        for code, meaning in _OF_RESULTS.items():
            _add(errors, code, meaning, is_retryable=False)
    for error in verb.get("errors", ()):
        _add(errors, error["code"], error["description"], is_retryable=bool(error.get("retryable")))
    return errors


def _add(errors: _Errors, code: str, meaning: str, *, is_retryable: bool) -> None:
    status = status_of(code, retryable=is_retryable)
    # The listener's own meaning of a code counts: over HTTP it has more reasons.
    errors.setdefault(status, {}).setdefault(code, (meaning, is_retryable))


def _is_retryable(status: HTTPStatus, code: str) -> bool:
    return status is HTTPStatus.SERVICE_UNAVAILABLE or code in _RETRYABLE


def _responses(errors: _Errors) -> dict[str, Any]:
    return {str(status.value): _response(status, codes) for status, codes in sorted(errors.items())}


def _response(status: HTTPStatus, codes: Mapping[str, tuple[str, bool]]) -> dict[str, Any]:
    about = "\n".join(f"- `{code}`: {meaning}" for code, (meaning, _) in codes.items())
    if status in _OF_VERBS:
        about += f"\n- any other code of a verb{' that may succeed later' * (status in _LATER)}"
    examples = {
        code: {"value": {"code": code, "message": meaning, "retryable": is_retryable}}
        for code, (meaning, is_retryable) in codes.items()
    }
    content = {JSON_TYPE: {"schema": {"$ref": f"{COMPONENTS}{_ERROR}"}, "examples": examples}}
    response: dict[str, Any] = {"description": f"{status.phrase}\n\n{about}", "content": content}
    if status is HTTPStatus.UNAUTHORIZED:
        response["headers"] = {"WWW-Authenticate": {"schema": _TEXT}}
    return response


def _error_schema() -> dict[str, Any]:
    code = {**_TEXT, "description": "A stable kebab-case word to branch on."}
    later = {"type": "boolean", "description": "The same call may succeed later."}
    fields = {"code": code, "message": {**_TEXT, "description": "For people."}, "retryable": later}
    details = {"description": "What the verb says besides."}
    return {"title": "Error of a call", **_object({**fields, "details": details}, *fields)}


def _timeout_parameter() -> dict[str, Any]:
    return {
        "name": "Neb-Timeout",
        "in": "header",
        "description": "Milliseconds that the call may take. Also as the query parameter `neb-timeout`.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 300_000, "default": 30_000},
    }


def _security_schemes() -> dict[str, Any]:
    return {
        "basic": {"type": "http", "scheme": "basic", "description": "Login and passcode of a user."},
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "certificate": {"type": "mutualTLS", "description": "A client certificate."},
    }


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _own_form(node: Mapping[str, Any], shown: dict[str, Any]) -> None:
    """OpenAPI 3.1 has pydantic's own dialect (2020-12)."""
