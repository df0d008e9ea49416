"""The page of settings says what its model says; `python -m tests.test_settings_page` writes it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from nebula.broker.limits import Limits
from nebula.broker.settings import (
    BrokerSettings,
    DestinationSettings,
    ListenerSettings,
    load_broker_settings,
)
from tests.docs_runner import read_page

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"

OPENING = """\
# Settings of the broker

Flags win over the environment, the environment over the file, the file over the defaults. The file is the
one of `--config`, else `./nebula.toml`, if there is one. `nebula broker --print-settings` shows each value
and where it came from. A mistake in any of them is told with file, place and what would be right, all at
once, and the broker does not start.

```toml
# nebula.toml
log_level = "warning"

[[listener]]
port = 61613

[limits]
max_body_bytes = 1_000_000

[[destination]]
pattern = "/queue/logs.*"
max_messages = 10_000
```

In the environment a name is `NEBULA_SERVER_` and the setting in capitals, with two underscores after a table:
`NEBULA_SERVER_LOG_LEVEL=debug`, `NEBULA_SERVER_LIMITS__MAX_BODY_BYTES=1000000`. `NEBULA_SERVER_HOST` and
`NEBULA_SERVER_PORT` are those of the first listener. `NEBULA_BROKER` is no setting of the broker: it is the
address that clients and services connect to.
"""


def field_rows(fields: dict[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        if field.description:
            yield f"| `{name}` | {default_of(field)} | {field.description} |"


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default, default=str)}`"


def limit_rows() -> Iterator[str]:
    for limit in dataclasses.fields(Limits):
        default: Any = limit.default
        yield f"| `{limit.name}` | {default:,} | {limit.metadata['why']} | {limit.metadata['at_it']} |"


def page() -> str:
    head = ["| setting | default | |", "| --- | --- | --- |"]
    return "\n".join(
        [
            OPENING,
            "## Top level\n",
            *head,
            *field_rows(BrokerSettings.model_fields),
            "\n## `[[listener]]`\n",
            *head,
            *field_rows(ListenerSettings.model_fields),
            "\n## `[[destination]]`\n",
            "What differs for the queues that a pattern names. The first pattern that matches counts, and",
            "what it leaves out is as in `[limits]`.\n",
            *head,
            *field_rows(DestinationSettings.model_fields),
            "\n## `[limits]`\n",
            "What a peer may use at most. Times are seconds.\n",
            "| setting | default | why this number | what happens at it |",
            "| --- | --- | --- | --- |",
            *limit_rows(),
            "",
        ]
    )


def test_page_says_what_the_model_says() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.test_settings_page"


def test_file_on_the_page_is_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text(read_page(PAGE).files["nebula.toml"])

    settings = load_broker_settings(tmp_path / "nebula.toml").value

    assert settings.limits.max_body_bytes == 1_000_000
    assert settings.destination[0].max_messages == 10_000


if __name__ == "__main__":
    PAGE.write_text(page())
