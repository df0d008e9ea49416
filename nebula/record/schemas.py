"""Schemas by fingerprint for a recorder: from a folder, else from the broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from nebula.avro.registry import Registry
from nebula.avro.schema import Schema
from nebula.errors import AvroError, NebulaError
from nebula.logs import get_logger
from nebula.rpc.client.client import Client
from nebula.stomp.client.tls import TlsOptions

__all__ = ["SchemaFinder", "ask_broker"]

_log = get_logger(__name__)

_ASK_SECONDS: Final = 5.0

# It may be registered at any moment; until then its data are kept in their envelopes.
_FORGET_SECONDS: Final = 30.0

# Unknown fingerprints may be made up, another one in each message.
_MOST_ASKED: Final = 16


class SchemaFinder:
    """Finds schemas, and remembers for a while which are unknown. For one thread at a time.

    Args:
        folder: of `.avsc` files; None for no folder.
        ask: asks another source, and may block; None: the schema is unknown, or no reply came.
        now: seconds of a monotonic clock.

    Raises:
        SettingsError: the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path | None,
        ask: Callable[[int], Schema | None],
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._registry = None if folder is None else Registry(folder)
        self._ask, self._now = ask, now
        self._unknown: dict[int, float] = {}
        self._asked: deque[float] = deque(maxlen=_MOST_ASKED)

    def find(self, fingerprint: int) -> Schema | None:
        """The schema of a fingerprint; None if it is unknown now."""
        # The folder first: a look-up needs no network.
        found = None if self._registry is None else self._registry.by_fingerprint(fingerprint)
        if found is not None:
            return found
        now = self._now()
        # The default passes a fingerprint that was never asked for.
        if now - self._unknown.get(fingerprint, now - _FORGET_SECONDS) < _FORGET_SECONDS:
            return None
        # At most `_MOST_ASKED` questions in `_FORGET_SECONDS`: each takes seconds, and nothing is recorded
        # meanwhile.
        if len(self._asked) == _MOST_ASKED and now - self._asked[0] < _FORGET_SECONDS:
            return None
        self._asked.append(now)
        found = self._ask(fingerprint)
        if found is None:
            self._forget(now)
            self._unknown[fingerprint] = now
            _log.warning("schema not known, envelopes kept whole", fingerprint=f"{fingerprint:016x}")
        return found

    def _forget(self, now: float) -> None:
        self._unknown = {each: at for each, at in self._unknown.items() if now - at < _FORGET_SECONDS}


async def ask_broker(
    url: str | Sequence[str] | None, tls: TlsOptions | None, fingerprint: int
) -> Schema | None:
    """Ask a Nebula broker for a schema; None: it does not know it, or did not reply. Never raises."""
    name = f"{fingerprint:016x}"
    try:
        # A client of its own: the recorder's connection is plain STOMP, without an inbox.
        async with Client(url, tls=tls, timeout=_ASK_SECONDS, reconnect=False) as client:
            answer = await client.call("nebula.broker", "schema.get", {"fingerprint": name})
        schema = Schema(answer["definition"])
    except (NebulaError, AvroError, KeyError, TypeError) as error:
        _log.info("schema not found", fingerprint=name, reason=str(error))
        return None
    # The reply may be any schema, and data under a wrong one would spoil a file.
    return schema if schema.fingerprint == fingerprint else None
