"""`Signature`: the contract of a handler, its parameters and result with their JSON Schema."""

# The contract is built once, at declaration, and everything that can be wrong with it is refused there: a
# service that starts has no handler that fails at its first request. What a request pays for is one call of a
# compiled pydantic validator (`_read`), and for the reply one of its serializer.
#
# Three shapes of parameters, and the one ambiguity between them:
#
#     {"symbol": "ABC"}     an object is keywords          def quote(symbol)
#     ["ABC", 2]            an array is positions          def quote(symbol, qty)
#     "ABC"                 anything else is the one argument
#
# A function whose only parameter is itself an object (a model) or an array (a list) takes the value whole;
# otherwise `[1, 2]` for `def total(values: list[int])` would be two arguments. `_takes_object` and
# `_takes_array` are decided from the annotation, never from the value, so that a contract has one form and
# callers (`pack`) can know it without asking.

from __future__ import annotations

import inspect
import types
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any, Final, get_origin

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, from_json
from typing_extensions import deprecated

from nebula.errors import AvroError
from nebula.nearest import did_you_mean
from nebula.rpc.contract.call_options import as_option
from nebula.rpc.contract.hints import hints_of, is_any_of, name_of, parameters_of, plain_type
from nebula.rpc.contract.injection import Plan, dependency_of
from nebula.rpc.contract.results import BadResult, ResultContract
from nebula.rpc.contract.yielding import items_of, stands_for_stream
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.wire.avro_bodies import AvroValue, read_value, schemas_of, write_value
from nebula.rpc.wire.json_types import DEPRECATED_BECAUSE, Adapter

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_NOTHING: Final[Arguments] = ((), {})
_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_ARRAYS: Final = (Sequence, AbstractSet, Collection, Iterable)
_ARRAY_CLASSES: Final = (list, tuple, set, frozenset, deque)

# On a job's function: the engine host, which imports it, knows nothing else of its declaration.
_UNCHECKED: Final = "__nebula_unchecked_results__"

_SUGGESTION: Final = "; did you mean "
_UNKNOWN: Final = ("unexpected_keyword_argument", "extra_forbidden")

# In the schema of parameters that are one model or list: what the function calls it.
PARAMETER_NAME: Final = "x-parameter"


