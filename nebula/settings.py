"""Settings from file, environment and flags, with errors that say where, what and what is right.

A program's settings are one frozen model. Flags win over the environment, the environment over the
file, the file over the model's defaults; each value remembers where it came from.
"""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import (
    SettingsError as EnvironmentValueError,
)

from nebula.errors import SettingsError
from nebula.settings_words import Keys, did_you_mean, explain, fields_of, place

_NESTED = "__"

AT_RELOAD: Final = "x-at-reload"
"""The key of a field's `json_schema_extra` that says what a reload does with the setting."""


class Reload(StrEnum):
    """What a reload does with a setting. A field that does not say it needs a restart."""

    VALUE = auto()
    """It takes the new value, and reads the files that it names."""
    CONTENTS = auto()
    """It reads the file that the setting names again. Another name needs a restart."""
    RESTART = auto()
    """Nothing: a new value needs a restart."""


def reload_of(field: FieldInfo) -> Reload:
    """What a reload does with the setting of this field."""
    extra = field.json_schema_extra
    return Reload(str(extra.get(AT_RELOAD, Reload.RESTART))) if isinstance(extra, dict) else Reload.RESTART


# pydantic-settings merges sources too, but forgets where a value came from. So it only reads single variables
# (`_add_variable`), and `load` does the rest (docs/decisions/0002).
class Settings(BaseSettings):
    """The base of each program's settings: frozen, and an unknown name is an error.

    Made directly it reads no environment and no file: that is `load`'s work.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from the arguments alone."""
        return (init_settings,)


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings together with the origin of each value."""

    value: S
    origins: Mapping[Keys, str]

    def rows(self) -> list[tuple[str, Any, str]]:
        """Each setting as (name, value, origin), in the model's order; "default" is an origin too."""
        leaves = _nodes(self.value.model_dump(mode="json"), leaves_only=True)
        return [(place(keys), value, self.origins.get(keys, "default")) for keys, value in leaves]


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in settings; as a text it has everything.

    Attributes:
        source: the file, variable or flag.
        text: what is wrong where, and what would be right.
        public: the same without the wrong value, and without anything that was made of it.
    """

    source: str
    text: str
    public: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


class WrongSettings(SettingsError):
    """Settings with mistakes. The text has a line for each of them.

    Attributes:
        problems: the mistakes.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def load(
    model: type[S],
    *,
    env_prefix: str,
    file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    shorthands: Mapping[str, Keys] | None = None,
    environ: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Loaded[S]:
    """Gather the settings of one program.

    Args:
        model: what is wanted; its defaults count where no source says anything.
        env_prefix: each variable that begins so is a setting: `PREFIX_NAME`, `PREFIX_TABLE__NAME`,
            and JSON for lists.
        file: a TOML file that has to exist; None for none.
        flags: values by name; None among them means "not given".
        shorthands: names in environment and flags for a setting deep inside, such as `port`.
        environ: instead of the process's environment.
        text: instead of what is in the file, which then need not exist.

    Raises:
        WrongSettings: something is wrong. Its text has a line for every mistake in every source.
    """
    draft = _Draft(shorthands or {})
    # In order of precedence: a later source overwrites an earlier one.
    draft.add_file(file, text)
    draft.add_environment(model, env_prefix, os.environ if environ is None else environ)
    draft.add_flags(flags or {})
    try:
        # Also after a problem with a source, so that the user sees all mistakes at once.
        value = model.model_validate(draft.tree)
    except ValidationError as error:
        for found in error.errors():
            public = explain(model, found, shows_value=False)
            draft.problems.append(Problem(draft.origin(found["loc"]), explain(model, found), public))
    if draft.problems:
        raise WrongSettings(draft.problems)
    return Loaded(value, draft.origins)


@dataclass(frozen=True, slots=True)
class Changes:
    """The names of the settings in which two sets of settings differ.

    Attributes:
        reload: a reload takes their new values.
        restart: their new values need a restart.
    """

    reload: tuple[str, ...]
    restart: tuple[str, ...]


def changes(old: S, new: S) -> Changes:
    """What is different in `new`. A table that only one of them has is named as a whole."""
    before, after = dict(_settings_of(old)), dict(_settings_of(new))
    # Dicts as sets that keep the order of the settings.
    found: dict[Reload, dict[str, None]] = {each: {} for each in Reload}
    for keys in [*before, *(keys for keys in after if keys not in before)]:
        if keys not in before or keys not in after:
            found[Reload.RESTART][place(keys[:2])] = None
        elif before[keys][0] != after[keys][0]:
            found[before[keys][1]][place(keys)] = None
    restart = (*found[Reload.CONTENTS], *found[Reload.RESTART])
    return Changes(reload=tuple(found[Reload.VALUE]), restart=restart)


def files_of(settings: Settings) -> Iterator[tuple[str, Path]]:
    """The files that a reload reads again, each with the name of its setting."""
    for keys, (value, at_reload) in _settings_of(settings):
        if at_reload is not Reload.RESTART:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Path):
                    yield place(keys), each


