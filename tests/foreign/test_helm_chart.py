"""The Helm chart: rendered by Helm itself, checked by the schemas of Kubernetes, tried with our broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from benchmarks.processes import Unavailable, alone
from nebula.broker.core.limits import Limits
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.authenticator import users_line
from nebula.cli.exits import Exit
from nebula.errors import NebulaError
from nebula.sync import Client
from tests.cli.programs import nebula, running
from tests.ports import free_port

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "nebula"
HELM: Final = Path(__file__).parent / "helm"

# From the oldest that the chart admits.
KUBERNETES: Final = ("1.25", "1.31", "1.37")

Values = Mapping[str, Any]
Manifest = dict[str, Any]

EVERYTHING: Final[Values] = {
    "plain": {"enabled": True, "port": 61613},
    "tls": {"enabled": True, "port": 61614, "existingSecret": "nebula-tls", "clientCa": True},
    "http": {"port": 8081, "calls": True, "origins": ["https://shop.example"], "hosts": ["nebula.example"]},
    "service": {"type": "LoadBalancer", "annotations": {"example.org/a": "b"}},
    "auth": {"users": {"ops": "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$AAAA"}, "audience": 'a "quoted" one'},
    "rights": '[capability.Operate]\ncall = ["*"]\n\n[identity]\nops = ["Operate"]\n',
    "limits": {"drain_seconds": 7.5, "max_memory_bytes": 1_073_741_824, "max_connections": 500},
    "logLevel": "debug",
    "extraSettings": '[[destination]]\npattern = "/queue/orders"\nmax_messages = 10\n',
    "env": [{"name": "NEBULA_SERVER_DEAD_LETTER", "value": "/queue/dead"}],
    "persistence": {"storageClassName": "fast", "size": "20Gi", "annotations": {"example.org/backup": "yes"}},
    "podAnnotations": {"example.org/c": "d"},
    "podLabels": {"team": "venue"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"team": "venue"}},
        }
    ],
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
    "metrics": {
        "existingSecret": "nebula-metrics",
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "venue"}}}],
        "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}],
    },
    "podDisruptionBudget": {"enabled": True},
    "services": [
        {
            "name": "prices",
            "app": "prices:app",
            "replicas": 2,
            "image": {"repository": "prices", "tag": "1.0"},
            "envFromSecret": "prices",
            "env": [{"name": "LEVEL", "value": "1"}],
            "resources": {"limits": {"memory": "256Mi"}},
        },
        {"name": "orders", "app": "orders:app", "image": {"repository": "orders"}, "envFromSecret": "orders"},
    ],
}
SMALL: Final[Values] = {
    "persistence": {"enabled": False},
    "auth": {"anonymous": True},
    "networkPolicy": {"enabled": False},
    "serviceAccount": {"create": False},
}
SETS: Final[Mapping[str, Values]] = {"default": {}, "everything": EVERYTHING, "small": SMALL}


@pytest.fixture(scope="session")
def python() -> Path:
    """A Python that has Helm's engine and the schemas of Kubernetes."""
    # Outside of the tests, some of which look at all files there.
    folder = ROOT / "build" / "helm"
    done = folder / "installed"
    wanted = (HELM / "requirements.txt").read_text()
    with alone():
        if not done.exists() or done.read_text() != wanted:
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [
                    str(folder / "bin" / "pip"), "install", "--quiet", "--no-deps", "--only-binary", ":all:",
                    "--requirement", str(HELM / "requirements.txt"),
                ],
            ):  # fmt: skip
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                if ended.returncode != 0:
                    raise Unavailable(f"{' '.join(command)} failed: {ended.stderr.strip()[-600:]}")
            done.write_text(wanted)
    return folder / "bin" / "python"


