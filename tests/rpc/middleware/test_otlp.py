"""The programs of the page about OpenTelemetry, with its own exporters, against a receiver of OTLP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.docs_runner import ROOT, read_page

PAGE = ROOT / "docs" / "how-to" / "opentelemetry.md"
COLLECTOR = ROOT / "deploy" / "otel" / "collector.yaml"

# The page's service, with a broker, and its client, in a process each.
SERVE = """
import sys

import anyio
from nebula import embedded
from prices import app


async def main() -> None:
    async with embedded(app) as url:
        print(url, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)


anyio.run(main)
"""


class Receiver:
    """What came by OTLP over HTTP, decoded."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        self.resources: dict[str, dict[str, str]] = {}
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for of in ExportTraceServiceRequest.FromString(body).resource_spans:
                found = self.spans.setdefault(self._service(of.resource), [])
                found += [span for scope in of.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for of in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                metrics = self.metrics.setdefault(self._service(of.resource), {})
                metrics |= {one.name: one for scope in of.scope_metrics for one in scope.metrics}

    def _service(self, resource: Any) -> str:
        facts: dict[str, str] = {one.key: one.value.string_value for one in resource.attributes}
        self.resources[facts["service.name"]] = facts
        return facts["service.name"]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                raise AssertionError("the exporters were not asked to compress")
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def facts_of(item: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in item.attributes}


@pytest.mark.timeout(180)
def test_programs_of_the_page_send_joined_spans_and_metrics_by_otlp(tmp_path: Path) -> None:
    for name, text in (read_page(PAGE).files | {"serve.py": SERVE}).items():
        (tmp_path / name).write_text(text)
    with receiving() as receiver:
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        }
        serving = subprocess.Popen(
            [sys.executable, "serve.py"], cwd=tmp_path, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert serving.stdout is not None
        url = serving.stdout.readline().strip()
        called = subprocess.run(
            [sys.executable, "shop.py"],
            cwd=tmp_path, env=environment | {"NEBULA_BROKER": url},
            text=True, capture_output=True, timeout=80,
        )  # fmt: skip
        # Both send what they have when they end.
        serving.communicate("stop\n", timeout=80)

    assert called.stdout.strip() == "1.25", called.stderr
    assert receiver.resources["prices"]["service.version"] == "1.2"
    assert receiver.resources["prices"]["service.instance.id"]
    shop = {span.name: span for span in receiver.spans["shop"]}
    prices = {span.name: span for span in receiver.spans["prices"]}
    call, request = shop["prices/quote"], prices["prices/quote"]
    assert (request.trace_id, request.parent_span_id) == (call.trace_id, call.span_id)
    published, processed = shop["publish /topic/trades"], prices["process /topic/trades"]
    assert processed.links[0].span_id == published.span_id
    assert facts_of(call)["server.port"] == int(url.rpartition(":")[2])
    measured = receiver.metrics["prices"]["rpc.server.call.duration"]
    (point,) = measured.histogram.data_points
    assert (measured.unit, point.count, point.explicit_bounds[0]) == ("s", 1, 0.005)
    assert facts_of(point) == {"rpc.system.name": "nebula", "rpc.method": "prices/quote"}
    assert {"rpc.client.call.duration", "messaging.client.sent.messages"} <= receiver.metrics["shop"].keys()


def test_collector_is_configured_for_what_the_exporters_send() -> None:
    config = yaml.safe_load(COLLECTOR.read_text(encoding="utf-8"))

    assert config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")
    assert set(config["service"]["pipelines"]) == {"traces", "metrics"}
    for pipeline in config["service"]["pipelines"].values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= set(config[part])
    port = config["exporters"]["prometheus"]["endpoint"].rpartition(":")[2]
    assert re.search(rf"port {port}\b", PAGE.read_text(encoding="utf-8"))
