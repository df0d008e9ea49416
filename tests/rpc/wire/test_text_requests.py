"""Parameters in text, read as those in JSON, by each verb that every service has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from nebula.rpc.contract.signature import Signature
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.service.verbs import management_verbs
from nebula.rpc.service.builtin_verbs import BuiltinVerbs
from tests.rpc.jobs.harness import House

pytestmark = pytest.mark.anyio


def _read(signature: Signature, parameters: Any, *, is_text: bool) -> Any:
    try:
        args, kwargs = signature.bind(parameters, is_text=is_text)
    except VerbError as error:
        return error.code, error.details
    return dict(zip(signature.names, args, strict=False)) | kwargs


async def test_text_and_json_requests_of_each_built_in_verb_are_read_by_one_rule(tmp_path: Path) -> None:
    nothing = cast("Any", None)
    own = BuiltinVerbs(nothing, nothing, nothing)
    async with House(tmp_path).living() as service:
        signatures = {one.name: one.signature for one in [*own.verbs(), *management_verbs(service)]}

    assert {"ping", "describe", "stats", "job.status", "job.rerun", "engine.restart"} <= signatures.keys()
    for name, signature in signatures.items():
        objects = [{}, {"no_such_name": "x"}, *({one: "x"} for one in signature.names)]
        for parameters in [*objects, [], ["x"], ["x", "y"]]:
            as_json = _read(signature, parameters, is_text=False)
            as_text = _read(signature, json.dumps(parameters), is_text=True)

            assert (name, as_text) == (name, as_json)


async def test_job_may_be_named_with_and_without_an_object(tmp_path: Path) -> None:
    async with House(tmp_path).living() as service:
        status = {one.name: one.signature for one in management_verbs(service)}["job.status"]

    for text in ("counting/7", '{"job":"counting/7"}', '["counting/7"]'):
        assert _read(status, text, is_text=True) == {"job": "counting/7"}