def helm(python: Path, *words: str, given: Any = None) -> Any:
    """What `program.py` says."""
    ended = subprocess.run(
        [python, HELM / "program.py", *words],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(ended.stdout)


def rendered(python: Path, values: Values) -> list[Manifest]:
    """The manifests of the chart with these values."""
    files: dict[str, str] = helm(python, "template", str(CHART), json.dumps(values))
    assert "error" not in files, files
    return [
        document
        for name, text in files.items()
        if not name.endswith("NOTES.txt")
        for document in yaml.safe_load_all(text)
        if document
    ]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = [each for each in manifests if each["kind"] == kind]
    return found


def settings_of(manifests: list[Manifest]) -> dict[str, Any]:
    return tomllib.loads(one(manifests, "ConfigMap")["data"]["nebula.toml"])


def pod_of(manifests: list[Manifest]) -> Manifest:
    found: Manifest = one(manifests, "StatefulSet")["spec"]["template"]["spec"]
    return found


# ----- Helm and Kubernetes


@pytest.mark.parametrize("name", SETS)
def test_helm_finds_nothing_wrong_with_the_chart(python: Path, name: str) -> None:
    report = helm(python, "lint", str(CHART), json.dumps(SETS[name]))

    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", SETS)
def test_kubernetes_takes_the_manifests(python: Path, name: str, version: str) -> None:
    manifests = rendered(python, SETS[name])

    problems = helm(python, "validate", version, given=manifests)

    # These are resources of the Prometheus operator, whose schema is not among those of Kubernetes.
    assert problems == (["PodMonitor: unknown"] * 2 if name == "everything" else [])
    assert len({(each["kind"], each["metadata"]["name"]) for each in manifests}) == len(manifests)


def test_schemas_find_what_is_wrong(python: Path) -> None:
    manifests = rendered(python, {})
    pod_of(manifests)["containers"][0]["readinesProbe"] = {}
    one(manifests, "StatefulSet")["spec"]["replicas"] = "one"

    assert helm(python, "validate", KUBERNETES[-1], given=manifests)


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"plain": {"enabeld": True}}, "enabeld"),
        ({"http": {"port": 8080}}, "port"),
        ({"auth": {"users": {"ops": "secret"}}}, "users"),
        ({"services": [{"name": "prices"}]}, "app"),
        ({"plain": {"enabled": False}}, "listen nowhere"),
        ({"tls": {"enabled": True}}, "tls.existingSecret"),
    ],
)
def test_wrong_values_are_refused(python: Path, values: Values, word: str) -> None:
    files = helm(python, "template", str(CHART), json.dumps(values))

    assert word in files["error"]


def labels_of_pods(manifests: list[Manifest]) -> dict[str, dict[str, str]]:
    """Labels of the pods, by the name of what makes them."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in manifests
        if each["kind"] in ("StatefulSet", "Deployment")
    }


def monitors_of(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The PodMonitors by name."""
    return {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "PodMonitor"}


def test_pod_monitor_of_the_broker_names_a_port_and_the_secret_of_the_pod(python: Path) -> None:
    manifests = rendered(python, EVERYTHING)
    (endpoint,) = monitors_of(manifests)["demo-nebula"]["podMetricsEndpoints"]

    assert endpoint["port"] in [each["name"] for each in pod_of(manifests)["containers"][0]["ports"]]
    assert endpoint["authorization"]["credentials"] == {"name": "nebula-metrics", "key": "token"}