class Signature:
    """What one handler takes and gives, built once so that a call costs two or three microseconds.

    An object is keywords, a list positional, a scalar the single
    argument; where the one parameter is a model it takes the object itself, where it is a list the array.
    Values are converted as pydantic does by default, so `"2"` is an `int` too: text bodies know strings only.
    Bytes travel as base64, except in models that choose another form.

    Args:
        function: the handler. Its annotations are read now, and must be resolvable.
        context: the classes whose parameters the framework fills in. They are hidden from the contract.
        returns: read the return annotation; without it `dump` and `load` take a value as it is.
        checks: what the handler returns has to be what its annotation says.

    Attributes:
        names: the parameters of the contract, in order.
        required: those without a default.
        context_name: the parameter that takes the context, or None.
        unannotated: the parameters of which nothing is said: they take anything.
        is_called_by_name: `complete` has something to do.
        plan: how the parameters with `Depends` are made, or None without any.
        streams: results come one by one, and `dump` and `load` deal with lists of them.
        avro: the schemas of `in_avro`, or None.
        deprecated: why not to use it any more, from `@deprecated` (PEP 702), or None.
        load: makes the value of a reply what the handler returned: the side of `dump` that its caller has.
            Raises pydantic's ValidationError.

    Raises:
        TypeError: it cannot be a contract; the text says why and what to do.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        context: tuple[type, ...] = (),
        returns: bool = True,
        checks: bool = True,
    ) -> None:
        self._where = name_of(function)
        hints = hints_of(function, self._where, returns=returns)
        declared = parameters_of(function)
        self._refuse_odd(declared)
        contexts = [one.name for one in declared if is_any_of(hints.get(one.name), context)]
        if len(contexts) > 1:
            raise TypeError(f"{self._where}: {contexts[0]} and {contexts[1]} both take the context; keep one")
        self.context_name = contexts[0] if contexts else None
        dependencies = {one.name: dependency_of(one, hints.get(one.name), self._where) for one in declared}
        injected = {name: found for name, found in dependencies.items() if found is not None}
        self.plan = Plan(injected, context, self._where) if injected else None
        taken = [one for one in declared if one.name not in contexts and one.name not in injected]
        # Injected parameters may stand anywhere, even before those that callers give by position.
        self.is_called_by_name = bool(contexts) or any(
            one.name in injected and one.kind is not inspect.Parameter.KEYWORD_ONLY for one in declared
        )
        self.names = tuple(one.name for one in taken)
        self._known = frozenset(self.names)
        self.unannotated = frozenset(one.name for one in taken if one.name not in hints)
        self.required = frozenset(one.name for one in taken if _is_required(one))
        self.deprecated: str | None = getattr(function, "__deprecated__", None)
        self._deprecated = {one.name: why for one in taken if (why := _why_deprecated(one, hints))}
        only = plain_type(hints.get(taken[0].name, Any)) if len(taken) == 1 else None
        self._takes_object = _is_model(only)
        self._fields = tuple(getattr(only, "model_fields", ()))
        self._takes_array = _is_array(only)
        self._takes_str = only is str
        self._arguments = self._adapter(_collector(taken, hints))
        result = hints.get("return", Any)
        self.streams = stands_for_stream(function, result)
        # All that a handler yields, or the part of it that comes in one message.
        given = _list_of(items_of(result)) if self.streams else result
        self._returned = self._result_contract(given, checks=checks)
        self._result = self._returned.adapter
        self._read = self._arguments.read
        self.avro = schemas_of(function)
        self.load = self._result.read if self.avro is None else self._load_avro

    def bind(self, parameters: Any, *, is_text: bool = False) -> Arguments:
        """Validate a request's parameters and give the arguments to call the handler with.

        Args:
            parameters: as they came, None for none.
            is_text: they came in a text body: a string that holds a JSON object or array is read as such,
                whatever the verb takes (D.40). Else a string is the one argument.

        Raises:
            VerbError: `bad-parameters`, with one entry of `details` for each field at fault.
        """
        read: Callable[[Any], Any] = self._read
        if is_text:
            parameters = self._read_text(parameters)
        elif type(parameters) is AvroValue:
            # `take` and not `read`: Avro gives dates, decimals and bytes as Python has them, where JSON has
            # texts.
            parameters, read = self._read_avro(parameters), self._arguments.take
        # An omitted parameter and null are the same on the wire (C.5 drops nil fields).
        given = () if parameters is None else parameters
        kind = type(given)
        # An object or array is the arguments, unless it is the one that the verb takes whole.
        if kind is dict:
            is_single = self._takes_object
        else:
            is_single = self._takes_array if kind is list else kind is not tuple
        if is_single:
            given = (given,)
        if not given and not self.names:
            return _NOTHING
        try:
            arguments: Arguments = read(given)
        except ValidationError as error:
            is_whole = is_single and (kind is dict or kind is list)
            raise self._bad_parameters(error, is_whole=is_whole) from None
        return arguments

    def complete(self, arguments: Arguments, context: Any) -> Arguments:
        """Arguments for the handler, with the context if it takes one."""
        args, kwargs = arguments
        named = dict(zip(self.names, args, strict=False)) | kwargs
        if self.context_name is not None:
            named[self.context_name] = context
        return (), named

    def bind_whole(self, value: Any, *, is_text: bool = False) -> Arguments:
        """Validate what a message says, which is the one parameter whatever it is: None, too.

        Args:
            value: as JSON or Avro gave it.
            is_text: as for `bind`; but where the parameter is a `str`, it is the text as it is.

        Raises:
            VerbError: as `bind`.
        """
        if is_text and not self._takes_str:
            value = self._read_text(value)
        try:
            arguments: Arguments = self._read({self.names[0]: value})
        except ValidationError as error:
            raise self._bad_parameters(error, is_whole=True) from None
        return arguments

    def _bad_parameters(self, error: ValidationError, *, is_whole: bool) -> VerbError:
        """`bad-parameters` with what pydantic found, field by field. Values stay out: they may be secret."""
        details = [
            {
                "field": self._field(one["loc"], is_whole=is_whole),
                "message": one["msg"] + self._suggestion(one, is_whole=is_whole),
                "type": one["type"],
            }
            for one in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        # A misspelt name is missing under its right one, too: the suggestion says more.
        first = next((one for one in details if _SUGGESTION in one["message"]), details[0])
        message = f"{first['field']}: {first['message']}" if first["field"] else first["message"]
        if len(details) > 1:
            message += f" (and {len(details) - 1} more)"
        return VerbError("bad-parameters", message, details=details)

    def _suggestion(self, error: ErrorDetails, *, is_whole: bool) -> str:
        """The parameter that an unknown name may mean."""
        if error["type"] not in _UNKNOWN or len(error["loc"]) != 1 + is_whole:
            return ""
        return did_you_mean(str(error["loc"][-1]), self._fields if is_whole else self.names)

    def _field(self, place: tuple[int | str, ...], *, is_whole: bool) -> str:
        """Where a fault is, as its caller wrote it: a position has a name, an object sent whole has none."""
        if is_whole:
            place = place[1:]
        elif isinstance(place[0], int) and place[0] < len(self.names):
            place = (self.names[place[0]], *place[1:])
        return ".".join(map(str, place))

    def _read_text(self, parameters: Any) -> Any:
        if not isinstance(parameters, str):
            return parameters
        if parameters[:1] in ("{", "["):
            try:
                return from_json(parameters)
            except ValueError:
                return parameters
        return parameters if parameters or self.names else None

    def dump(self, result: Any) -> bytes:
        """The handler's result as ASCII-only JSON, by its return annotation where there is one.

        Raises:
            BadResult: it is of another type than declared, or has no JSON form.
        """
        return self._returned.write(result)

    def check_none(self) -> None:
        """See that the handler may return None.

        Raises:
            BadResult: its annotation does not allow that.
        """
        self._returned.check(None)

    def dump_avro(self, result: Any) -> bytes:
        """`dump` for a request in Avro: by the schema that is declared for results, else as JSON.

        Raises:
            BadResult: it is not of the schema or of another type than declared, or has no JSON form.
        """
        if self.avro is None or self.avro.result is None:
            return self.dump(result)
        try:
            return write_value(self.avro.result, self._returned.plain(result))
        except AvroError as error:
            raise BadResult("", str(error)) from error

    def _read_avro(self, value: AvroValue) -> Any:
        try:
            return read_value(None if self.avro is None else self.avro.parameters, value)
        except AvroError as error:
            raise VerbError("bad-parameters", str(error)) from None

    def _load_avro(self, value: Any) -> Any:
        if type(value) is AvroValue:
            assert self.avro is not None
            try:
                value = read_value(self.avro.result, value)
            except AvroError as error:
                raise UnexpectedReply(f"the answer is not what was asked for: {error}") from None
            return self._result.take(value)
        return self._result.read(value)

    def pack(self, args: Sequence[Any], kwargs: Mapping[str, Any], method: str = "call") -> Any:
        """The parameters of a request from the arguments of a typed call: the caller's side of `bind`.

        Args:
            args: of the call.
            kwargs: of the call.
            method: of the client that is called, for the text of an error.

        Raises:
            TypeError: they do not fit the signature, in Python's own words for it.
        """
        given = dict(zip(self.names, args, strict=False))
        given.update(kwargs)
        # One that is given twice, or too many by position, makes the dict smaller than the arguments.
        if (
            len(given) < len(args) + len(kwargs)
            or not self._known.issuperset(given)
            or not self.required.issubset(given)
        ):
            raise self._misfit(args, kwargs, method)
        if self.deprecated is not None or self._deprecated:
            self._warn(given)
        # The one model or list goes as the object or array itself, as `bind` takes it.
        if given and (self._takes_object or self._takes_array):
            return given[self.names[0]]
        return given or None

    def _misfit(self, args: Sequence[Any], kwargs: Mapping[str, Any], method: str) -> TypeError:
        """Why these arguments do not fit."""
        by_position = dict(zip(self.names, args, strict=False))
        if len(args) > len(self.names):
            return TypeError(f"{self._where} takes {len(self.names)} arguments, {len(args)} were given")
        if twice := by_position.keys() & kwargs.keys():
            return TypeError(f"{self._where} got {_listed(twice)} by position and by keyword")
        given = by_position.keys() | kwargs.keys()
        if unknown := given - self._known:
            how = as_option(unknown, method, self._where.rpartition(".")[2])
            hint = did_you_mean(min(unknown), self.names) if len(unknown) == 1 and not how else ""
            return TypeError(f"{self._where} has no parameter {_listed(unknown)}{how}{hint}")
        return TypeError(f"{self._where} needs {_listed(self.required - given)}")

    def parameters_schema(self) -> dict[str, Any]:
        """JSON Schema of what `bind` takes; the object form where there are several."""
        schema = self._arguments.schema("validation")
        for name, why in self._deprecated.items():
            schema["properties"][name] |= {"deprecated": True, DEPRECATED_BECAUSE: why}
        if self._takes_object or self._takes_array:
            only: dict[str, Any] = schema["properties"][self.names[0]]
            only[PARAMETER_NAME] = self.names[0]
            return only | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
        return schema

    def result_schema(self) -> dict[str, Any]:
        """JSON Schema of the value in a reply; empty where the handler does not say."""
        return self._result.schema("serialization")

    def marks(self) -> dict[str, Any]:
        """What `describe` says besides the schemas: `avro` and `deprecated`, where they apply."""
        shown: dict[str, Any] = {} if self.avro is None else {"avro": self.avro.describe()}
        if self.deprecated is not None:
            shown |= {"deprecated": True, DEPRECATED_BECAUSE: self.deprecated}
        return shown

    def _warn(self, given: Mapping[str, Any]) -> None:
        """Tell who wrote the call of what is deprecated in it: that is two calls above `pack`."""
        texts = [f"{self._where} is deprecated: {self.deprecated}"] if self.deprecated is not None else []
        texts += [
            f"{self._where}: {name} is deprecated: {why}"
            for name, why in self._deprecated.items()
            if name in given
        ]
        for text in texts:
            warnings.warn(text, DeprecationWarning, stacklevel=4)

    def _refuse_odd(self, declared: Sequence[inspect.Parameter]) -> None:
        for one in declared:
            if one.kind in _UNNAMED:
                raise TypeError(
                    f"{self._where}: *{one.name} says nothing of what it takes; name the parameters"
                )
            if one.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise TypeError(f"{self._where}: {one.name} is positional-only, but callers send names")

    def _adapter(self, kind: Any) -> Adapter:
        with self._telling_where():
            return Adapter(kind)

    def _result_contract(self, kind: Any, *, checks: bool) -> ResultContract:
        with self._telling_where():
            return ResultContract(kind, checks=checks, are_items=self.streams)

    @contextmanager
    def _telling_where(self) -> Iterator[None]:
        try:
            yield
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise TypeError(f"{self._where}: {error.message}") from error


def handler_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The handler inside `@deprecated`, which is for callers and need not warn of each request."""
    if not hasattr(function, "__deprecated__") or not hasattr(function, "__wrapped__"):
        return function
    inner: Callable[..., Any] = function.__wrapped__
    return types.MethodType(inner, function.__self__) if inspect.ismethod(function) else inner


