"""The console's typed calls of the broker's own verbs, `console/src/broker.ts`.

`python -m tests.console.broker_calls` writes the file, as `nebula stubs nebula.broker --typescript` does
against a broker that has all verbs: with schemas, the console and a folder for backups.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from nebula.codegen.typescript import write_typescript
from nebula.sync import Client
from tests.cli.programs import running

CALLS: Final = Path(__file__).parents[2] / "console" / "src" / "broker.ts"

# As the console imports `nebula.js`.
_PACKAGE: Final = "nebula"

_SETTINGS: Final = """
schemas = "schemas"
console = true
http = 0
data = "data"
backups = "backups"

[[listener]]
port = 0
"""


def broker_calls(folder: Path) -> str:
    """The module of TypeScript, by what a broker says of itself that has its files in this folder."""
    for name in ("schemas", "backups"):
        (folder / name).mkdir()
    (folder / "nebula.toml").write_text(_SETTINGS)
    with running("broker", cwd=folder) as (_, ready), Client(ready["url"]) as client:
        described = client.call("nebula.broker", "describe", timeout=10)
    return write_typescript(described, _PACKAGE)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        CALLS.write_text(broker_calls(Path(folder)), encoding="utf-8")
