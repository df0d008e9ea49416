"""The page of settings says what its model says; `python -m tests.docs.test_settings_page` writes it."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]  # it has no types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nebula.broker.core import limits
from nebula.broker.core.limits import Limits
from nebula.broker.limit_comments import limit_comments
from nebula.broker.settings import (
    BrokerSettings,
    DestinationSettings,
    IdentitySettings,
    LastValueSettings,
    ListenerSettings,
    ShareSettings,
    load_broker_settings,
)
from nebula.environment import (
    BrokerEnvironment,
    BuildEnvironment,
    ClientEnvironment,
    CommandEnvironment,
    EngineEnvironment,
    Environment,
    ServiceEnvironment,
)
from nebula.settings import AT_RELOAD, Reload, reload_of
from nebula.settings_files import example, json_schema
from nebula.stomp.client.addresses import DEFAULT_URL
from tests.docs_runner import read_page
from tests.limit_comments import fixed_limits

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
EXAMPLE = PAGE.with_name("nebula.example.toml")
SCHEMA = PAGE.with_name("nebula.schema.json")

OPENING = """\
# Settings of the broker

Flags override the environment, which overrides the file, which overrides the defaults. The file is that of
`--config`, or `./nebula.toml` if it exists. `nebula broker --print-settings` shows each value and where it
comes from. If settings are wrong, the broker does not start, and lists all errors with file, place and the
correct form.

All settings are optional. This example uses most of them:

```toml
# nebula.toml
store = "sqlite"
data = "/var/lib/nebula"                   # one broker at a time
rights = ["rights.toml", "identities.toml"]
schemas = "schemas"
app = ["prices:app"]                       # runs in the broker's process
log_level = "warning"

[[listener]]                               # this machine: logins
port = 61613

[[listener]]                               # other machines: certificates
host = "0.0.0.0"
port = 61614
profile = "maxam"
tls_cert = "server.pem"
tls_key = "server.key"
client_ca = "ca.pem"
deny = "deny.txt"

[[listener]]                               # web pages: logins
host = "0.0.0.0"
port = 61680
http = true
origins = ["https://shop.example"]
tls_cert = "server.pem"
tls_key = "server.key"

[identity]
users = "users.toml"

[[share]]                                  # many sensors, each of which needs little
pattern = "sensor-*"
fraction = 0.05
most = { connections = 4 }

[last_value]
prefixes = ["X/"]
key_patterns = ["EGM.<protocol>.**"]       # a machine that changes its protocol keeps its key

[[destination]]
pattern = "X/EGM.*.*.EGMStatus"
avro = "egm.EGMStatus_v1"

[[destination]]
pattern = "/queue/logs.*"
max_messages = 10_000

[limits]
max_body_bytes = 1_000_000
```

