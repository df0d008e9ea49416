"""`nebula doctor` against real brokers and services, with each fault provoked."""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.operations.certificates import Authority, make_authority
from nebula.broker.server.authenticator import users_line
from nebula.broker.store.folder import STORE_FILE
from nebula.broker.store.sqlite_schema import VERSION
from nebula.cli.exits import Exit
from nebula.stomp.client import AckMode
from nebula.sync import Client
from nebula.testing import RunningBroker
from tests.cli.programs import nebula, running
from tests.cli.strangers import HOSTILE, environment_in, run, strangers
from tests.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "doctor.md"

HOST = "127.0.0.1"
# It is loopback to the system, but not by its form: other machines count as able to reach it.
NOT_LOOPBACK = "127.1"

SERVICE = """
import os

from nebula import Responder

app = Responder("prices", version=os.environ.get("PRICES_VERSION", "1.0"))


@app.verb
def quote(symbol: str) -> int:
    return 1


@app.ready
def database() -> bool:
    return not os.environ.get("PRICES_DATABASE_AWAY")


@app.live
def memory() -> bool:
    return True
"""

RIGHTS = """
[capability.Operate]
call = ["*", "dlq.*"]
publish = ["/queue/**"]
subscribe = ["/queue/**", "X/**"]

[capability.Audit]
call = ["dlq.lsit"]

[identity]
ops = ["Operate"]
"""


@dataclass(frozen=True)
class Report:
    """What `nebula doctor` said.

    Attributes:
        status: its exit status.
        checks: the findings by check.
    """

    status: int
    checks: Mapping[str, Mapping[str, str]]

    def outcome(self, check: str) -> str:
        return self.checks[check]["outcome"]

    def found(self, check: str) -> str:
        return self.checks[check]["found"]

    @property
    def bad(self) -> set[str]:
        """The checks that are neither ok nor skipped."""
        return {name for name, each in self.checks.items() if each["outcome"] in ("warning", "error")}