def test_pod_monitor_of_the_services_names_a_port_of_each_and_the_job_of_the_alerts(python: Path) -> None:
    manifests = rendered(python, EVERYTHING)
    (endpoint,) = monitors_of(manifests)["demo-nebula-services"]["podMetricsEndpoints"]
    rules = (ROOT / "deploy/prometheus/nebula-services.rules.yml").read_text(encoding="utf-8")

    for deployment in (each for each in manifests if each["kind"] == "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in [each["name"] for each in container["ports"]]
    # The token is one of the broker's.
    assert "authorization" not in endpoint
    (job,) = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
    assert f'up{{job="{job}"}}' in rules


def test_pod_monitors_select_the_pods_of_the_broker_and_of_the_services(python: Path) -> None:
    manifests = rendered(python, EVERYTHING)
    pods = labels_of_pods(manifests)
    selected = {
        name: {
            pod for pod, labels in pods.items() if spec["selector"]["matchLabels"].items() <= labels.items()
        }
        for name, spec in monitors_of(manifests).items()
    }

    assert selected == {
        "demo-nebula": {"demo-nebula"},
        "demo-nebula-services": {"demo-nebula-prices", "demo-nebula-orders"},
    }


def test_chart_without_services_has_one_pod_monitor(python: Path) -> None:
    manifests = rendered(python, {"metrics": {"podMonitor": {"enabled": True}}})

    assert list(monitors_of(manifests)) == ["demo-nebula"]


# ----- What the manifests say


def test_selectors_match_the_pods_and_no_others(python: Path) -> None:
    manifests = rendered(python, EVERYTHING)
    pods = labels_of_pods(manifests)
    selectors = [each["spec"]["selector"] for each in manifests if each["kind"] == "Service"]
    selectors += [one(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]
    selectors += [one(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]

    for selector in selectors:
        assert [name for name, labels in pods.items() if selector.items() <= labels.items()] == [
            "demo-nebula"
        ]
    for each in manifests:
        if each["kind"] in ("StatefulSet", "Deployment"):
            wanted = each["spec"]["selector"]["matchLabels"]
            matched = [name for name, labels in pods.items() if wanted.items() <= labels.items()]
            assert matched == [each["metadata"]["name"]]


@pytest.mark.parametrize("name", SETS)
def test_every_container_is_confined(python: Path, name: str) -> None:
    for each in rendered(python, SETS[name]):
        if each["kind"] not in ("StatefulSet", "Deployment"):
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            confined = container["securityContext"]
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["capabilities"] == {"drop": ["ALL"]}


def test_user_is_that_of_the_image(python: Path) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)

    context = pod_of(rendered(python, {}))["securityContext"]
    assert (str(context["runAsUser"]), str(context["fsGroup"])) == user


@pytest.mark.parametrize("seconds", [0, 5, 7.5, 60])
def test_pod_has_longer_to_end_than_the_broker_needs(python: Path, seconds: float) -> None:
    pod = pod_of(rendered(python, {"limits": {"drain_seconds": seconds}, "preStopSeconds": 3}))

    assert pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "3"]
    # As for the unit of systemd: twice the drain, for the last batch on a slow disk.
    assert pod["terminationGracePeriodSeconds"] >= 3 + 2 * seconds + 10


def test_memory_of_the_pod_is_enough_for_the_limits(python: Path) -> None:
    manifests = rendered(python, {})
    (limit,) = re.findall(r"^(\d+)Mi$", pod_of(manifests)["containers"][0]["resources"]["limits"]["memory"])
    limits = Limits(**settings_of(manifests)["limits"])

    assert int(limit) * 2**20 >= 1.5 * (limits.max_memory_bytes + limits.max_transit_bytes)


def test_probes_and_policy_name_ports_of_the_container(python: Path) -> None:
    manifests = rendered(python, EVERYTHING)
    (container,) = pod_of(manifests)["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    listeners = settings_of(manifests)["listener"]

    assert [each["port"] for each in listeners] == list(ports.values())
    assert [bool(each.get("tls_cert")) for each in listeners] == [False, True, False]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"
    ingress = one(manifests, "NetworkPolicy")["spec"]["ingress"]
    assert [[each["port"] for each in rule["ports"]] for rule in ingress] == [["stomp", "stomps"], ["http"]]
    services = [each["spec"]["ports"] for each in manifests if each["kind"] == "Service"]
    assert all([each["targetPort"] for each in service] == list(ports) for service in services)


def test_changed_settings_restart_the_broker(python: Path) -> None:
    def checksum(values: Values) -> str:
        annotations = one(rendered(python, values), "StatefulSet")["spec"]["template"]["metadata"]
        found: str = annotations["annotations"]["checksum/settings"]
        return found

    assert checksum({}) == checksum({"service": {"type": "NodePort"}})
    assert checksum({}) != checksum({"limits": {"max_connections": 7}})


# ----- The broker with these settings


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """A folder for what the pod mounts at /etc/nebula, without the ConfigMap."""
    etc = tmp_path / "etc"
    (etc / "tls").mkdir(parents=True)
    authority = make_authority("site", days=2)
    certificate, key = authority.issue_server(["127.0.0.1"], days=1).write(tmp_path, "server")
    certificate.rename(etc / "tls" / "tls.crt")
    key.rename(etc / "tls" / "tls.key")
    authority.certificate.write(tmp_path, "ca")[0].rename(etc / "tls" / "ca.crt")
    (etc / "metrics.token").write_text("0123456789abcdef0123456789abcdef\n")
    return etc


def mount(etc: Path, manifests: list[Manifest]) -> None:
    """Write the ConfigMap and the Secret as the volume has them. All files that it names must be there."""
    for name, text in one(manifests, "ConfigMap")["data"].items():
        # The tests listen on loopback. In this form the broker does not take it for that.
        (etc / name).write_text(text.replace('host = "0.0.0.0"', 'host = "127.1"'))
    secrets = [each for each in manifests if each["kind"] == "Secret"]
    for secret in secrets:
        for name, text in secret["stringData"].items():
            (etc / name).write_text(text)
    (settings,) = [each for each in pod_of(manifests)["volumes"] if each["name"] == "settings"]
    paths = [
        item["path"]
        for source in settings["projected"]["sources"]
        for item in source.get("secret", {}).get("items", ())
    ]
    assert [path for path in paths if not (etc / path).exists()] == []


@contextmanager
def broker(etc: Path, manifests: list[Manifest], data: Path) -> Iterator[str]:
    """The broker as the pod runs it; yields the address of its first listener."""
    mount(etc, manifests)
    (container,) = pod_of(manifests)["containers"]
    given = {each["name"]: each["value"] for each in container.get("env", ())}
    if "NEBULA_SERVER_DATA" in given:
        given["NEBULA_SERVER_DATA"] = str(data / "broker")
    words = [word.replace("/etc/nebula/", "") for word in container["args"]]
    with running(*words, cwd=etc, env=given) as (_, line):
        yield line["url"]


def with_free_ports(values: Values) -> tuple[dict[str, Any], int]:
    """The same values with ports that are free here, and that of HTTP."""
    http = free_port()
    return {
        **values,
        "plain": {**values.get("plain", {}), "port": free_port()},
        "tls": {**values.get("tls", {}), "port": free_port()},
        "http": {**values.get("http", {}), "port": http},
    }, http


def get(port: int, path: str, **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + 20
    while get(port, "/readyz") != 200:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("name", SETS)
def test_broker_starts_with_the_settings_and_finds_nothing_wrong_with_them(
    python: Path, etc: Path, tmp_path: Path, name: str
) -> None:
    values, http = with_free_ports(SETS[name])
    # A hash of which the passcode is known.
    line = users_line("ops", "secret")
    if name == "everything":
        values["auth"] = {**values["auth"], "users": tomllib.loads(f"[users]\n{line}")["users"]}
    manifests = rendered(python, values)

    with broker(etc, manifests, tmp_path) as url:
        if name == "default":
            # Nobody can log in before users are given.
            with pytest.raises(NebulaError), Client(url):
                pass
            return
        login = "" if name == "small" else "ops:secret@"
        address = url.replace("://", f"://{login}")
        checked = nebula("settings", "check", "nebula.toml", "--broker", address, cwd=etc)
        wait_until_ready(http)

    assert json.loads(checked.stdout) == {"reload": [], "restart": [], "problems": []}
    assert checked.returncode == Exit.OK


def test_probes_and_metrics_are_served_to_the_addresses_of_a_cluster(
    python: Path, etc: Path, tmp_path: Path
) -> None:
    values, http = with_free_ports({})
    with broker(etc, rendered(python, values), tmp_path):
        wait_until_ready(http)
        # As kubelet and Prometheus ask: by the address of the pod.
        host = f"10.42.0.7:{http}"
        plain = {path: get(http, path, Host=host) for path in ("/healthz", "/readyz", "/metrics")}

    assert plain == {"/healthz": 200, "/readyz": 200, "/metrics": 200}


def test_metrics_need_the_token_of_the_secret(python: Path, etc: Path, tmp_path: Path) -> None:
    values, http = with_free_ports({"metrics": {"existingSecret": "nebula-metrics"}})
    token = (etc / "metrics.token").read_text().strip()
    with broker(etc, rendered(python, values), tmp_path):
        wait_until_ready(http)
        without, with_it = get(http, "/metrics"), get(http, "/metrics", Authorization=f"Bearer {token}")

    assert (without, with_it) == (401, 200)


def test_service_is_run_as_its_deployment_says(python: Path, etc: Path, tmp_path: Path) -> None:
    values, _ = with_free_ports({**SMALL, "services": EVERYTHING["services"]})
    manifests = rendered(python, values)
    deployment = next(each for each in manifests if each["metadata"]["name"] == "demo-nebula-prices")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (tmp_path / "prices.py").write_text("from nebula import Responder\n\napp = Responder('prices')\n")
    port = free_port()
    words = [word.replace("0.0.0.0:8080", f"127.0.0.1:{port}") for word in container["args"]]

    with broker(etc, manifests, tmp_path) as url:
        env = {"NEBULA_BROKER": url, "NEBULA_STATE": str(tmp_path / "state")}
        with running(*words, cwd=tmp_path, env=env):
            wait_until_ready(port)
            status = get(port, container["livenessProbe"]["httpGet"]["path"])
            report = nebula("doctor", "--service", "prices", env={"NEBULA_BROKER": url})

    assert status == 200
    checks = {each["check"]: each for each in json.loads(report.stdout)["checks"]}
    assert checks["services.instances"]["outcome"] == "ok"
    assert Path(container["env"][0]["value"]).is_absolute()
