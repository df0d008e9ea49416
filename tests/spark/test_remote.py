"""Where a declared engine is: a master or a Connect server, and what goes with neither."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from nebula import Responder
from nebula.spark import Spark
from nebula.spark.addresses import parse_remote
from nebula.spark.host.probe import master_addresses, probe_master, registering
from nebula.spark.host.session import CannotStart


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"master": "sc://host"}, r"not a master: write Spark\(remote=…\)"),
        ({"master": "local[2]", "remote": "sc://host"}, "both a master and a remote"),
        ({"remote": "spark://host:7077"}, r"remote is 'spark://…': give a Connect server as sc://host:15002"),
        ({"remote": "host:15002/;token=secret"}, "remote is 'host:…': give a Connect server"),
        ({"remote": "sc:/host;token=secret"}, "remote is 'sc:/…': give a Connect server"),
        ({"remote": "sc://host/?token=secret"}, "no address of a Connect server"),
        ({"remote": "sc://host?token=secret"}, "no address of a Connect server"),
        ({"remote": "sc://host#token=secret"}, "no address of a Connect server"),
        ({"remote": "sc://host:token=secret"}, "no address of a Connect server"),
        ({"remote": "sc://host/token=secret"}, "no address of a Connect server"),
        ({"remote": "sc://me:secret@host"}, "no address of a Connect server"),
        ({"master": "sc:/host;token=secret"}, "master is 'sc:/…', which is no master of Spark's: give local"),
        ({"master": "https://me:secret@host"}, "master is 'https://…', which is no master"),
        ({"master": "k8s://https://me:secret@host"}, "master is 'k8s://…', which is no master"),
        ({"master": "garbage"}, "master is 'garbage', which is no master of Spark's: give local"),
        ({"master": "Local[2]"}, r"master is 'Local\[2\]', which is no master"),
        ({"master": "local[x]"}, r"master is 'local\[x\]', which is no master"),
        ({"master": "local[0]"}, r"master is 'local\[0\]', which is no master"),
        ({"master": "local[2"}, r"master is 'local\[2', which is no master"),
        ({"master": "spark://host"}, "master is 'spark://…', which is no master"),
        ({"remote": "sc://"}, "no address"),
        ({"remote": "sc://host:many"}, "no address"),
        ({"remote": "sc://host/path"}, "no address"),
        ({"remote": "sc://host/;user_id"}, "name=value"),
        ({"remote": "sc://host/;session_id=3"}, "leave it out"),
        ({"remote": "sc://127.0.0.1/;token=secret"}, "write sc://localhost:15002"),
        ({"remote": "sc://[::1]:9/;token=secret"}, "write sc://localhost:9"),
        ({"remote": "sc://host", "memory": "4g"}, "where the Connect server is started"),
        ({"remote": "sc://host", "ui": True}, "switched on there"),
        ({"max_result_bytes": 20_000_000}, "max_result_bytes is 20000000: 8388608 at most"),
        ({"stop_grace": -5.0}, "stop_grace is -5.0: a number of seconds"),
        ({"start_timeout": -1.0}, "start_timeout is -1.0: more than 0"),
        ({"max_rows": 0}, "max_rows is 0: more than 0"),
        ({"memory": "lots"}, "memory is 'lots': a number with m or g"),
        ({"conf": {"spark.master": "local[1]"}}, r"spark.master is given by itself: Spark\(master="),
        ({"cancel_grace": float("inf")}, "cancel_grace is inf: a number of seconds"),
        ({"remote": "sc://host", "conf": {"spark.executor.memory": "4g"}}, "names begin with spark.sql."),
        (
            {"conf": {"spark.submit.deployMode": "cluster"}},
            "spark.submit.deployMode is 'cluster'.*: leave it",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(declared: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        Spark(**declared)
    assert "secret" not in str(refusal.value)


def test_setting_that_is_no_text_is_refused_by_its_name() -> None:
    conf: Any = {"spark.local.dir": Path("/scratch")}

    with pytest.raises(TypeError, match=r"conf: spark\.local\.dir is a PosixPath"):
        Spark(conf=conf)


def test_job_with_an_engine_of_its_own_is_refused_beside_a_connect_server() -> None:
    service = Responder("tests", spark=Spark(remote="sc://host"))

    with pytest.raises(
        ValueError, match="'alone' wants isolation='process', and the engine 'default' is a Connect"
    ):
        service.job(isolation="process")(alone)


def alone() -> None:
    """A job."""


def test_token_is_in_neither_text_nor_address_of_an_engine() -> None:
    spark = Spark(remote="sc://example.com/;token=secret")

    assert "secret" not in repr(spark) + spark.address
    assert spark.address == "sc://example.com:15002"
    assert Spark().address == "local[*]"


@pytest.mark.parametrize(
    "remote", ["sc://localhost/;token=a%3Db", "sc://127.0.0.1:1/;token=a%3Db;use_ssl=true"]
)
def test_token_reaches_the_client_as_it_was_declared(remote: str) -> None:
    url = parse_remote(remote).url(user_id="me")

    assert ";token=a%3Db;" in url
    assert url.endswith(";user_id=me")


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("local[*]", []),
        ("local-cluster[2,1,1024]", []),
        ("yarn", []),
        ("spark://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 7077)]),
        ("spark://[::1]:7", [("::1", 7)]),
        ("k8s://https://api:6443", [("api", 6443)]),
        ("k8s://api", [("api", 443)]),
        ("k8s://http://api", [("api", 80)]),
    ],
)
def test_addresses_are_found_in_a_masters_url(master: str, addresses: list[tuple[str, int]]) -> None:
    assert master_addresses(master) == addresses


def test_one_of_several_masters_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        probe_master("spark://127.0.0.1:1,127.0.0.1:{1}".format(*listening.getsockname()))


@pytest.mark.parametrize(
    ("master", "reason"),
    [
        ("spark://127.0.0.1:1,127.0.0.1:2", "no Spark master answers at spark://127.0.0.1:1,127.0.0.1:2"),
        ("k8s://https://127.0.0.1:1", "no Kubernetes API answers at k8s://https://127.0.0.1:1"),
        ("spark://host:many", "spark://host:many is not the URL of a master"),
    ],
)
def test_dead_master_is_told_by_its_name(master: str, reason: str) -> None:
    with pytest.raises(CannotStart) as refusal:
        probe_master(master)
    assert str(refusal.value).startswith(reason)


@pytest.mark.parametrize(
    "said",
    [
        "Cannot call methods on a stopped SparkContext. This stopped SparkContext was created at: o…",
        "Spark context stopped while waiting for backend",
    ],
)
def test_what_listens_and_is_no_living_master_is_told_by_its_address(said: str) -> None:
    with pytest.raises(
        CannotStart, match="what listens at spark://host:7077 has not let this engine register"
    ):
        _fail_at("spark://host:7077", RuntimeError(said))


@pytest.mark.parametrize(
    ("master", "said"), [("spark://host:7077", "no such class"), ("yarn", "a stopped SparkContext")]
)
def test_other_failures_beside_a_master_stay_as_they_are(master: str, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        _fail_at(master, RuntimeError(said))


def _fail_at(master: str, error: Exception) -> None:
    with registering(master):
        raise error


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[4,2]", "local[*, 3]", "local-cluster[2, 1, 1024]", "yarn"),
        *("spark://a:7077", "spark://a:7077,b-1.example:7077", "spark://[::1]:7077"),
        *("k8s://api", "k8s://https://api:6443", "k8s://https://api.example/clusters/one"),
    ],
)
def test_masters_that_spark_knows_are_taken(master: str) -> None:
    assert Spark(master=f" {master} ").address == master


@pytest.mark.parametrize(
    ("said", "declared", "reason"),
    [
        (
            "spark:/host",
            {},
            "NEBULA_SPARK is 'spark:/…', which is no master .* a Connect server is sc://host:15002",
        ),
        ("sc://host:token=secret", {}, "NEBULA_SPARK is no address of a Connect server"),
        ("sc://host", {"memory": "4g"}, "with NEBULA_SPARK=sc://… the driver's memory"),
    ],
)
def test_place_that_the_environment_names_is_refused_under_its_name(
    monkeypatch: pytest.MonkeyPatch, said: str, declared: dict[str, Any], reason: str
) -> None:
    monkeypatch.setenv("NEBULA_SPARK", said)

    with pytest.raises(ValueError, match=reason):
        Spark(**declared)


@pytest.mark.parametrize(
    ("said", "address"),
    [("spark://host:7", "spark://host:7"), (" sc://host ", "sc://host:15002"), (" ", "local[*]")],
)
def test_engine_that_says_nothing_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, said: str, address: str
) -> None:
    monkeypatch.setenv("NEBULA_SPARK", said)

    assert Spark().address == address
    assert Spark(master="local[2]").address == "local[2]"
