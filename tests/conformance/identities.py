"""Certificates of a broker and of those who are named in a case, and the world over TLS."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from nebula.broker.operations.certificates import Certificate, make_authority
from nebula.broker.server.listener import Listener
from nebula.broker.server.tls import ServerTls, TlsFiles
from tests.conformance.cases import Case
from tests.conformance.running import over
from tests.conformance.wires import TcpOctets, Wire
from tests.conformance.worlds import OverSockets


class Identities:
    """Makes the certificates as they are needed.

    Args:
        folder: an empty one, for their files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = make_authority("conformance", days=1)
        self._authority.issue_server(["127.0.0.1"], days=1).write(folder, "broker")
        self._authority.certificate.write(folder, "ca")
        self._certificates: dict[str, Certificate] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    def over_tls(self, case: Case, profile: str) -> contextlib.AbstractContextManager[OverSockets]:
        """A world where everybody has a certificate."""
        folder = self._folder
        files = TlsFiles(folder / "broker.pem", folder / "broker.key", client_ca=folder / "ca.pem")
        listener = Listener(port=0, profile=case.profile(profile), tls=ServerTls(files))
        return over(
            case, listener, lambda who, port: Wire(TcpOctets(port, self._context(who))), self.principal
        )

    def principal(self, who: str) -> str:
        """What the broker takes somebody for: the fingerprint of his certificate."""
        if who not in self._certificates:
            self._certificates[who] = self._authority.issue_client(who, days=1)
        return self._certificates[who].fingerprint

    def _context(self, who: str) -> ssl.SSLContext:
        self.principal(who)
        if who not in self._contexts:
            self._certificates[who].write(self._folder, who)
            context = ssl.create_default_context(cafile=str(self._folder / "ca.pem"))
            context.check_hostname = False  # B.3: trust rests on the certificate
            context.load_cert_chain(self._folder / f"{who}.pem", self._folder / f"{who}.key")
            self._contexts[who] = context
        return self._contexts[who]
