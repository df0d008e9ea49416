"""Verbs and their registry."""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import (
    RESERVED_NAMES,
    Target,
    Verb,
    VerbOptions,
    VerbRegistry,
    marked_members,
    options_of,
    promises_of,
    set_target,
    target_of,
    verb,
)
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import Envelope


def request() -> Request:
    return Request(Envelope("look"), {"neb-reply-id": "7"}, destination="/queue/a")


def test_bare_mark_returns_the_function_itself() -> None:
    def quote() -> None: ...

    assert verb(quote) is quote
    assert options_of(quote) == VerbOptions()


def test_mark_takes_name_response_and_principals() -> None:
    @verb(name="price.quote", response="price", allow=["alice"])
    def quote() -> None: ...

    one = Verb(quote)

    assert (one.name, one.response) == ("price.quote", "price")
    assert one.allow == frozenset({"alice"})


class SoldOut(VerbError):
    """None are left."""

    code = "sold-out"
    retryable = True


def test_verb_describes_its_errors_and_whether_to_ask_again() -> None:
    @verb(errors=[SoldOut], idempotent=True, concurrency=2)
    def order() -> None: ...

    one = Verb(order)

    assert one.describe()["errors"] == [
        {"code": "sold-out", "description": "None are left.", "retryable": True}
    ]
    assert one.describe()["idempotent"] is True
    assert one.concurrency == 2


def test_function_promises_what_its_declaration_or_its_mark_says() -> None:
    @verb(errors=[SoldOut])
    def marked() -> None: ...

    def declared() -> None: ...

    def plain() -> None: ...

    Responder("orders").verb(errors=[SoldOut], idempotent=True)(declared)

    assert promises_of(marked).errors == (SoldOut,)
    assert promises_of(declared).errors == (SoldOut,)
    assert promises_of(declared).idempotent
    assert promises_of(plain) == VerbOptions()


def test_verb_without_a_list_of_principals_is_open_to_all() -> None:
    def quote() -> None: ...

    assert Verb(quote).allow is None


def test_verb_takes_name_and_description_from_its_function() -> None:
    def quote() -> None:
        """Price of it.

        At once.
        """

    one = Verb(quote)

    assert (one.name, one.response, one.description) == ("quote", "quoteresponse", "Price of it.\n\nAt once.")


def test_handler_gets_its_arguments_and_the_request() -> None:
    def look(symbol: str, request: Request, qty: int = 1) -> tuple[Any, ...]:
        return symbol, request.reply_id, qty

    one = Verb(look)

    for parameters in (["A", 2], {"symbol": "A", "qty": 2}):
        assert one.invoke(one.signature.bind(parameters), request()) == ("A", "7", 2)


def test_request_answers_where_it_was_sent_if_it_names_no_reply_destination() -> None:
    assert request().reply_to == "/queue/a"


def test_method_is_a_verb_without_its_self() -> None:
    class Prices:
        unit = 3

        @verb
        def quote(self, qty: int) -> int:
            return self.unit * qty

        @property
        def explosive(self) -> None:
            raise AssertionError

    members = list(marked_members(Prices()))

    assert [Verb(one).invoke(Verb(one).signature.bind(2), request()) for one in members] == [6]


def test_marked_functions_of_a_module_are_found_by_name() -> None:
    module = types.ModuleType("prices")

    def unmarked() -> None: ...

    @verb
    def later() -> None: ...

    @verb
    def early() -> None: ...

    vars(module).update(unmarked=unmarked, later=later, early=early)

    assert list(marked_members(module)) == [early, later]


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "job.list", "engine.status", "neb.x"])
def test_reserved_names_are_refused(name: str) -> None:
    def quote() -> None: ...

    with pytest.raises(ValueError, match="reserved"):
        VerbRegistry().declare(Verb(quote, VerbOptions(name=name)))


@pytest.mark.parametrize("name", [" quote", "quote ", "two\nlines", "\t"])
def test_names_that_text_cannot_carry_are_refused(name: str) -> None:
    def quote() -> None: ...

    with pytest.raises(ValueError, match="one line without spaces around it"):
        Verb(quote, VerbOptions(name=name))


def test_verb_is_declared_once() -> None:
    def quote() -> None: ...

    registry = VerbRegistry()
    registry.declare(Verb(quote))

    with pytest.raises(ValueError, match="declared twice"):
        registry.declare(Verb(quote))


def test_names_are_case_sensitive() -> None:
    def quote() -> None: ...

    registry = VerbRegistry()
    registry.declare(Verb(quote))

    assert registry.get("quote") is not None
    assert registry.get("Quote") is None


def test_generators_stream_and_tell_of_an_item_what_others_tell_of_the_result() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function, is_async in ((numbers, False), (more, True)):
        verb = Verb(function)
        assert (verb.streams, verb.is_async) == (True, is_async)
        told = verb.describe()
        assert (told["stream"], told["item"]) == (True, {"type": "integer"})
        assert told["result"] == {"type": "array", "items": {"type": "integer"}}


def test_function_belongs_to_one_service() -> None:
    def quote() -> None: ...

    target = Target("prices", "/queue/prices", "quote")
    set_target(quote, target)
    set_target(quote, target)

    assert target_of(quote) == target
    with pytest.raises(TypeError, match="bare @verb"):
        set_target(quote, Target("other", "/queue/other", "quote"))


def test_description_of_a_verb_has_both_schemas() -> None:
    def quote(symbol: str) -> int:
        """Price."""
        return len(symbol)

    assert Verb(quote).describe() == {
        "verb": "quote",
        "description": "Price.",
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"symbol": {"title": "Symbol", "type": "string"}},
            "required": ["symbol"],
        },
        "result": {"type": "integer"},
        "response": "quoteresponse",
    }