def refuse_method(function: Callable[..., Any], instead: str) -> None:
    """Raise TypeError for a method that is declared in its class, without an object.

    Args:
        function: to be declared.
        instead: what to write, in which `{kind}` is the class.
    """
    if not inspect.isfunction(function):
        return
    kind = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    first = next(iter(parameters_of(function)), None)
    if kind in ("", "<locals>") or first is None or first.name not in ("self", "cls"):
        return
    raise TypeError(f"{name_of(function)} is a method without its object; {instead.format(kind=kind)}")


def refuse_unannotated(contract: Signature, where: str, names: Collection[str], kind: type) -> None:
    """Raise TypeError for a parameter without annotation whose name suggests the context."""
    for name in sorted(contract.unannotated.intersection(names)):
        raise TypeError(
            f"{where}: {name} has no annotation; write `{name}: {kind.__name__}` for the {kind.__name__} "
            f"itself, or `{name}: Any` for what callers send"
        )


def leave_results(function: Callable[..., Any]) -> None:
    """Have the results of a job not checked, in any process that imports its function."""
    setattr(getattr(function, "__func__", function), _UNCHECKED, True)


def job_signature(
    function: Callable[..., Any], *, context: tuple[type, ...], checks: bool = True
) -> Signature:
    """The contract of a job, whose return annotation is left aside where it has no schema.

    A job may return a table of Spark's: its class has no JSON form, and where there is no pyspark it may
    be known to type checkers only.

    Raises:
        TypeError: as for `Signature`.
    """
    checks = checks and not getattr(function, _UNCHECKED, False)
    try:
        return Signature(function, context=context, checks=checks)
    except TypeError:
        return Signature(function, context=context, returns=False, checks=checks)


