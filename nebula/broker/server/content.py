"""Content checks of destinations that are bound to an Avro schema."""

from __future__ import annotations

from nebula.avro import Finding, Registry, bare_check, envelope_check
from nebula.broker.core.messages import Content, ContentCheck
from nebula.errors import SettingsError

_CONTENT = {
    Finding.VALID: Content.VALID,
    Finding.TOMBSTONE: Content.TOMBSTONE,
    Finding.INVALID: Content.INVALID,
}


def check_for(registry: Registry, name: str, *, is_bare: bool) -> ContentCheck:
    """The check of destinations whose bodies are of the Avro type `name`.

    Args:
        is_bare: a body is the datum alone, not an envelope. There is one schema of that name then, as
            nothing in a bare datum tells which of several it was written with.

    Raises:
        SettingsError: `is_bare`, and the registry has not exactly one schema of that name.
    """
    if not is_bare:
        check = envelope_check(registry, name)
    else:
        schemas = registry.by_name(name)
        if len(schemas) != 1:
            raise SettingsError(
                f'[[destination]] avro = "{name}" with content = "bare" needs exactly one schema of that'
                f" name, and there are {len(schemas)}"
            )
        check = bare_check(schemas[0])
    return lambda body: _CONTENT[check(body)]
