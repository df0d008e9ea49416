"""Who signs in, and what is shown to whom."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.processes import free_port
from nebula.broker.operations.certificates import make_authority
from tests.foreign.console.conftest import READER, OpenPage, Site, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


_TOKENS_AND_TLS = """
jwks = "keys.json"
audience = "nebula"

[[listener]]
http = true
console = true
port = {port}
tls_cert = "server.pem"
tls_key = "server.key"
client_ca = "ca.pem"
"""


class SecureSite(Site):
    """A broker that takes tokens too, and listens with TLS for clients with a certificate.

    Attributes:
        tls_url: of the console for those who have a certificate.
        fingerprint: of the operator's certificate, which is their principal.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        port = free_port()
        self.tls_url = f"https://127.0.0.1:{port}/console/"
        settings = folder / "nebula.toml"
        settings.write_text(settings.read_text() + _TOKENS_AND_TLS.format(port=port))
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256"}]}))
        authority = make_authority("console", days=1)
        authority.certificate.write(folder, "ca")
        authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
        mine = authority.issue_client("operator", days=1)
        mine.write(folder, "operator")
        self.fingerprint = mine.fingerprint
        rights = folder / "rights.toml"
        named = "".join(f'"{each}" = ["Everything"]\n' for each in ("token-operator", mine.fingerprint))
        rights.write_text(rights.read_text() + named)

    def token(self, subject: str, seconds: float = 600) -> str:
        """A token of somebody, which expires in so many seconds."""
        claims = {"sub": subject, "aud": "nebula", "exp": int(time.time() + seconds)}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "one"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSite]:
    """A running broker of the module's own."""
    one = SecureSite(tmp_path_factory.mktemp("console"))
    one.start()
    yield one
    one.stop()


def entries(page: Page) -> list[str]:
    """The navigation."""
    return page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link").all_inner_texts()


def test_operator_sees_all_pages_and_the_overview_first(operator: Page) -> None:
    operator.get_by_role("heading", name="Overview").wait_for()

    assert entries(operator) == [
        "Overview",
        "Services",
        "Jobs",
        "Queues",
        "Topics",
        "Last values",
        "Dead letters",
        "Connections",
        "Map",
    ]


def test_user_without_operators_rights_sees_no_pages_of_operators(reader: Page, site: Site) -> None:
    reader.get_by_role("heading", name="Services").wait_for()

    assert entries(reader) == ["Services", "Jobs", "Topics", "Last values"]
    reader.goto(site.at("connections"))
    reader.get_by_text("You may not see this").wait_for()
    assert "connections.list" in reader.locator("main").inner_text()


def test_wrong_passcode_is_refused_and_the_right_one_taken_afterwards(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_label("Login").fill("reader")
    page.get_by_label("Passcode", exact=True).last.fill("wrong")
    page.get_by_role("button", name="Sign in").click()

    page.get_by_role("alert").filter(has_text=re.compile("refuses")).wait_for()
    sign_in(page, *READER)


def sign_in_by_token(page: Page, token: str) -> None:
    """Fill in the form."""
    # The button around it is what is seen.
    page.get_by_text("Token", exact=True).first.click()
    page.get_by_label("Token", exact=True).last.fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_token_signs_in_whom_it_names(open_page: OpenPage, site: SecureSite) -> None:
    page = open_page()
    # Copied from somewhere, with a line's end.
    sign_in_by_token(page, site.token("token-operator") + "\n")

    page.get_by_role("heading", name="Overview").wait_for()
    assert "token-operator" in page.locator("header").inner_text()
    assert "Queues" in entries(page)


def test_token_that_has_expired_is_refused(open_page: OpenPage, site: SecureSite) -> None:
    page = open_page()
    sign_in_by_token(page, site.token("token-operator", seconds=-60))

    page.get_by_role("alert").filter(has_text=re.compile("refuses")).wait_for()
    sign_in_by_token(page, site.token("token-operator"))
    page.get_by_role("heading", name="Overview").wait_for()


def test_client_certificate_signs_in_without_a_form(open_page: OpenPage, site: SecureSite) -> None:
    certificate = {
        "origin": site.tls_url.removesuffix("/console/"),
        "certPath": site.folder / "operator.pem",
        "keyPath": site.folder / "operator.key",
    }
    page = open_page(client_certificates=[certificate], ignore_https_errors=True)
    page.goto(site.tls_url)

    page.get_by_role("heading", name="Overview").wait_for()
    assert site.fingerprint[:8] in page.locator("header").inner_text()
    assert "Queues" in entries(page)
    # The page loads, and its WebSocket goes, over TLS with the certificate.
    assert page.evaluate("location.protocol") == "https:"