def _collector(taken: Sequence[inspect.Parameter], hints: Mapping[str, Any]) -> Callable[..., None]:
    """A function with the contract's signature, for pydantic to read. It is never called."""

    def collect(*_args: Any, **_kwargs: Any) -> None: ...

    annotations = {one.name: hints.get(one.name, Any) for one in taken}
    parameters = [one.replace(annotation=annotations[one.name]) for one in taken]
    collect.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    collect.__annotations__ = annotations
    return collect


def _list_of(kind: Any) -> Any:
    return list[kind]


def _is_required(one: inspect.Parameter) -> bool:
    # pydantic's way to write a default: `qty: int = Field(1, gt=0)`.
    return one.default.is_required() if isinstance(one.default, FieldInfo) else one.default is one.empty


def _why_deprecated(one: inspect.Parameter, hints: Mapping[str, Any]) -> str | None:
    """Why not to give a parameter any more, by pydantic's `Field(deprecated=…)` or PEP 702's mark."""
    for mark in (one.default, *getattr(hints.get(one.name), "__metadata__", ())):
        if isinstance(mark, FieldInfo) and mark.deprecation_message:
            return mark.deprecation_message
        if isinstance(mark, deprecated):
            return mark.message
    return None


def _is_model(kind: Any) -> bool:
    kind = get_origin(kind) or kind
    # A TypedDict is a subclass of dict; a bare dict is not a model: its keys would be parameters.
    return isinstance(kind, type) and (
        issubclass(kind, BaseModel) or is_dataclass(kind) or (issubclass(kind, dict) and kind is not dict)
    )


def _is_array(kind: Any) -> bool:
    kind = get_origin(kind) or kind
    # A NamedTuple is a tuple of its own class.
    return kind in _ARRAYS or (isinstance(kind, type) and issubclass(kind, _ARRAY_CLASSES))


def _listed(names: AbstractSet[str]) -> str:
    return ", ".join(sorted(names))
