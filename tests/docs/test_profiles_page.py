"""The page of profiles agrees with the code; `python -m tests.docs.test_profiles_page` writes it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from nebula.broker.core.profiles import MAXAM, PROFILES, STANDARD, Profile
from nebula.broker.settings import load_broker_settings
from nebula.stomp.dialects import Dialect
from tests.docs_runner import read_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "profiles.md"

OPENING = """\
# Profiles

STOMP leaves choices to the server. MaXaM, a messaging interface of gaming venues, makes some of them
differently from what clients of plain STOMP expect. So a listener has a profile: `standard`, for any STOMP
client, or `maxam`, for MaXaM's clients. [The protocol](protocol.md#b-the-maxam-profile) describes MaXaM.

```toml
# nebula.toml
[[listener]]                       # services and tools of this machine
port = 61613

[[listener]]                       # the venue's machines
host = "0.0.0.0"
port = 61614
profile = "maxam"
tls_cert = "server.pem"
tls_key = "server.key"
client_ca = "ca.pem"
```

Both listeners belong to one broker: a message that arrives at one listener is delivered through the other,
and each peer gets frames in the form of its own profile. A listener with `maxam` needs `client_ca`;
otherwise the broker does not start. WebSockets may be `maxam` too, with the same certificates.
"""

CLOSING = """\
## What does not differ

- The kinds of [destinations](destinations.md): globs, `eager`, `durable`, verdicts and schemas work in
  both.
- MaXaM's rules for ACK apply to last-value destinations only. Queues and topics, which MaXaM does not have,
  follow STOMP in both: `client` is cumulative, `client-individual` is individual, and NACK requeues.
- NACK of a last value is ignored in both, with `result:ignored`: the value stays in flight until its ACK.
- [Nebula's headers](headers.md) that a peer requests with a header of its own.
- [Limits](settings.md) and [rights](rights.md).

In the code a profile is one frozen row, `nebula.broker.core.profiles.Profile`.
"""

WHY = {
    "dialects": "MaXaM implements 1.1 and 1.2; some clients of plain STOMP use 1.0 by default",
    "heart_beat": "MaXaM's server offers 10 s or more; a plain client may want to notice a loss sooner",
    "max_client_heart_beat": "MaXaM's text: a client MUST send the header, with both numbers at most 10 s",
    "virtual_host": "MaXaM's text requires this `host`; elsewhere virtual hosts do not separate destinations",
    "needs_certificate": "MaXaM's identity is the fingerprint of the client's certificate, and nothing else",
    "has_transactions": "MaXaM's text: BEGIN, COMMIT, ABORT and a SEND in a transaction are an error",
    "acks_alone": "MaXaM: an ACK for each message; a cumulative ACK would release values still in use",
    "acks_by_message_id": "RabbitMQ and ActiveMQ accept it, so some clients rely on it",
    "ignores_silently": "MaXaM's text: a RECEIPT may be left out; a plain client would wait for it for ever",
    "names_twice": "MaXaM's text has two names for the same thing",
    "annotates": "MaXaM has no place for headers that the client did not request",
    "names_server": "MaXaM's table: not implemented",
    "bare_names_are_queues": "many plain clients send to `orders`; in MaXaM such a name is not a resource",
    "flags_in_any_case": "a client in Python writes `persistent=True`, which travels as `True`",
    "needs_explicit_length": "MaXaM's text says `content-length:0`; in STOMP the header may be left out",
    "false_removes": "MaXaM's table says that `durable:false` removes, its text that `durable:true` does",
}

NAMES = [field.name for field in dataclasses.fields(Profile) if field.name != "name"]
DIFFERENT = [name for name in NAMES if getattr(STANDARD, name) != getattr(MAXAM, name)]


def attributes() -> dict[str, str]:
    """The documentation of each field, from the docstring of the class."""
    _, _, listed = inspect.cleandoc(Profile.__doc__ or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()).rstrip(".") for name, text in entries}


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(item.version if isinstance(item, Dialect) else f"{item:,}" for item in value)
    return f"{value:,}" if isinstance(value, int | float) else f"`{value}`"


def row(name: str) -> str:
    values = " | ".join(shown(getattr(profile, name)) for profile in PROFILES.values())
    return f"| `{name}` | {attributes()[name]} | {values} | {WHY[name]} |"


def page() -> str:
    head = [
        f"| | what | {' | '.join(f'`{name}`' for name in PROFILES)} | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    same = [name for name in NAMES if name not in DIFFERENT]
    return "\n".join(
        [
            OPENING,
            "## What differs\n",
            "The numbers in brackets are [decisions about the protocol](protocol.md#d-decisions).\n",
            *head,
            *map(row, DIFFERENT),
            "\n## Switches of a listener\n",
            "The same in both profiles; the listener's setting `durable_false_removes` turns it on.\n",
            *head,
            *map(row, same),
            "",
            CLOSING,
        ]
    )


def test_page_says_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.test_profiles_page"


def test_each_field_is_explained() -> None:
    assert sorted(WHY) == sorted(NAMES)
    assert sorted(attributes()) == sorted([*NAMES, "name"])


def test_only_the_switch_is_the_same_in_both() -> None:
    assert set(NAMES) - set(DIFFERENT) == {"false_removes"}


def test_file_on_the_page_is_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text(read_page(PAGE).files["nebula.toml"])

    settings = load_broker_settings(tmp_path / "nebula.toml").value

    assert [listener.profile for listener in settings.listener] == list(PROFILES)


def test_no_other_code_compares_profiles() -> None:
    code = Path(inspect.getfile(Profile)).parent
    compared = re.compile(r"profile(?:\.name)? (?:==|is|is not|!=) (?!None)")
    found = {path.name for path in code.rglob("*.py") if compared.search(path.read_text(encoding="utf-8"))}

    # Settings say which files a profile needs before any Profile is made.
    assert found <= {"settings.py"}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
