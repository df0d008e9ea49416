"""Serves the page that judges in a browser, and takes what it tells."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_CONTENT_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class PageServer:
    """A small HTTP server on loopback.

    Args:
        roots: the folder of the files behind each prefix of a path.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = roots
        self._results: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        self._told = threading.Condition()
        self._ended: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def do_POST(self) -> None:
                server.take(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve for a block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def results(self, version: str, timeout: float) -> list[dict[str, object]]:
        """What was told of a version, once its end was told, or once no end came in time."""
        with self._told:
            self._told.wait_for(lambda: version in self._ended, timeout)
            return list(self._results[version])

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Serve a file."""
        path = urlsplit(request.path).path
        file = self._file(path)
        if file is None:
            request.send_error(404)
            return
        body = file.read_bytes()
        request.send_response(200)
        request.send_header("Content-Type", _CONTENT_TYPES[file.suffix])
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def take(self, request: BaseHTTPRequestHandler) -> None:
        """Keep what a page tells; a check without a name is the end of its version."""
        version = urlsplit(request.path).path.removeprefix("/results/")
        told = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self._told:
            if told["check"] is None:
                self._ended.add(version)
            else:
                self._results[version].append(told)
            self._told.notify_all()
        request.send_response(204)
        request.end_headers()

    def _file(self, path: str) -> Path | None:
        for prefix, root in self._roots.items():
            file = root / path.removeprefix(prefix)
            if path.startswith(prefix) and file.suffix in _CONTENT_TYPES and file.is_file():
                return file
        return None
