"""`make demo-console`: it shows where the console is, has something happen, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from nebula.sync import Client
from tests.http_requests import get
from tests.services.demos import ROOT, command, environment, running


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_console_demo_has_something_happen_and_leaves_nothing_running() -> None:
    mark = f"nebula-console-demo-{os.getpid()}"
    with subprocess.Popen(
        command("services.console.demo", "--no-browser", "--seconds", "200"),
        cwd=ROOT,
        env=environment(mark),
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            page = demo.stdout.readline().split("at ")[1].split(". Ctrl-C")[0]
            status, text = get(page)
            with Client(page.replace("http", "ws").replace("/console/", "")) as client:
                services = {each.service for each in client.services()}
                flights = client.call("flights", "airline", {"code": "UA"})
                job = client.start("flights", "delays", {"month": 1})
                rows = job.result()
                queues = client.call("nebula.broker", "flows.list")
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)

    assert (status, "<title>Nebula console</title>" in text) == (200, True)
    assert {"flights", "venue", "orders"} <= services
    assert flights == "United Air Lines Inc."
    assert len(rows) > 10
    assert {"/queue/flights", "/queue/new-orders", "/queue/venue"} <= {each["destination"] for each in queues}
    assert demo.returncode == 0
    assert running(mark) == []
