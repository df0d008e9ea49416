"""What is read of the head of a request that is posted."""

from __future__ import annotations

import pytest

from nebula.broker.http_posts import credentials_of, is_json, is_ours
from nebula.broker.listeners import Listener


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Basic YTpi", ("a", "b")),
        ("basic YTpiOmM=", ("a", "b:c")),
        ("Basic w6k6w6k=", ("é", "é")),
        ("Bearer a.b.c", (None, "a.b.c")),
        ("Basic YQ==", None),
        ("Basic /////w==", None),
        ("Basic YTpi!", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("", None),
    ],
)
def test_authorization_is_read(authorization: str, expected: tuple[str | None, str] | None) -> None:
    assert credentials_of(authorization) == expected


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("127.0.0.1:61680", True),
        ("192.0.2.1", True),
        ("[::1]:61680", True),
        ("inside.example", True),
        ("api.example", True),
        ("shop.example", True),
        ("shop.example.evil.example", False),
        ("evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_host_is_ours_by_address_or_by_a_name_that_is_listed(host: str, is_so: bool) -> None:
    listener = Listener(
        "localhost", http=True, hosts=("API.example", "inside.example"), origins=("https://shop.example",)
    )

    assert is_ours(host, listener) == is_so


@pytest.mark.parametrize(
    ("content_type", "is_so"),
    [
        ("application/json", True),
        ('Application/JSON ; charset="utf-8"', True),
        ("application/json;", True),
        ("application/json; charset=utf-16", False),
        ("application/jsonp", False),
        ("text/json", False),
        ("", False),
    ],
)
def test_content_type_is_json(content_type: str, is_so: bool) -> None:
    assert is_json(content_type) == is_so
