"""`GET /openapi/SERVICE.json`: the OpenAPI document of a service whose verbs are called over HTTP."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

from nebula.broker.server.http_posts import JSON_TYPE, Posted, Response, problem
from nebula.codegen.openapi import openapi_document
from nebula.errors import NebulaError
from nebula.host.http_calls import BadCall, Call, HttpCalls, Stopping, failure_reply, is_name, timeout_of
from nebula.rpc.wire.envelope import dump_json
from nebula.rpc.wire.replies import reading

__all__ = ["PATH", "HttpOpenApi"]

PATH: Final = "/openapi/"

_SUFFIX: Final = ".json"


class HttpOpenApi:
    """Serves documents on a listener that also serves calls.

    The service is asked with the rights of the requesting principal, which has to have the right to call it.

    Args:
        calls: makes the calls to services, on its own loop.
    """

    def __init__(self, calls: HttpCalls) -> None:
        self._calls = calls

    async def reply(self, posted: Posted) -> Response:
        """Reply to a request, on the broker's loop; cancellation withdraws it."""
        try:
            call = _read(posted)
            return await self._calls.on_loop(partial(self._reply, posted.principal, call))
        except BadCall as error:
            return problem(HTTPStatus.BAD_REQUEST, "bad-request", str(error))
        except NebulaError as error:
            return failure_reply(error)
        except Stopping:
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "stopping", "calls are not taken now")

    async def _reply(self, principal: str, call: Call) -> Response:
        # On the loop of the calls: a large document does not delay the broker.
        description = await self._calls.ask(principal, call)
        with reading(f"what {call.service} answers to describe"):
            document = openapi_document(description)
        return Response(HTTPStatus.OK, dump_json(document) + b"\n", JSON_TYPE)


def _read(posted: Posted) -> Call:
    service = unquote(posted.path.removeprefix(PATH).removesuffix(_SUFFIX))
    if not posted.path.endswith(_SUFFIX) or not is_name(service):
        raise BadCall(f"get {PATH}SERVICE{_SUFFIX}")
    return Call(service, "describe", None, timeout_of(posted))