def _settings_of(table: Any, keys: Keys = ()) -> Iterator[tuple[Keys, tuple[Any, Reload]]]:
    """Each setting of a table and of those inside it: its keys, its value, and what a reload does with it."""
    fields = type(table).model_fields if isinstance(table, BaseModel) else table.__pydantic_fields__
    for name, field in fields.items():
        value, here = getattr(table, name), (*keys, name)
        if not fields_of(field.annotation):
            yield here, (value, reload_of(field))
        elif isinstance(value, tuple):
            for number, each in enumerate(value):
                yield from _settings_of(each, (*here, number))
        else:
            yield from _settings_of(value, here)


class _Draft:
    """The tree of values that will be validated, and the origin of each of its nodes."""

    def __init__(self, shorthands: Mapping[str, Keys]) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[Keys, str] = {}
        self.problems: list[Problem] = []
        self._shorthands = shorthands

    def origin(self, keys: Keys) -> str:
        """The source of the value at `keys`, or of its absence: a file, a variable or a flag."""
        while keys and keys not in self.origins:
            keys = keys[:-1]
        # Settings that contradict each other may come from several sources.
        every = set(self.origins.values())
        return self.origins.get(keys) or (every.pop() if len(every) == 1 else "settings")

    def add_file(self, file: Path | None, text: str | None) -> None:
        if file is None:
            return
        try:
            tree = tomllib.loads(file.read_text(encoding="utf-8") if text is None else text)
        except UnicodeDecodeError as error:
            self._complain(str(file), f"not UTF-8 text: byte {error.start} is wrong")
        # TOMLDecodeError, or a number with more digits than Python reads. UnicodeDecodeError is a ValueError
        # too, so it comes first.
        except ValueError as error:
            self._complain(str(file), f"not valid TOML: {error}")
        # tomllib reads nested brackets by recursion.
        except RecursionError:
            self._complain(str(file), "not valid TOML: too many brackets in each other")
        except OSError as error:
            self._complain(str(file), f"cannot be read: {error.strerror}")
        else:
            # `_put` notes the origin of each value below the name as well.
            for name, value in tree.items():
                self._put((name,), value, str(file))

    def add_environment(self, model: type[S], prefix: str, environ: Mapping[str, str]) -> None:
        known = [*fields_of(model), *self._shorthands]
        # Sorted, so that messages have the same order in every environment.
        for variable in sorted(name for name in environ if name.startswith(prefix)):
            name = variable.removeprefix(prefix).lower()
            if name in self._shorthands:
                self._put(self._shorthands[name], environ[variable], variable)
            elif name.split(_NESTED)[0] in known:
                self._add_variable(model, prefix, variable, environ[variable])
            else:
                # An error, as for an unknown key in a file: a misspelt limit must not be silently ignored.
                spelled = [prefix + word.upper() for word in known]
                self._complain(variable, f"unknown setting{did_you_mean(variable, spelled)}")

    def _add_variable(self, model: type[S], prefix: str, variable: str, value: str) -> None:
        source = EnvSettingsSource(model, env_prefix=prefix, env_nested_delimiter=_NESTED)
        source.env_vars = {variable.lower(): value}
        try:
            tree = source()
        except EnvironmentValueError:
            what = "is not JSON, as a list or table has to be here"
            self.problems.append(Problem(variable, f"{value!r} {what}", what))
            return
        for keys, leaf in _nodes(tree, leaves_only=True, into_lists=False):
            self._put(keys, leaf, variable)

    def add_flags(self, flags: Mapping[str, Any]) -> None:
        for name, value in flags.items():
            if value is not None:
                self._put(self._shorthands.get(name, (name,)), value, "--" + name.replace("_", "-"))

    def _complain(self, source: str, text: str) -> None:
        self.problems.append(Problem(source, text, text))

    def _put(self, keys: Keys, value: Any, origin: str) -> None:
        """Set one value, in place of what an earlier source said there."""
        parent = self._container(keys)
        if parent is None:
            return
        if isinstance(parent, list) and keys[-1] == len(parent):
            parent.append(value)
        else:
            parent[keys[-1]] = value
        # The values of earlier sources below this place are gone, and so are their origins.
        for older in [known for known in self.origins if known[: len(keys)] == keys]:
            del self.origins[older]
        for depth in range(1, len(keys)):
            # Outer tables get an origin too, so that a missing key can be reported with a source.
            self.origins.setdefault(keys[:depth], origin)
        self.origins.update((keys + inner, origin) for inner, _ in _nodes(value))

    def _container(self, keys: Keys) -> Any:
        """What holds the last of `keys`, made on the way; None where an earlier source put nonsense."""
        node: Any = self.tree
        for key, following in itertools.pairwise(keys):
            empty: Any = [] if isinstance(following, int) else {}
            if isinstance(node, list) and key == len(node):
                node.append(empty)
            elif isinstance(node, dict):
                node.setdefault(key, empty)
            node = node[key]
            if not isinstance(node, type(empty)):
                return None
        return node


def _nodes(
    value: Any, keys: Keys = (), *, leaves_only: bool = False, into_lists: bool = True
) -> list[tuple[Keys, Any]]:
    """Each node of a tree of dicts and lists with its keys, from the outside in."""
    if isinstance(value, dict):
        children: list[tuple[str | int, Any]] = list(value.items())
    elif isinstance(value, list) and into_lists:
        children = list(enumerate(value))
    else:
        children = []
    inside = [
        node
        for key, child in children
        for node in _nodes(child, (*keys, key), leaves_only=leaves_only, into_lists=into_lists)
    ]
    return inside if leaves_only and children else [(keys, value), *inside]
