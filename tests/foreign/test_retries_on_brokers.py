"""Retries of functions that listen on a queue, over RabbitMQ and ActiveMQ: they wait, then dead-letter."""

from __future__ import annotations

from itertools import pairwise
from time import monotonic
from uuid import uuid4

import anyio
import pytest

from nebula.rpc.client.client import Client
from nebula.rpc.contract.retry import Retry
from nebula.rpc.service.responder import Responder
from nebula.testing import serving
from tests.rpc.heard import Heard

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(300)]

_DEADLINE = 60.0


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


class Places:
    """A queue whose messages that are given up can be read, on either broker.

    RabbitMQ drops them, unless the queue was made with a place for them: then it is one that is there.
    """

    def __init__(self, broker_url: str) -> None:
        name = f"letters-{uuid4().hex}"
        self.queue = f"/queue/{name}"
        self.is_rabbitmq = "guest" in broker_url
        self.listened = f"/amq/queue/{name}" if self.is_rabbitmq else self.queue
        self.dead = f"/queue/{name}.dead" if self.is_rabbitmq else "/queue/ActiveMQ.DLQ"
        dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
        self.options = dead_letters if self.is_rabbitmq else {}

    async def send(self, client: Client, *bodies: bytes) -> None:
        for body in bodies:
            headers = {**self.options, "persistent": "true"}
            await client.stomp.send(self.queue, body, headers, receipt=True, timeout=10)


@pytest.fixture
def places(broker_url: str) -> Places:
    return Places(broker_url)


async def test_next_attempts_wait_and_others_are_handled_meanwhile(broker_url: str, places: Places) -> None:
    heard = Heard()
    app = Responder(f"mailer-{uuid4().hex}")

    @app.on(places.listened, retry=Retry(first=0.4, factor=2, attempts=5, jitter=0.0), concurrency=2)
    async def note(letter: str) -> None:
        heard((letter, monotonic()))
        if letter == "late" and sum(one == "late" for one, _ in heard.all) < 4:
            raise OSError("no route")

    with anyio.fail_after(_DEADLINE):
        async with Client(broker_url) as client:
            await places.send(client, b"late")
            async with serving(broker_url, app):
                await heard.until(1)
                await places.send(client, b"one", b"two")
                await heard.until(6)
                stats = await client.call(app.name, "stats")

    letters = [letter for letter, _ in heard.all]
    assert letters[-1] == "late"
    assert letters.index("two") < len(letters) - 2, "they waited for the one that failed"
    times = [at for letter, at in heard.all if letter == "late"]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= least for gap, least in zip(gaps, [0.4, 0.8, 1.6], strict=True)), gaps
    (listens,) = stats["listens"]
    assert (listens["errors"], listens["given_up"]) == (3, 0)


async def test_message_is_a_dead_letter_when_its_attempts_are_over(broker_url: str, places: Places) -> None:
    heard = Heard()
    app = Responder(f"mailer-{uuid4().hex}")

    @app.on(places.listened, retry=Retry(first=0.3, factor=1, attempts=3, jitter=0.0))
    async def note(letter: str) -> None:
        heard(monotonic())
        raise OSError("no route")

    body = uuid4().hex.encode()
    with anyio.fail_after(_DEADLINE):
        async with Client(broker_url) as client:
            await places.send(client, body)
            async with client.subscribe(places.dead) as dead, serving(broker_url, app):
                async for letter in dead:
                    if letter.body == body:  # ActiveMQ has one place for all
                        break
                attempts = len(heard.all)
                (listens,) = (await client.call(app.name, "stats"))["listens"]

    assert attempts == 3
    assert all(later - earlier >= 0.3 for earlier, later in pairwise(heard.all))
    assert (listens["errors"], listens["given_up"], listens["waiting"]) == (3, 1, 0)


async def test_message_that_waits_comes_again_when_its_service_stops(broker_url: str, places: Places) -> None:
    heard = Heard()
    begun = anyio.Event()

    def service() -> Responder:
        app = Responder(f"mailer-{uuid4().hex}")

        @app.on(places.listened, retry=Retry(first=600.0))
        async def note(letter: str) -> None:
            heard(letter)
            if not begun.is_set():
                begun.set()
                raise OSError("no route")

        return app

    with anyio.fail_after(_DEADLINE):
        async with Client(broker_url) as client:
            await places.send(client, b"late")
            async with serving(broker_url, service()):
                await heard.until(1)
            async with serving(broker_url, service()):
                assert await heard.until(2) == ["late", "late"]