Paths are relative to the folder in which the broker was started. Without `data` the store is in the folder
`broker` of `NEBULA_STATE`, or of the user's state folder (`~/.local/state/nebula`); the log says where.
The environment variable of a setting is `NEBULA_SERVER_` and its name in capitals, with two underscores
after a table: `NEBULA_SERVER_LOG_LEVEL=debug`, `NEBULA_SERVER_LIMITS__MAX_BODY_BYTES=1000000`. Lists are
JSON: `NEBULA_SERVER_RIGHTS='["rights.toml"]'`. `NEBULA_SERVER_HOST` and `NEBULA_SERVER_PORT` are those of
the first listener. [Clients and services](#clients-and-services) have variables of their own.

## Reload

SIGHUP (if the broker does not run on a terminal: [signals](running.md#signals)) and the verb
`rights.reload` on `/queue/nebula.broker` make the broker read its settings again, from the file, the
environment and the flags of its start. The column "reload" says what that does with a setting that has
changed:

| reload | |
| --- | --- |
| new value | The broker takes the new value, and reads the files that it names. |
| file read again | The broker reads the file again. Another file name needs a restart. |
| restart | A new value needs a restart of the broker. |

The log names the settings that need a restart (`restart needed`). If the settings are wrong, or the file of
the start is missing, all of them stay as they were, and the files that they name are read again (`reload
failed`). A file that cannot be used leaves what was read from it before; the others count. A settings file
without `rights` gives every client all rights, at a reload as at a start.

`nebula settings check nebula.toml` has a running broker check a new file without taking it, with the
environment and the flags of the broker: it names the settings that a reload takes, those that need a restart,
and all errors. Without a file it checks the one that the broker was started with. The verb is
[`settings.check`](operations.md); its reply names settings, and quotes no texts or paths from the file.

## Files for editors

[nebula.example.toml](nebula.example.toml) has each setting, commented out, with its default or an example
value: `nebula settings example` prints it. [nebula.schema.json](nebula.schema.json) is the JSON Schema of
the file: `nebula settings schema` prints it. With it an editor completes names and values, shows what they
mean, and marks errors. Even Better TOML in VS Code, and every other editor that uses taplo, reads its path
from the first line of `nebula.toml`:

```toml
#:schema nebula.schema.json
```
"""

RELOADS = {Reload.VALUE: "new value", Reload.CONTENTS: "file read again", Reload.RESTART: "restart"}

CLOSING = """
## Clients and services

Programs read these variables from the environment unless their code or their flags set another value.
"""

FIXED = """\
No setting changes these: constants of `nebula.broker.core.fixed_limits` and `nebula.globs`. A turn is one
iteration of the broker's event loop. A connection that waits its turn stands behind other connections that
have something to do.
"""

ENVIRONMENTS: dict[str, type[Environment]] = {
    "All programs": BuildEnvironment,
    "All programs that connect to a broker": ClientEnvironment,
    "Services": ServiceEnvironment,
    "The command line": CommandEnvironment,
    "The broker": BrokerEnvironment,
    "Spark's engines": EngineEnvironment,
}

MORE = {
    "NEBULA_CA": "[Certificates](../how-to/certificates.md)",
    "NEBULA_STATE": "[Where jobs are kept](../how-to/jobs.md#where-jobs-are-kept)",
    "NEBULA_RESULTS": "[On a cluster](../how-to/cluster.md)",
    "NEBULA_JOBS": "[Jobs in PostgreSQL](../how-to/postgresql-registry.md)",
    "NEBULA_SPARK": "[On a cluster](../how-to/cluster.md)",
    "NEBULA_CACHE": "[Quicker starts](../how-to/engines.md#quicker-starts)",
}


def variable_rows(model: type[Environment]) -> Iterator[str]:
    for one in model.variables().values():
        default = one.default or one.usual
        shown = f"`{default}`" if default else ""
        more = f" {MORE[one.name]}." if one.name in MORE else ""
        yield f"| `{one.name}` | {shown} | {one.about}{more} |"


def variables() -> Iterator[str]:
    for title, model in ENVIRONMENTS.items():
        yield from (
            f"\n### {title}\n",
            "| variable | default | |",
            "| --- | --- | --- |",
            *variable_rows(model),
        )


HEAD = ["| setting | default | reload | |", "| --- | --- | --- | --- |"]


def field_rows(fields: dict[str, FieldInfo]) -> Iterator[str]:
    for name, field in fields.items():
        if field.description:
            about = f"{field.description}{choices_of(field)}"
            yield f"| `{name}` | {default_of(field)} | {RELOADS[reload_of(field)]} | {about} |"


def choices_of(field: FieldInfo) -> str:
    """The values of a setting that has only some and does not name them, as a sentence behind others."""
    kind: Any = field.annotation
    is_enum = isinstance(kind, type) and issubclass(kind, Enum)
    given = [one.value for one in kind] if is_enum else get_args(kind) if get_origin(kind) is Literal else ()
    values = [f"`{value}`" for value in given]
    is_said = all(value in (field.description or "") for value in values)
    return "" if is_said else f" One of {', '.join(values)}."


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    told = field.get_default(call_default_factory=True)
    default = told.value if isinstance(told, Enum) else told
    return "" if default is None else f"`{json.dumps(default, default=str)}`"


def limit_rows() -> Iterator[str]:
    comments = limit_comments(limits)
    for limit in dataclasses.fields(Limits):
        default: Any = limit.default
        comment = comments[limit.name]
        yield f"| `{limit.name}` | {default:,} | {comment.why} | {comment.at_it} |"


def fixed_limit_rows() -> Iterator[str]:
    for name, (value, comment) in fixed_limits().items():
        unit, _, why = comment.why.partition(": ")
        yield f"| `{name}` | {value:,} {unit.lower()} | {why} | {comment.at_it} |"


ABOUT = {
    "[[listener]]": """\
An address at which the broker accepts connections. See [profiles](profiles.md),
[TLS](../how-to/certificates.md), [WebSocket](../how-to/browser.md) and [calls by HTTP](../how-to/http.md).
A listener that is not on loopback needs `client_ca`, or `users` or `jwks` under `[identity]`, or `anonymous
= true`.
""",
    "[identity]": """\
How peers without a client certificate authenticate, on all listeners without `client_ca`, and how long the
identity of a peer is valid, on all listeners. See [certificates and logins](../how-to/certificates.md).
""",
    "[[destination]]": """\
A policy for the destinations that a pattern matches. The first pattern that matches counts; settings that
it leaves out are as in `[limits]`.
""",
    "[[share]]": """\
How much of the broker's resources a principal may use: see [shares](../explanation/reliability.md#shares).
The first pattern that matches counts; without one, `principal_share` under `[limits]` does. Resources are
`memory` and `disk` in bytes, `destinations`, `subscriptions`, `globs`, `durable-sessions`,
`durable-subscriptions`, `delayed-messages`, `dedup-ids` and `connections`.
""",
    "[last_value]": """\
See [last-value destinations](destinations.md#last-values).
""",
}

TABLES: dict[str, type[BaseModel]] = {
    "[[listener]]": ListenerSettings,
    "[identity]": IdentitySettings,
    "[[destination]]": DestinationSettings,
    "[[share]]": ShareSettings,
    "[last_value]": LastValueSettings,
}


def table(title: str) -> Iterator[str]:
    yield from (f"\n## `{title}`\n", ABOUT[title], *HEAD, *field_rows(TABLES[title].model_fields))


def page() -> str:
    return "\n".join(
        [
            OPENING,
            "## Top level\n",
            *HEAD,
            *field_rows(BrokerSettings.model_fields),
            *(line for title in TABLES for line in table(title)),
            "\n## `[limits]`\n",
            "What a peer may use at most. Times are seconds. Each change needs a restart.\n",
            "| setting | default | why this number | what happens at it |",
            "| --- | --- | --- | --- |",
            *limit_rows(),
            "\n## Fixed limits\n",
            FIXED,
            "| limit | value | why this number | what happens at it |",
            "| --- | --- | --- | --- |",
            *fixed_limit_rows(),
            CLOSING.removesuffix("\n"),
            *variables(),
            "",
        ]
    )


def test_files_say_what_the_model_says() -> None:
    for file, text in made_files().items():
        assert file.read_text() == text, "run: python -m tests.docs.test_settings_page"


def test_models_name_each_variable_of_nebula() -> None:
    sources = (path.read_text() for path in (PAGE.parents[2] / "nebula").rglob("*.py"))
    read = {name for source in sources for name in re.findall(r"\bNEBULA_[A-Z]+(?:_[A-Z]+)*\b", source)}
    # The processes of an engine are recognised by it; users do not set it.
    read -= {name for name in read if name.startswith("NEBULA_SERVER")} | {"NEBULA_ENGINE"}
    named = {one.name for model in ENVIRONMENTS.values() for one in model.variables().values()}

    assert read == {name for name in named if name.startswith("NEBULA_")}


# They change the environment, or hand it on to another program.
HAND_ON = {"__init__.py", "environment.py", "settings.py", "cli/contexts.py", "cli/service.py"}


def test_only_the_models_read_the_environment() -> None:
    root = PAGE.parents[2] / "nebula"
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"os\.(?:environ|getenv)\b", path.read_text())
    }

    # Engines prepare the environment of Spark, which reads variables of its own.
    assert {path for path in found if not path.startswith("spark/")} == HAND_ON


def test_usual_address_is_the_one_that_clients_use() -> None:
    assert ClientEnvironment.variables()["broker"].usual == DEFAULT_URL


def test_empty_variable_counts_as_unset() -> None:
    read = ServiceEnvironment.read({"NEBULA_SPARK": "", "NEBULA_STATE": "", "XDG_STATE_HOME": "/state"})

    assert read.spark_place == "local[*]"
    assert read.state_root == Path("/state/nebula")


def test_relative_folders_of_the_user_are_ignored() -> None:
    read = CommandEnvironment.read({"XDG_CONFIG_HOME": "here"})

    assert read.contexts_file == Path.home() / ".config" / "nebula" / "contexts.toml"


def test_file_on_the_page_is_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text(read_page(PAGE).files["nebula.toml"])

    settings = load_broker_settings(tmp_path / "nebula.toml").value

    assert settings.limits.max_body_bytes == 1_000_000
    assert settings.destination[1].max_messages == 10_000
    assert [listener.profile for listener in settings.listener] == ["standard", "maxam", "standard"]


def made_files() -> dict[Path, str]:
    """The files that are made from the model, with what they contain."""
    return {
        PAGE: page(),
        EXAMPLE: example(BrokerSettings, SCHEMA.name),
        SCHEMA: json.dumps(json_schema(BrokerSettings), indent=2, ensure_ascii=False) + "\n",
    }


def uncommented() -> dict[str, Any]:
    """The example with all its settings in force."""
    return tomllib.loads(re.sub(r"(?m)^#(?=[\[a-z])", "", EXAMPLE.read_text()))


def test_example_is_loaded_as_it_is_and_with_all_settings_in_force(tmp_path: Path) -> None:
    inner = tmp_path / "all.toml"
    inner.write_text(re.sub(r"(?m)^#(?=[\[a-z])", "", EXAMPLE.read_text()))

    assert load_broker_settings(EXAMPLE).value == BrokerSettings()
    assert load_broker_settings(inner).value.share[0].fraction == 0.05


def test_example_has_each_setting() -> None:
    tables = {name: each[0] if isinstance(each, list) else each for name, each in uncommented().items()}
    settings = {title.strip("[]"): [*model.model_fields] for title, model in TABLES.items()}

    assert tables.keys() == BrokerSettings.model_fields.keys()
    assert {name: [*tables[name]] for name in settings} == settings
    assert [*tables["limits"]] == [field.name for field in dataclasses.fields(Limits)]


def test_schema_takes_the_example_and_refuses_wrong_files() -> None:
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))

    assert [*validator.iter_errors(uncommented())] == []
    for wrong in ("stor = 'x'", "store = 'disk'", "[[listener]]\nport = 70000", "[limits]\nmax_header = 5"):
        assert not validator.is_valid(tomllib.loads(wrong)), wrong


def test_schema_says_what_a_reload_does_with_each_setting() -> None:
    schema = json.loads(SCHEMA.read_text())
    tables: dict[str, type[BaseModel]] = {"": BrokerSettings, **TABLES}
    for title, model in tables.items():
        table = schema["properties"][title.strip("[]")] if title else schema
        properties = table.get("items", table)["properties"]
        for name, field in model.model_fields.items():
            assert properties[name].get(AT_RELOAD, Reload.RESTART) == reload_of(field), (title, name)


def test_each_table_of_the_model_has_its_part_of_the_page() -> None:
    tables = {name for name, field in BrokerSettings.model_fields.items() if not field.description}

    assert tables == {*(title.strip("[]") for title in TABLES), "limits"}


@pytest.mark.parametrize("model", TABLES.values())
def test_each_setting_of_a_table_is_described(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []


if __name__ == "__main__":
    for file, text in made_files().items():
        file.write_text(text)