def examine(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Report:
    ended = nebula("doctor", *words, env=env, cwd=cwd)
    assert ended.stderr == ""
    told = json.loads(ended.stdout)
    checks = {each["check"]: each for each in told["checks"]}
    # No check is there twice, and each is counted.
    assert len(checks) == len(told["checks"]) == sum(told["counts"].values())
    return Report(ended.returncode, checks)


@contextmanager
def broker(folder: Path, settings: str = "", *words: str) -> Iterator[str]:
    """A broker with its settings and data in a folder; yields the address of its first listener."""
    (folder / "nebula.toml").write_text(settings)
    given = ("--data", "data", *words)
    # A listener in the file has a port of its own.
    port = () if "[[listener]]" in settings else ("--port", "0")
    with running("broker", *port, *given, cwd=folder) as (_, line):
        yield line["url"]


@contextmanager
def service(folder: Path, url: str, **variables: str) -> Iterator[None]:
    (folder / "prices.py").write_text(SERVICE)
    with running("run", "prices:app", "--broker", url, cwd=folder, env=variables):
        yield


def authority() -> Authority:
    return make_authority("site", days=365)


def reload(url: str) -> None:
    with Client(url) as client:
        client.call("nebula.broker", "rights.reload", {}, timeout=20)


def rewrite(file: Path, text: str) -> None:
    """Change a file, so that its time says so on any file system."""
    file.write_text(text)
    later = time.time() + 5
    os.utime(file, (later, later))


# --- nothing is wrong ---


def test_set_up_without_faults_has_no_warning(tmp_path: Path) -> None:
    with broker(tmp_path) as url, service(tmp_path, url):
        report = examine("--broker", url, "--service", "prices", "--strict")

    # How fast and how large this machine is is not the test's business.
    assert {each for each in report.bad if not each.startswith(("disk.", "limits."))} == set()
    assert report.found("services.instances") == "1 instance of 1 service"
    assert {each["outcome"] for each in report.checks.values()} <= {"ok", "warning", "error"}


def test_table_on_a_terminal_names_checks_outcomes_and_cures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with strangers() as stranger:
        stranger.answers = HOSTILE
        ended = run(monkeypatch, "doctor", env=environment_in(tmp_path, stranger))

    lines = ended.out.splitlines()
    assert ended.status == Exit.FAILED
    assert lines[0].split() == ["check", "outcome", "found"]
    assert any(line.split()[:2] == ["broker.alarms", "error"] for line in lines)
    assert "To do: the broker's log says more" in ended.out
    assert re.fullmatch(r"\d+ checks: \d+ errors, \d+ warnings, \d+ ok", lines[-1])


# --- without a broker ---


def test_without_a_broker_this_machine_is_checked_and_the_status_says_so(tmp_path: Path) -> None:
    report = examine("--broker", f"{HOST}:{free_port()}", cwd=tmp_path)

    assert report.status == Exit.UNREACHED
    assert report.outcome("broker.connection") == "error"
    assert "nebula broker" in report.checks["broker.connection"]["to_do"]
    assert report.outcome("settings.file") == "ok"
    assert "writes" in report.found("disk.sync")


def test_machine_is_checked_before_a_broker_runs(tmp_path: Path) -> None:
    report = examine("--offline", "--data", "data", cwd=tmp_path)

    assert "broker.connection" not in report.checks
    assert report.found("versions.store") == "there is no store yet"
    assert report.found("settings.file") == "the defaults can be used"
    # It was looked at, not made.
    assert list(tmp_path.iterdir()) == []


def test_wrong_settings_are_found_before_a_broker_runs(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text("stor = 'sqlite'\n")

    report = examine("--offline", cwd=tmp_path)

    assert report.status == Exit.FAILED
    assert 'did you mean "store"' in report.found("settings.file")


def test_files_of_the_settings_are_checked_before_a_broker_runs(tmp_path: Path) -> None:
    authority().issue_server([HOST], days=-1).write(tmp_path, "server")
    (tmp_path / "nebula.toml").write_text(
        'rights = ["rights.toml"]\n[[listener]]\ntls_cert = "server.pem"\ntls_key = "server.key"\n'
        "[limits]\nmax_connections = 2_000_000_000\n"
    )
    (tmp_path / "rights.toml").write_text("[identity]\nops = ['Operate']\n")

    report = examine("--offline", cwd=tmp_path)

    assert "has expired" in report.found("certificates.broker")
    assert 'no capability is called "Operate"' in report.found("rights.configured")
    assert "2,000," in report.found("limits.files")


def test_store_of_a_newer_version_is_found(tmp_path: Path) -> None:
    with broker(tmp_path):
        pass
    file = tmp_path / "data" / STORE_FILE
    with file.open("r+b") as store:
        # The field `user_version` of SQLite's header.
        store.seek(60)
        store.write(struct.pack(">I", VERSION + 1))

    report = examine("--offline", "--data", "data", cwd=tmp_path)

    assert report.outcome("versions.store") == "error"
    assert f"version {VERSION + 1}" in report.found("versions.store")


def test_wrong_address_is_a_mistake_and_no_finding() -> None:
    ended = nebula("doctor", "--broker", "http://nowhere")

    assert ended.returncode == Exit.USAGE
    assert ended.stdout == ""


# --- the store's disk ---


def test_disk_of_a_broker_on_this_machine_is_measured(tmp_path: Path) -> None:
    state = {"NEBULA_STATE": str(tmp_path)}
    with running("broker", "--port", "0", env=state) as (_, line):
        here = examine("--broker", line["url"], env=state)
        elsewhere = examine("--broker", line["url"])

    assert "writes" in here.found("disk.sync")
    # Another folder is not this broker's: what it says itself counts.
    assert elsewhere.found("disk.sync") == "the store has written nothing yet"
    assert here.found("disk.filesystem") == elsewhere.found("disk.filesystem")


def test_broker_without_a_store_has_no_disk_to_check(tmp_path: Path) -> None:
    with broker(tmp_path, "", "--store", "memory") as url:
        report = examine("--broker", url)

    assert report.outcome("disk.sync") == report.outcome("versions.store") == "skipped"
    assert report.status == Exit.OK


def test_broker_tells_the_mean_time_of_its_batches(tmp_path: Path) -> None:
    with broker(tmp_path) as url, Client(url) as client:
        client.publish("/queue/a", 1, headers={"persistent": "true"})
        report = examine("--broker", url)

    assert "a batch takes" in report.found("disk.sync")


# --- certificates ---


@pytest.fixture
def encrypted(tmp_path: Path) -> Callable[[float], str]:
    """Settings of a broker with a TLS listener after a plain one, whose certificate ends in some days."""

    def settings(days: float) -> str:
        own = authority()
        own.certificate.write(tmp_path, "ca")
        own.issue_server([HOST], days=days).write(tmp_path, "server")
        return (
            f"[[listener]]\nport = {free_port()}\n[[listener]]\nport = {free_port()}\n"
            'tls_cert = "server.pem"\ntls_key = "server.key"\n'
        )

    return settings


def address_with_tls(folder: Path) -> str:
    import tomllib

    return f"stomps://{HOST}:{tomllib.loads((folder / 'nebula.toml').read_text())['listener'][1]['port']}"


def test_expired_certificate_of_a_listener_is_found_by_another_listener(
    tmp_path: Path, encrypted: Callable[[float], str]
) -> None:
    with broker(tmp_path, encrypted(-1)) as url:
        report = examine("--broker", url)

    assert report.status == Exit.FAILED
    assert "has expired" in report.found("certificates.broker")
    assert "stomps://" in report.found("certificates.broker")


def test_expired_certificate_that_prevents_the_connection_is_found(
    tmp_path: Path, encrypted: Callable[[float], str]
) -> None:
    with broker(tmp_path, encrypted(-1)):
        env = {"NEBULA_CA": str(tmp_path / "ca.pem")}
        report = examine("--broker", address_with_tls(tmp_path), env=env)

    assert report.status == Exit.UNREACHED
    assert "certificate cannot be trusted" in report.found("broker.connection")
    assert "has expired" in report.found("certificates.presented")
    assert report.outcome("certificates.ca") == "ok"


def test_certificates_that_end_soon_are_warnings(tmp_path: Path, encrypted: Callable[[float], str]) -> None:
    with broker(tmp_path, encrypted(10)):
        Authority.load(tmp_path / "ca.pem", tmp_path / "ca.key").issue_client("till", days=3).write(
            tmp_path, "till"
        )
        env = {
            "NEBULA_CA": str(tmp_path / "ca.pem"),
            "NEBULA_CERT": str(tmp_path / "till.pem"),
            "NEBULA_KEY": str(tmp_path / "till.key"),
        }
        report = examine("--broker", address_with_tls(tmp_path), env=env)
        strict = nebula("doctor", "--strict", "--broker", address_with_tls(tmp_path), env=env)

    names = ("certificates.presented", "certificates.client", "certificates.broker")
    assert [report.outcome(name) for name in names] == ["warning"] * 3
    assert "expires in 9 d" in report.found("certificates.presented")
    assert "expires in 2 d" in report.found("certificates.client")
    assert report.outcome("certificates.ca") == "ok"
    assert strict.returncode == Exit.FAILED


def test_certificate_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    with broker(tmp_path) as url:
        report = examine("--broker", url, env={"NEBULA_CA": str(tmp_path / "ca.pem")})

    assert report.outcome("certificates.client") == "error"
    assert "ca.pem" in report.found("certificates.client")


# --- rights ---


@contextmanager
def guarded(folder: Path, rights: str = RIGHTS) -> Iterator[str]:
    """A broker with users and rights; yields its address without a login."""
    (folder / "users.toml").write_text(
        "[users]\n" + "".join(f"{users_line(name, 'secret')}\n" for name in ("ops", "monitor"))
    )
    (folder / "rights.toml").write_text(rights)
    with broker(folder, 'rights = ["rights.toml"]\n[identity]\nusers = "users.toml"\n') as url:
        yield url


def as_user(url: str, name: str) -> str:
    return url.replace("://", f"://{name}:secret@")


def test_grants_that_nobody_has_or_that_match_nothing_are_found(tmp_path: Path) -> None:
    with guarded(tmp_path) as url:
        report = examine("--broker", as_user(url, "ops"))

    assert report.found("rights.configured") == "2 capabilities, 1 identities"
    assert report.found("rights.capabilities") == "no principal has the capability Audit"
    assert report.found("rights.principals") == "no capability for monitor"
    assert "Audit: dlq.lsit" in report.found("rights.grants")
    assert report.bad >= {"rights.capabilities", "rights.principals", "rights.grants"}


def test_who_lacks_a_right_is_told_the_grant_and_the_other_checks_go_on(tmp_path: Path) -> None:
    look = RIGHTS + 'monitor = ["Look"]\n[capability.Look]\ncall = ["broker.status", "queues.list"]\n'
    with guarded(tmp_path, look) as url:
        report = examine("--broker", as_user(url, "monitor"))

    assert report.status == Exit.OK
    assert report.outcome("broker.alarms") == report.outcome("queues.consumers") == "ok"
    for check, verb in (
        ("limits.files", "broker.machine"),
        ("rights.grants", "rights.check"),
        ("settings.file", "settings.check"),
    ):
        assert report.outcome(check) == "skipped"
        assert report.checks[check]["to_do"] == f'grant it: call = ["{verb}"]'


def test_capability_on_the_page_is_enough_for_all_checks(tmp_path: Path) -> None:
    found = re.search(r"```toml\n# rights.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    serve = '[capability.Serve]\nsubscribe = ["/queue/**"]\n'
    rights = f'{found[1]}monitor = ["Serve"]\n{serve}'
    with guarded(tmp_path, rights) as url, service(tmp_path, as_user(url, "monitor")):
        report = examine("--broker", as_user(url, "ops"), "--service", "prices")

    assert [name for name, each in report.checks.items() if each["outcome"] == "skipped"] == []
    assert report.outcome("services.ping") == report.outcome("services.instances") == "ok"


def test_wrong_login_is_told(tmp_path: Path) -> None:
    with guarded(tmp_path) as url:
        report = examine("--broker", url.replace("://", "://ops:wrong@"))

    assert report.status == Exit.UNREACHED
    assert report.outcome("broker.connection") == "error"
    assert "wrong" not in json.dumps(report.checks)


def test_listener_that_anybody_may_use_is_found(tmp_path: Path) -> None:
    settings = f'[[listener]]\nhost = "{NOT_LOOPBACK}"\nport = {free_port()}\nanonymous = true\n'
    with broker(tmp_path, settings) as url:
        report = examine("--broker", url)

    assert report.outcome("rights.anonymous") == "error"
    assert "queue.purge" not in report.found("rights.configured")
    assert "without authentication" in report.found("rights.anonymous")
    assert report.outcome("rights.configured") == "warning"


# --- services and queues ---


def test_service_without_instances_and_its_requests_are_found(tmp_path: Path) -> None:
    with broker(tmp_path) as url, Client(url) as client:
        client.publish("/queue/prices", {"verb": "quote", "parameters": {}})
        report = examine("--broker", url, "--service", "prices")

    assert report.status == Exit.FAILED
    assert report.found("services.instances") == "no instance of prices"
    assert "/queue/prices (1)" in report.found("queues.consumers")


def test_service_that_reports_a_problem_is_found(tmp_path: Path) -> None:
    with broker(tmp_path) as url, service(tmp_path, url, PRICES_DATABASE_AWAY="yes"):
        report = examine("--broker", url)

    assert report.outcome("services.health") == "error"
    assert report.found("services.health").endswith(": database")
    assert report.outcome("services.ping") == "ok"


def test_instances_of_different_versions_are_found(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as url,
        service(tmp_path, url),
        service(tmp_path, url, PRICES_VERSION="1.1"),
    ):
        report = examine("--broker", url)

    assert report.found("services.versions") == "prices has versions 1.0, 1.1"
    assert report.found("versions.nebula").endswith("everywhere")


def test_instance_that_does_not_reply_is_found(tmp_path: Path) -> None:
    with broker(tmp_path) as url, Client(url) as silent:
        instance = {"service": "shop", "name": "i9", "queue": "/queue/shop.i9", "verbs": ["buy"]}
        # It reads its queue, and never replies.
        with silent.subscribe("/queue/shop.i9", ack=AckMode.CLIENT):
            silent.publish("X/nebula.services.shop.i9", instance, headers={"ephemeral": "true"})
            report = examine("--broker", url, "--timeout", "0.5")

    assert report.found("services.ping") == "no reply from shop/i9"
    assert report.outcome("services.health") == "ok"


def test_dead_letters_are_found(tmp_path: Path) -> None:
    with broker(tmp_path) as url, Client(url) as client:
        client.publish("/queue/orders", 1)
        with client.subscribe("/queue/orders", ack=AckMode.CLIENT_INDIVIDUAL) as messages:
            next(messages).nack(requeue="false")
            # By the same connection: when it is answered, the NACK has been read.
            client.call("nebula.broker", "ping", timeout=20)
        report = examine("--broker", url)

    assert report.found("queues.dead") == "1 dead letter"
    assert report.outcome("queues.consumers") == "ok"


# --- settings and files ---


def test_changed_settings_are_found_until_they_are_taken(tmp_path: Path) -> None:
    with broker(tmp_path) as url:
        (tmp_path / "nebula.toml").write_text('log_level = "debug"\nbackups = "copies"\n')
        before = examine("--broker", url)
        (tmp_path / "nebula.toml").write_text('log_level = "debug"\n')
        reload(url)
        after = examine("--broker", url)

    assert before.outcome("settings.file") == "warning"
    assert "backups" in before.found("settings.file")
    assert "log_level" in before.found("settings.file")
    assert after.outcome("settings.file") == "ok"


def test_wrong_settings_of_a_running_broker_are_an_error(tmp_path: Path) -> None:
    with broker(tmp_path) as url:
        (tmp_path / "nebula.toml").write_text("stor = 'sqlite'\n")
        report = examine("--broker", url)

    assert report.outcome("settings.file") == "error"
    assert 'did you mean "store"' in report.found("settings.file")


def test_files_that_changed_since_the_last_reload_are_found_until_the_next(tmp_path: Path) -> None:
    with guarded(tmp_path) as url:
        ops = as_user(url, "ops")
        fresh = examine("--broker", ops)
        rewrite(tmp_path / "rights.toml", f"{RIGHTS}\n# a comment\n")
        stale = examine("--broker", ops)
        reload(ops)
        reloaded = examine("--broker", ops)

    assert fresh.outcome("settings.files") == "ok"
    assert stale.found("settings.files") == "files changed since the broker read them: rights"
    assert "rights.reload" in stale.checks["settings.files"]["to_do"]
    assert reloaded.outcome("settings.files") == "ok"


def test_file_that_a_reload_could_not_take_stays_changed(tmp_path: Path) -> None:
    with guarded(tmp_path) as url:
        ops = as_user(url, "ops")
        rewrite(tmp_path / "rights.toml", "[identity]\nops = ['Nothing']\n")
        with pytest.raises(Exception, match="bad-file"):
            reload(ops)
        report = examine("--broker", ops)

    assert report.outcome("settings.files") == "warning"


# --- brokers and answers of other kinds ---


def test_broker_without_verbs_for_operators_is_not_blamed(tmp_path: Path) -> None:
    from nebula.broker.server.server import Listener, Server

    with RunningBroker(server=Server([Listener(HOST, 0)])) as bare:
        report = examine("--broker", bare.url, cwd=tmp_path)

    assert report.status == Exit.OK
    assert report.outcome("broker.connection") == "ok"
    assert "no verbs for operators" in report.found("broker.alarms")


def test_clock_of_the_broker_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with strangers() as stranger:
        stranger.answers = {
            **HOSTILE,
            "broker.machine": {**HOSTILE["broker.machine"], "time": time.time() + 3_650},
        }
        ended = run(
            monkeypatch, "doctor", "--json", env=environment_in(tmp_path, stranger), is_terminal=False
        )
    checks: dict[str, Any] = {each["check"]: each for each in json.loads(ended.out)["checks"]}

    assert "the clock of the broker is 1 h" in checks["clocks"]["found"]


def test_older_instances_that_tell_nothing_of_their_process_are_fine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stats = {name: each for name, each in HOSTILE["stats"].items() if name != "process"}
    with strangers() as stranger:
        stranger.answers = {**HOSTILE, "stats": stats}
        ended = run(
            monkeypatch, "doctor", "--json", env=environment_in(tmp_path, stranger), is_terminal=False
        )
    checks = {each["check"]: each for each in json.loads(ended.out)["checks"]}

    assert checks["services.health"]["outcome"] == "ok"
    assert checks["services.ping"]["outcome"] == "ok"
