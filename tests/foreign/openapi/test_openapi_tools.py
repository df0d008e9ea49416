"""Schemathesis and a generated client on the OpenAPI document that a broker serves: it says what happens."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.foreign.install import install_python
from tests.host.http_house import post
from tests.host.priced import running_prices

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

REQUIREMENTS: Final = Path(__file__).parent / "requirements.txt"

# The ids and filters of jobs are checked by the service, and not described as patterns.
VERBS: Final = "quote|place|broken|nothing|ticks|report|describe|ping|stats|job.owners"

# A timeout of a millisecond may end as 504, and `broken` is made to fail; both are in the document. And
# numbers are read leniently: `true` is 1.
UNCHECKED: Final = "not_a_server_error,negative_data_rejection"

CALLER: Final = """
import sys

from prices_client.api.prices import nothing, place, quote
from prices_client.client import Client
from prices_client.models.error_of_a_call import ErrorOfACall
from prices_client.models.nothing_request import NothingRequest
from prices_client.models.order import Order
from prices_client.models.quote_request import QuoteRequest

with Client(sys.argv[1]) as client:
    print(quote.sync(client=client, body=QuoteRequest(symbol="ABC", qty=2)))
    print(nothing.sync(client=client, body=NothingRequest()))
    print(place.sync(client=client, body=Order(symbol="ABC")).price)
    refused = place.sync(client=client, body=Order(symbol="XYZ"))
    assert isinstance(refused, ErrorOfACall)
    print(refused.code, refused.retryable)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_python(tmp_path_factory.mktemp("tools"), REQUIREMENTS)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_prices(tmp_path_factory.mktemp("prices")) as found:
        yield found


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    # The tools look for others of theirs next to them.
    path = os.pathsep.join([str(Path(words[0]).parent), os.environ["PATH"]])
    return subprocess.run(
        words, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=500
    )


def test_requests_made_from_the_document_are_answered_as_it_says(
    programs: Path, port: int, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{port}"
    ended = run(
        tmp_path, programs / "schemathesis", "run", f"{url}/openapi/prices.json", "--url", url,
        "--seed", "1", "--max-examples", "20", "--exclude-checks", UNCHECKED,
        "--include-path-regex", f"^/call/prices/({VERBS})$",
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout[-6000:]
    assert f"Tested: {VERBS.count('|') + 1}" in ended.stdout


def test_generated_client_calls_the_service(programs: Path, port: int, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{port}"
    status, _ = post(port, "/openapi/prices.json", "", {}, method="GET")
    generated = run(
        tmp_path, programs / "openapi-python-client", "generate", "--url", f"{url}/openapi/prices.json",
        "--meta", "none", "--output-path", "prices_client", "--fail-on-warning",
    )  # fmt: skip
    (tmp_path / "caller.py").write_text(CALLER)
    called = run(tmp_path, programs / "python", "caller.py", url)

    assert status == 200
    assert generated.returncode == 0, generated.stdout + generated.stderr
    assert called.stdout.split("\n")[:-1] == ["2.5", "None", "1.25", "out-of-stock True"], called.stderr
