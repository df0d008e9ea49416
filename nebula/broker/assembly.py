"""Assembly of a server from settings, and the reload of its files."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from nebula.broker.core.access import AccessPolicy, Grants
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.profiles import PROFILES
from nebula.broker.core.shares import Share
from nebula.broker.keys import key_function
from nebula.broker.operations.history import History
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener, is_loopback
from nebula.broker.server.pages import Token, console_pages, pages_of
from nebula.broker.server.rights_files import load_grants
from nebula.broker.server.server import Server
from nebula.broker.settings import (
    BrokerSettings,
    DestinationSettings,
    ListenerSettings,
    SettingsSource,
    ShareSettings,
)
from nebula.broker.store.sqlite import OnProgress, SqliteStore
from nebula.environment import BrokerEnvironment
from nebula.errors import SettingsError
from nebula.globs import compile_glob
from nebula.logs import configure, get_logger
from nebula.settings import Changes, changes, files_of

if TYPE_CHECKING:
    from nebula.avro import Registry
    from nebula.broker.core.messages import ContentCheck
    from nebula.broker.server.authenticator import Authenticator
    from nebula.broker.server.tls import ServerTls

_log = get_logger("nebula.broker")


# In addition to connections: the store, listeners, pipes, and connections that are being refused.
_OTHER_FILES = 200


def files_wanted(settings: BrokerSettings) -> int:
    """How many files such a broker opens when its limits are reached.

    A connection is one, and so is each request to a listener for HTTP.
    """
    limits, has_http = settings.limits, settings.http is not None
    pages = sum(each.http for each in settings.listener) + has_http
    # Calls over HTTP have a limit of their own, so that slow calls do not keep probes out.
    calls = sum(each.calls for each in settings.listener) + (has_http and settings.http_calls)
    others = pages * limits.max_http_requests + calls * limits.max_http_calls
    return limits.max_connections + others + _OTHER_FILES


def store_folder(settings: BrokerSettings) -> Path:
    """Where the messages of such a broker are."""
    return settings.data or BrokerEnvironment.read().state_root / "broker"


# What tells one content of a file from another: its time of change, its size and its number. The number is
# there because a file that replaces another may have an older time.
_Stamp: TypeAlias = tuple[int, int, int]


def _stamps_of(settings: BrokerSettings) -> dict[tuple[str, Path], _Stamp | None]:
    """The files that a reload reads, by setting and path; None: there is no such file."""
    return {(name, file): _stamp_of(file) for name, file in files_of(settings)}


def _stamp_of(file: Path) -> _Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class Assembly:
    """A broker as its settings describe it.

    Args:
        settings: everything it is told.
        on_failure: called once when the broker cannot go on, with why.
        on_progress: of a start that takes long, called on the store's thread.
        source: from where a reload reads the settings again; None: they stay as they are.

    Attributes:
        server: not started yet.
        store: what the server keeps its messages in; None: in memory only.
        access: who may do what there.
        registry: the schemas that it knows; None: no folder of them was named.
        takes_calls: whether a listener serves `POST /call/…`.
        has_console: whether a listener serves the console.
        history: figures of the last hour, for the console.
        source: as it was given.
        value_prefixes: prefixes of the names of last values.
        backups: folder for copies of the store that operators ask for; None: copies are not allowed.

    Raises:
        SettingsError: a file that cannot be used.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        on_failure: Callable[[Exception], None],
        on_progress: OnProgress | None = None,
        source: SettingsSource | None = None,
    ) -> None:
        self._settings = settings
        # Before any file is read: one that changes meanwhile counts as changed.
        self._stamps = _stamps_of(settings)
        self.source = source
        self.backups = settings.backups
        self.value_prefixes = settings.last_value.prefixes
        self.store = self._store(on_progress)
        # Dead letters are other principals' messages, so only a grant that names the queue opens it.
        self.access = AccessPolicy(self._grants(), dead_letter_queues=frozenset({settings.dead_letter}))
        self.registry = self._registry()
        listeners = list(settings.listener)
        # `http = PORT` is the short form of a listener for HTTP, on loopback.
        if settings.http is not None:
            listeners.append(
                ListenerSettings(
                    port=settings.http, http=True, calls=settings.http_calls, console=settings.console
                )
            )
        self.takes_calls = any(listener.calls for listener in listeners)
        self.has_console = any(listener.console for listener in listeners)
        self.server = Server(
            # Only described here; `Server.start` opens them. So a file that cannot be used is found before a
            # socket is open or a message is loaded.
            [self._listener(listener) for listener in listeners],
            limits=settings.limits,
            policies=[self._policy(each) for each in settings.destination],
            shares=[self._share(each) for each in settings.share],
            access=self.access,
            store=self.store,
            free_disk_bytes=None if self.store is None else self.store.free_bytes,
            key_of=key_function(settings.last_value.prefixes, settings.last_value.key_patterns),
            last_value_prefixes=settings.last_value.prefixes,
            dead_letter=settings.dead_letter,
            on_failure=on_failure,
            lifetimes=Lifetimes(
                grace_seconds=settings.identity.grace_seconds,
                max_seconds=settings.identity.max_connection_seconds,
                # Without it `Lifetimes` is deterministic, for tests.
                chance=random.random,
            ),
            counts_flows=self.has_console if settings.count_flows is None else settings.count_flows,
        )
        token = None if settings.metrics_token is None else Token(settings.metrics_token)
        if token is not None:
            self.server.renewals.append(token.reload)
        self.server.pages.update(pages_of(self.server, token))
        if self.has_console:
            self.server.console.update(console_pages())
        self.history = History()

    def tell_place(self) -> None:
        """Log where messages are kept, and note the broker's address there. Call it once it listens."""
        if self.store is None:
            _log.info("messages kept in memory only")
            return
        # For the folder's lock file, so that a second broker can name the first one's addresses.
        self.store.tell_urls(self.server.urls)
        _log.info("messages kept", folder=str(self.store.folder))

    def reload(self) -> None:
        """Take up changed settings and files. Call it on the server's loop.

        Files are those of rights, certificates, deny lists, users and tokens. Settings are taken whose fields
        say so (`Reload.VALUE`); the log names the others. Where settings are wrong, none is
        taken, and the files are read that were named before.

        Raises:
            SettingsError: wrong settings, and as `Server.reload`.
        """
        problems = []
        wanted = self._settings
        try:
            wanted = self._settings if self.source is None else self.source.read().value
        except SettingsError as error:
            problems.append(str(error))
        stamps = _stamps_of(self._settings) | _stamps_of(wanted)
        if names := changes(self._settings, wanted).restart:
            _log.warning("restart needed", settings=list(names))
        if wanted.log_level is not self._settings.log_level:
            configure(wanted.log_level)
            self._settings = self._settings.model_copy(update={"log_level": wanted.log_level})
        has_rights = wanted.rights is not None or self._settings.rights is not None
        try:
            self.server.reload(partial(self._take_rights, wanted.rights) if has_rights else None)
        except SettingsError as error:
            problems.append(str(error))
        if problems:
            # Which of the files were taken is not known here, so those that changed still count as changed.
            raise SettingsError("\n".join(problems))
        self._stamps = stamps

    def check(self, source: SettingsSource, text: str | None) -> Changes:
        """What a reload and a restart would change. Nothing is taken, and no other file is read.

        Args:
            text: instead of what is in the file.

        Raises:
            WrongSettings: the settings are wrong.
        """
        return changes(self._settings, source.read(text).value)

    @property
    def settings(self) -> BrokerSettings:
        """Its settings, with those that reloads have taken."""
        return self._settings

    @property
    def stale_files(self) -> list[str]:
        """The settings whose files have changed since they were read, or are gone."""
        now = _stamps_of(self._settings)
        return sorted({name for name, file in now if now[name, file] != self._stamps.get((name, file))})

    def _take_rights(self, files: tuple[Path, ...] | None) -> Grants | None:
        grants = None if files is None else load_grants(files)
        self._settings = self._settings.model_copy(update={"rights": files})
        return grants

    def binding_of(self, destination: str) -> tuple[str, str] | None:
        """The Avro type that a destination's bodies must have, and its `content`; None: it is not bound.

        Args:
            destination: a name, or a glob as in a SUBSCRIBE.
        """
        # As policies are: the first pattern that matches counts.
        # Linear in the tables; only operators' requests need it.
        settings = (each for each in self._settings.destination if compile_glob(each.pattern)(destination))
        found = next(settings, None)
        return None if found is None or found.avro is None else (found.avro, found.content)

    def _grants(self) -> Grants | None:
        return None if self._settings.rights is None else load_grants(self._settings.rights)

    def _store(self, on_progress: OnProgress | None) -> SqliteStore | None:
        if self._settings.store == "memory":
            return None
        # Touches nothing yet: `load` locks and opens the folder, on the store's thread.
        return SqliteStore(
            store_folder(self._settings),
            on_progress=on_progress,
            # The other half is for what comes.
            most_first_bytes=self._settings.limits.max_memory_bytes // 2,
        )

    # A broker that uses none of it need not load cryptography, argon2 and fastavro.

    def _registry(self) -> Registry | None:
        if self._settings.schemas is None:
            return None
        from nebula.avro import Registry

        return Registry(self._settings.schemas)

    def _listener(self, settings: ListenerSettings) -> Listener:
        return Listener(
            settings.host,
            settings.port,
            # `durable_false_removes` belongs to the profile (D.3), but is set for each listener.
            replace(PROFILES[settings.profile], false_removes=settings.durable_false_removes),
            self._tls(settings),
            settings.http,
            settings.origins,
            self._authenticator(settings),
            settings.calls,
            settings.hosts,
            settings.console,
        )

    def _tls(self, settings: ListenerSettings) -> ServerTls | None:
        # The settings have checked that a listener has both or neither.
        if settings.tls_cert is None or settings.tls_key is None:
            return None
        from nebula.broker.server.tls import ServerTls, TlsFiles

        return ServerTls(TlsFiles(settings.tls_cert, settings.tls_key, settings.client_ca, settings.deny))

    def _authenticator(self, settings: ListenerSettings) -> Authenticator | None:
        """What finds out who peers without a certificate are; None: they are anonymous, or have one."""
        identity = self._settings.identity
        is_open = identity.users is None and identity.jwks is None
        # Clients are identified by their certificates.
        if is_open and settings.client_ca is not None:
            return None
        # On loopback a first try needs no settings: all peers are users of this machine.
        if is_open and settings.anonymous is None and is_loopback(settings.host):
            return None
        # Includes loopback with `anonymous = false`, which `Listener` would accept.
        if is_open and not settings.anonymous:
            raise SettingsError(
                f"listener {settings.host}:{settings.port}: clients have no way to authenticate; give it"
                " client_ca, or users or jwks under [identity], or anonymous = true"
            )
        from nebula.broker.server.authenticator import Authenticator

        return Authenticator(
            users=identity.users,
            jwks=identity.jwks,
            audience=identity.audience,
            issuer=identity.issuer,
            anonymous=bool(settings.anonymous),
            verifications_per_second=identity.verifications_per_second,
        )

    def _share(self, settings: ShareSettings) -> Share:
        # `or` means "not given": the settings only accept fractions above 0.
        fraction = settings.fraction or self._settings.limits.principal_share
        return Share(settings.pattern, fraction, settings.most)

    def _policy(self, settings: DestinationSettings) -> DestinationPolicy:
        return DestinationPolicy(
            pattern=settings.pattern,
            max_messages=settings.max_messages,
            max_bytes=settings.max_bytes,
            max_deliveries=settings.max_deliveries,
            when_full=settings.when_full,
            time_to_live=settings.ttl,
            has_priorities=settings.priorities,
            dedup_window=settings.dedup_window,
            copy_to=settings.copy_to,
            slow_subscriber=settings.slow_subscriber,
            check=self._check(settings),
        )

    def _check(self, settings: DestinationSettings) -> ContentCheck | None:
        if settings.avro is None:
            return None
        assert self.registry is not None  # the settings have seen to that
        from nebula.broker.server.content import check_for

        return check_for(self.registry, settings.avro, is_bare=settings.content == "bare")
