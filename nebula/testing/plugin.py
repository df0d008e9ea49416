"""The pytest plugin: fixtures for tests against a real broker. pytest finds it by itself.

Fixtures that a test or a conftest may override, as a fixture or by `pytest.mark.parametrize`:

- `nebula_transport`: how the broker is reached: `memory` (by default), `tcp` or `tls`.
- `nebula_settings`: its settings by keyword, as `nebula.toml` has them; none by default.
- `nebula_allow_outside`: other brokers that the test may reach: True, or their addresses; none by default.

The others need the broker, and are made anew for each test:

- `nebula_broker`: the `RunningBroker`. For the test `NEBULA_BROKER` names it (and `NEBULA_CA` its CA), so
  that a `Client()` or a service without an address finds it, also in programs that the test starts. Clients
  with another address get `OutsideBroker`.
- `nebula_client`: a `Client` of it, for async tests under anyio's plugin or pytest-asyncio.
- `nebula_serve`: `async with nebula_serve(app, fake): …` runs services and fakes on it, see `serving`.
- `nebula_faults`: a `Faults` on the way to it, for `Client(link=nebula_faults)`.

Their types, for annotations: `Transport`, `RunningBroker`, `Serve` and `Faults` of `nebula.testing`, and
`nebula.Client`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

# Every run of pytest imports this module, also one that has nothing to do with Nebula.
if TYPE_CHECKING:
    from nebula.rpc.client.client import Client
    from nebula.testing.apps import Serve
    from nebula.testing.faults import Faults
    from nebula.testing.running import RunningBroker, Transport

# Seconds that a call waits unless it says otherwise: nothing is far away.
_TIMEOUT = 5.0

_NO_ASYNC = (
    "nebula_client is for async tests, run by anyio's plugin (pytest.mark.anyio) or pytest-asyncio; in a"
    " plain test write `with TestClient(app) as client`, or nebula.sync.Client()"
)

_HINT = "let the fixture nebula_allow_outside return True, or their addresses in a list"


@pytest.fixture
def nebula_transport() -> Transport:
    """How the broker is reached: override it, or give a test several."""
    return "memory"


@pytest.fixture
def nebula_settings() -> dict[str, Any]:
    """The broker's settings by keyword: override it."""
    return {}


@pytest.fixture
def nebula_allow_outside() -> bool | Sequence[str]:
    """Other brokers that the test may reach, True for all: override it."""
    return False


@pytest.fixture
def nebula_broker(
    nebula_transport: Transport,
    nebula_settings: dict[str, Any],
    nebula_allow_outside: bool | Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RunningBroker]:
    """A broker for this test alone, which the environment names too."""
    from nebula.stomp.client.confinement import confined
    from nebula.testing import RunningBroker  # which says what to install where there is no broker

    with RunningBroker(transport=nebula_transport, **nebula_settings) as broker:
        # For programs that the test starts. Code in this process finds the broker by `confined`.
        monkeypatch.setenv("NEBULA_BROKER", broker.url)
        if broker.tls is not None:
            monkeypatch.setenv("NEBULA_CA", str(broker.tls.ca))
        # Of the process alone: a loop that starts meanwhile may outlive the test, and inherits this context.
        with confined(
            broker.url,
            hint=_HINT,
            tls=broker.tls,
            allow_outside=nebula_allow_outside,
            context=False,
            process=True,
        ):
            yield broker


@pytest.fixture
def nebula_client(request: pytest.FixtureRequest, nebula_broker: RunningBroker) -> Client:
    """A client that is connected, for async tests."""
    # pytest-asyncio leaves fixtures alone that are not its own, unless its mode is auto; anyio's plugin takes
    # all of a test that is its own. The broker is named here for those who parametrize what it depends on.
    del nebula_broker
    is_asyncio = request.node.get_closest_marker("asyncio") is not None
    if not is_asyncio and "anyio_backend" not in request.fixturenames:
        pytest.fail(_NO_ASYNC, pytrace=False)
    # Two fixtures of one function, because pytest-asyncio in strict mode runs only those of its own
    # decorator.
    name = "_nebula_asyncio_client" if is_asyncio else "_nebula_anyio_client"
    client: Client = request.getfixturevalue(name)
    return client


async def _connected(nebula_broker: RunningBroker) -> AsyncGenerator[Client]:
    from nebula.rpc.client.client import Client
    from nebula.testing.own_task import OwnTask

    client = Client(nebula_broker.url, timeout=_TIMEOUT, tls=nebula_broker.tls)
    # pytest-asyncio may leave the fixture in another task than it entered it in.
    async with OwnTask(client):
        yield client


_nebula_anyio_client = pytest.fixture(_connected, name="_nebula_anyio_client")

if find_spec("pytest_asyncio") is not None:
    import pytest_asyncio  # type: ignore[import-not-found,unused-ignore]  # where it is not installed

    _nebula_asyncio_client = pytest_asyncio.fixture(_connected, name="_nebula_asyncio_client")


@pytest.fixture
def nebula_serve(nebula_broker: RunningBroker) -> Serve:
    """Runs services and fakes for a block: `async with nebula_serve(app): …`."""
    from nebula.testing.apps import serving

    return partial(serving, nebula_broker.url, tls=nebula_broker.tls)


@pytest.fixture
def nebula_faults(nebula_broker: RunningBroker) -> Faults:
    """What goes wrong on the way to the broker, once a client has it as its `link`."""
    from nebula.testing.faults import Faults

    return Faults(nebula_broker.url, tls=nebula_broker.tls)
