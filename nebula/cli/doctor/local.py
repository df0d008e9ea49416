"""Facts about this machine: its disk, its limits, certificates in files and those that brokers present."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import ssl
import statistics
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nebula.broker.operations.machine import file_system_of, read_limits
from nebula.broker.store.folder import STORE_FILE, urls_of_holder
from nebula.cli.doctor.facts import Build, Certificate, DiskFacts, LimitFacts, SyncTimes
from nebula.cli.doctor.findings import Known, Outcome, Unknown
from nebula.compiled import build_name
from nebula.errors import MissingExtra, SettingsError
from nebula.optional import explain
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.tls import TlsOptions
from nebula.version import __version__

__all__ = [
    "certificates_in",
    "disk_of",
    "is_store_of",
    "limits_here",
    "our_build",
    "own_certificates",
    "presented",
    "sync_times",
    "tls_options",
]  # fmt: skip

# One page of SQLite, many times, but no longer than a person waits.
_PAGE: Final = b"\0" * 4096
_MOST_WRITES: Final = 100
_SYNC_SECONDS: Final = 1.0

# The field `user_version` of a database's header (https://sqlite.org/fileformat.html, 1.3).
_USER_VERSION: Final = slice(60, 64)
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"


def our_build() -> Build:
    """This program."""
    return Build("this command", __version__, platform.python_version(), build_name())


def limits_here(wanted_files: int, counted_bytes: int, listening: Sequence[int]) -> LimitFacts:
    """What the system allows a broker that is started here as this user.

    Args:
        wanted_files: that it opens when its limits are reached.
        counted_bytes: of memory that it counts.
        listening: its ports.
    """
    limits = read_limits()
    return LimitFacts(
        # `nebula broker` raises the soft limit as far as it may.
        _hard_file_limit(limits.open_files), wanted_files, limits.memory_bytes, counted_bytes,
        limits.backlog, limits.ports, listening,
    )  # fmt: skip


def _hard_file_limit(soft: int | None) -> int | None:
    try:
        import resource
    except ImportError:
        return soft
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def disk_of(folder: Path, min_free_bytes: int) -> DiskFacts:
    """The disk of a store's folder. A folder that is missing counts as part of the one above it."""
    there = _nearest(folder)
    try:
        free_bytes: int | None = shutil.disk_usage(there).free
    except OSError:
        free_bytes = None
    return DiskFacts(file_system_of(there), free_bytes, min_free_bytes, _schema_of(folder / STORE_FILE))


def _nearest(folder: Path) -> Path:
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)


def _schema_of(file: Path) -> int | None:
    """The version of a store's tables, without opening it: a broker may use it."""
    try:
        with file.open("rb") as opened:
            header = opened.read(_HEADER_BYTES)
    except OSError:
        return None
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        return None
    # An upgrade may still be in the log, which is not looked at.
    return int(struct.unpack(">I", header[_USER_VERSION])[0])


def is_store_of(folder: Path, urls: Sequence[str]) -> bool:
    """Whether the broker with these addresses keeps its messages in a folder of this machine."""
    return bool(set(urls) & set(urls_of_holder(folder)))


def sync_times(folder: Path, seconds: float = _SYNC_SECONDS) -> Known[SyncTimes]:
    """How long a write to a folder takes until it is on the disk.

    Writes a few pages to a file without a name, which is gone afterwards.

    Args:
        seconds: that all writes may take together.
    """
    # Not on macOS.
    sync = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    end = time.perf_counter() + seconds
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder), buffering=0) as file:
            while len(times) < _MOST_WRITES and (not times or time.perf_counter() < end):
                began = time.perf_counter()
                file.write(_PAGE)
                sync(file.fileno())
                times.append(time.perf_counter() - began)
    except OSError as error:
        return Unknown(
            f"{folder}: cannot be written: {error.strerror or error}", "run it as the user of the broker"
        )
    return SyncTimes(statistics.median(times), max(times), len(times))


# --- certificates ---


def own_certificates(options: TlsOptions) -> Known[tuple[list[Certificate], list[Certificate]]]:
    """The client's own certificate, and the CAs that it trusts."""
    own: list[Certificate] = []
    trusted: list[Certificate] = []
    for file, into, whose in (
        (options.cert, own, "the client's certificate"),
        (options.ca, trusted, "the trusted CA"),
    ):
        if file is not None:
            found = certificates_in(file, f"{whose} in {file}")
            if isinstance(found, Unknown):
                return found
            into.extend(found)
    return own, trusted


def certificates_in(file: Path, who: str) -> Known[list[Certificate]]:
    """The certificates of a PEM file."""
    try:
        # Not at the start of the module: it needs an extra, and the other checks do not.
        from nebula.broker.operations.certificates import ends_of_pem

        found = ends_of_pem(file.read_bytes())
    except ModuleNotFoundError as error:
        return _missing(error)
    except OSError as error:
        return Unknown(
            f"{file}: cannot be read: {error.strerror}", "correct its path or permissions", Outcome.ERROR
        )
    except ValueError:
        return Unknown(f"{file}: holds no certificate in PEM form", "name a PEM file", Outcome.ERROR)
    return [Certificate(who, ends_at) for ends_at in found]


def presented(address: Address, options: TlsOptions, seconds: float) -> Known[list[Certificate]]:
    """The certificate that a broker presents in a TLS handshake; none without TLS.

    It is not verified, because an expired one must be found, too. Nothing is sent after the handshake.
    """
    if not address.is_tls:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        from nebula.broker.operations.certificates import end_of_der

        if options.cert is not None:
            context.load_cert_chain(options.cert, options.key)
        place = (address.host, address.port)
        with (
            socket.create_connection(place, timeout=seconds) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as secure,
        ):
            der = secure.getpeercert(binary_form=True)
        assert der is not None  # a server always has one
        ends_at = end_of_der(der)
    except ModuleNotFoundError as error:
        return _missing(error)
    except (OSError, ValueError) as error:
        return Unknown(f"no TLS handshake with {address.place}: {error}", "see broker.connection")
    return [Certificate(f"the certificate that {address.place} presents", ends_at)]


def _missing(error: ModuleNotFoundError) -> Unknown:
    try:
        explain(error, "this check")
    except MissingExtra as missing:
        return Unknown(str(missing), "")
    raise error


def tls_options() -> Known[TlsOptions]:
    """The TLS options of the environment."""
    try:
        return TlsOptions.from_environment()
    except SettingsError as error:
        return Unknown(str(error), "correct the variable", Outcome.ERROR)
