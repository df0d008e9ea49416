"""`.ci/deploy-docs`: which version and alias a branch or tag becomes, and pushes by two runs at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


class Runner:
    """A shallow clone, as a workflow has it, with a site of one page."""

    def __init__(self, folder: Path, remote: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {
            f"GIT_{who}_{what}": "a@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", remote.as_uri(), folder], check=True)
        (folder / ".ci").mkdir()
        shutil.copy(_ROOT / ".ci/deploy-docs", folder / ".ci")
        (folder / "build/site").mkdir(parents=True)
        (folder / "build/site/index.html").write_text(f"a page of {folder.name}", encoding="utf-8")

    def deploy(self, ref: str, *, remote: str = "origin") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, ".ci/deploy-docs", ref, remote],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def before_each_push(self, command: str) -> None:
        """Run a command after git has seen the remote's branch and before it sends anything."""
        hook = self.folder / ".git/hooks/pre-push"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        hook.chmod(0o755)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A repository with one commit, and no branch gh-pages yet."""
    bare, work = tmp_path / "remote", tmp_path / "work"
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch", "main", bare], check=True)
    subprocess.run(["git", "clone", "--quiet", bare, work], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(
        ["git", *identity, "commit", "--quiet", "--allow-empty", "--message", "The pages"],
        cwd=work,
        check=True,
    )
    subprocess.run(["git", "push", "--quiet", "origin", "HEAD:main"], cwd=work, check=True)
    return bare


def shown(remote: Path, path: str) -> str:
    """A file of the remote's branch."""
    return subprocess.check_output(["git", "show", f"gh-pages:{path}"], cwd=remote, text=True)


def published(remote: Path) -> dict[str, list[str]]:
    """The versions on the remote's branch, with their aliases."""
    return {one["version"]: one["aliases"] for one in json.loads(shown(remote, "versions.json"))}


def test_latest_is_the_highest_release(tmp_path: Path, remote: Path) -> None:
    runner = Runner(tmp_path / "runner", remote)
    versions = []
    for ref, latest, start in (
        ("v0.2.0rc1", None, "0.2.0rc1"),
        ("main", None, "dev"),
        # Again, with nothing changed.
        ("main", None, "dev"),
        ("v0.2.0", "0.2.0", "latest"),
        ("v0.9.0", "0.9.0", "latest"),
        ("v0.10.0", "0.10.0", "latest"),
        # A patch of an older release.
        ("v0.9.1", "0.10.0", "latest"),
        ("v0.11.0rc1", "0.10.0", "latest"),
        ("v0.11.0-beta.1", "0.10.0", "latest"),
        ("v0.11.0.dev1", "0.10.0", "latest"),
        # A higher pre-release does not count.
        ("v0.10.1", "0.10.1", "latest"),
        # The workflow of an older release, run again.
        ("v0.10.0", "0.10.1", "latest"),
    ):
        done = runner.deploy(ref)
        versions.append("dev" if ref == "main" else ref[1:])

        assert (done.returncode, done.stderr) == (0, ""), ref
        expected = {version: ["latest"] if version == latest else [] for version in versions}
        assert published(remote) == expected, ref
        assert f"url={start}/" in shown(remote, "index.html"), ref


@pytest.mark.parametrize("ref", ["topic", "version", "v1/2"])
def test_other_refs_are_refused(tmp_path: Path, remote: Path, ref: str) -> None:
    done = Runner(tmp_path / "runner", remote).deploy(ref)

    assert done.returncode == 1
    assert done.stderr == f"deploy-docs: {ref} is neither main nor a tag v1.2.3\n"


@pytest.mark.parametrize("is_first", [True, False], ids=["new branch", "old branch"])
def test_run_that_another_one_overtakes_deploys_again_on_its_result(
    tmp_path: Path, remote: Path, *, is_first: bool
) -> None:
    slow, quick = Runner(tmp_path / "slow", remote), Runner(tmp_path / "quick", remote)
    if not is_first:
        slow.deploy("v0.2.0")
    slow.before_each_push(
        f"rm $0; cd {quick.folder}; unset GIT_DIR; {sys.executable} .ci/deploy-docs v0.4.0 origin"
    )

    done = slow.deploy("v0.3.0")

    assert done.returncode == 0
    assert "deploy-docs: push 1 of 5 failed" in done.stderr
    old: dict[str, list[str]] = {} if is_first else {"0.2.0": []}
    assert published(remote) == {"0.4.0": ["latest"], "0.3.0": [], **old}
    assert shown(remote, "0.3.0/index.html") == "a page of slow"
    assert shown(remote, "0.4.0/index.html") == "a page of quick"
    assert shown(remote, "latest") == "0.4.0"


def test_run_that_never_gets_its_turn_fails(tmp_path: Path, remote: Path) -> None:
    runner = Runner(tmp_path / "runner", remote)
    runner.before_each_push("exit 1")

    done = runner.deploy("main")

    assert done.returncode == 1
    assert "push 5 of 5 failed" in done.stderr


def test_remote_that_does_not_answer_fails(tmp_path: Path, remote: Path) -> None:
    runner = Runner(tmp_path / "runner", remote)

    done = runner.deploy("main", remote="elsewhere")

    assert done.returncode == 1
    assert "deploy-docs: failed: git ls-remote elsewhere" in done.stderr
