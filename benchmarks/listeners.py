"""Our own broker with a listener for TLS, or for WebSocket."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.own import PROGRAM, nebula_broker
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, free_port


@contextmanager
def nebula_tls() -> Iterator[Broker]:
    """A broker that one reaches by TLS only, with a certificate made for it."""
    with TemporaryDirectory(prefix="nebula-") as name:
        folder = Path(name)
        for made in (["ca"], ["server", "--host", "127.0.0.1"]):
            command = [PROGRAM, "cert", *made, "--folder", name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
        listener = f'[[listener]]\ntls_cert = "{folder / "server.pem"}"\n'
        with nebula_broker(config=f'{listener}tls_key = "{folder / "server.key"}"\n') as broker:
            yield replace(broker, transport="tls")


@contextmanager
def nebula_websocket() -> Iterator[Broker]:
    """A broker that one reaches by WebSocket."""
    port = free_port()
    with nebula_broker(environment={"NEBULA_SERVER_HTTP": str(port)}) as broker:
        yield replace(broker, port=port, transport="websocket")
