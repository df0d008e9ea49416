"""The kinds of links that one suite of tests runs over."""

from __future__ import annotations

import anyio
import pytest

from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link
from nebula.stomp.client.network_links import AnyioLink, connect_link
from tests.stomp.client.links import Connect


async def connect_native(host: str, port: int) -> Link:
    return await connect_link(Address(host, port))


async def connect_anyio(host: str, port: int) -> Link:
    return AnyioLink(await anyio.connect_tcp(host, port))


@pytest.fixture(params=[pytest.param(connect_native, id="native"), pytest.param(connect_anyio, id="anyio")])
def connect(request: pytest.FixtureRequest) -> Connect:
    chosen: Connect = request.param
    return chosen
