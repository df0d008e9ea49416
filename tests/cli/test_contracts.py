"""`nebula stubs` and `nebula schema`, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tests.cli.programs import environment

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
import shop_client
from nebula import RemoteError
from nebula.sync import Client

with Client() as client:
    print(client.call(shop_client.price, "lamp", qty=2))
    print(client.start(shop_client.stock, 1).result())
"""


def test_stub_that_was_written_works_as_a_client(ask: Ask, url: str, tmp_path: Path) -> None:
    written = ask("stubs", "shop", "-o", str(tmp_path / "shop_client.py"))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=tmp_path,
        env=environment({"NEBULA_BROKER": url}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    file = tmp_path / "shop_client.py"
    assert (written.returncode, written.stderr) == (0, "")
    assert json.loads(written.stdout) == {
        "service": "shop",
        "verbs": len(json.loads(ask("describe", "shop").stdout)["verbs"]),
        "file": str(file),
        "bytes": file.stat().st_size,
    }
    assert (ran.stdout, ran.stderr) == ("2.50\n[{'item': 0}]\n", "")


def test_stub_is_shown_where_no_file_is_named(ask: Ask, tmp_path: Path) -> None:
    ask("stubs", "shop", "-o", str(tmp_path / "shop_client.py"))

    shown = ask("stubs", "shop")

    assert shown.stdout == (tmp_path / "shop_client.py").read_text()
    assert "async def price(item: str, qty: int = 1) -> Decimal:" in shown.stdout


def test_typescript_imports_the_package_or_what_is_named(ask: Ask) -> None:
    shown, named = (
        ask("stubs", "shop", "--typescript"),
        ask("stubs", "shop", "--typescript", "--package", "./n.js"),
    )

    assert 'from "@nebula-rpc/client";' in shown.stdout
    assert "price(parameters: PriceParameters, options?: CallOptions): Promise<string> {" in shown.stdout
    assert named.stdout == shown.stdout.replace("@nebula-rpc/client", "./n.js")


def test_text_comes_as_json_where_that_is_wanted(ask: Ask) -> None:
    stub = json.loads(ask("stubs", "shop", "--json").stdout)
    schema = ask("schema", "shop", "--json")

    assert stub["text"] == ask("stubs", "shop").stdout
    assert schema.stdout.count("\n") == 1
    assert json.loads(schema.stdout) == json.loads(ask("schema", "shop").stdout)


def test_schema_is_an_asyncapi_document_or_json_schema_by_verb(ask: Ask) -> None:
    document = json.loads(ask("schema", "shop", "--asyncapi").stdout)
    plain = json.loads(ask("schema", "shop").stdout)

    assert (document["asyncapi"], document["info"]["title"]) == ("3.0.0", "shop")
    assert plain["price"]["parameters"]["required"] == ["item"]
    assert plain["price"]["result"]["format"] == "decimal"


def test_schema_is_an_openapi_document_for_an_http_listener(ask: Ask) -> None:
    document = json.loads(ask("schema", "shop", "--openapi", "--http-url", "https://api.example").stdout)
    both = ask("schema", "shop", "--openapi", "--asyncapi")

    assert (document["openapi"], document["info"]["title"]) == ("3.1.0", "shop")
    assert document["servers"] == [{"url": "https://api.example"}]
    assert "/call/shop/price" in document["paths"]
    assert both.returncode == 2
    assert "ask for one of them" in both.stderr


def test_file_that_cannot_be_written_is_told_in_a_sentence(ask: Ask, tmp_path: Path) -> None:
    ended = ask("stubs", "shop", "-o", str(tmp_path / "no" / "shop_client.py"))

    assert ended.returncode == 2
    assert ended.stderr.endswith("shop_client.py: No such file or directory\n")


def test_service_that_is_not_there_is_told_in_a_sentence(ask: Ask) -> None:
    for command in ("stubs", "schema"):
        ended = ask(command, "nobody")

        assert (ended.returncode, ended.stdout) == (3, "")
        assert "no service listens on /queue/nobody" in ended.stderr
