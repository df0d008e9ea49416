"""Engines by name: what a responder accepts, and what it makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nebula import Job, Responder
from nebula.rpc.service.declared_jobs import DeclaredJobs
from nebula.spark import Spark

ENGINES = {"default": Spark(warm=False, cds=False), "bulk": Spark(warm=False, cds=False, max_running=1)}


def work(ctx: Job) -> None:
    pass


def test_engine_that_a_job_names_may_be_any_that_the_service_has() -> None:
    app = Responder("reports", spark=ENGINES)

    app.job(name="one")(work)
    app.job(name="two", engine="bulk")(work)
    app.job(name="three", engine=None)(work)


def test_unknown_engine_is_refused_with_the_names_of_the_others() -> None:
    app = Responder("reports", spark=ENGINES)

    with pytest.raises(
        ValueError, match=r"needs the engine 'gpu', and service 'reports' has 'default', 'bulk'"
    ):
        app.job(engine="gpu")(work)


def test_service_without_an_engine_of_the_usual_name_has_none_for_jobs_that_name_none() -> None:
    app = Responder("reports", spark={"bulk": Spark()})

    with pytest.raises(ValueError, match=r"needs the engine 'default', and service 'reports' has 'bulk'"):
        app.job(work)


def test_service_without_engines_says_how_to_give_it_one() -> None:
    with pytest.raises(ValueError, match=r"spark=Spark\(\)"):
        Responder("reports").job(work)


@pytest.mark.parametrize("name", ["", "a b", "../up", "-x", "service", "x" * 65])
def test_names_that_are_no_folder_or_are_taken_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="an engine's name has letters, digits"):
        Responder("reports", spark={name: Spark()})


def test_isolation_needs_an_engine() -> None:
    app = Responder("reports", spark=ENGINES)

    with pytest.raises(ValueError, match="isolation='process' is for one that runs in an engine"):
        app.job(engine=None, isolation="process")(work)
    with pytest.raises(ValueError, match="isolation is 'shared' or 'process', not 'thread'"):
        app.job(isolation="thread")(work)  # type: ignore[call-overload]  # that is what is tested


def test_each_engine_learns_its_name_and_whether_any_job_shares_it(tmp_path: Path) -> None:
    told: dict[str, bool] = {}

    class Noted(Spark):
        def runner(self, state: Path, service: str, name: str = "", *, is_shared: bool = True) -> Any:
            told[name] = is_shared
            return super().runner(state, service, name, is_shared=is_shared)

    app = Responder("reports", spark={"default": Noted(), "bulk": Noted()}, state=tmp_path)
    app.job(name="one")(work)
    app.job(name="two", isolation="process")(work)
    app.job(name="three", engine="bulk", isolation="process")(work)
    jobs: DeclaredJobs = app._jobs
    with jobs.opened() as service:
        assert service is not None
        assert {name for name in service.runners if name} == {"default", "bulk"}

    assert told == {"default": True, "bulk": False}
