"""`python -m website.build`: the documentation site, built into build/site and checked.

With `--serve` it shows the site on 127.0.0.1:8000 and builds it anew when a page changes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from website.hooks import MERMAID
from website.links import problems

ROOT: Final = Path(__file__).parents[1]
SITE: Final = ROOT / "build" / "site"
_WEBSITE: Final = ROOT / "website"


class CannotBuild(Exception):
    """What is missing, in a sentence."""


def install_mermaid() -> None:
    """Have npm install what draws the pictures, unless it has.

    Raises:
        CannotBuild: there is no npm, or it cannot fetch it.
    """
    lock = _WEBSITE / "package-lock.json"
    script = _WEBSITE / MERMAID
    if script.exists() and (script.parents[3] / ".package-lock.json").stat().st_mtime >= lock.stat().st_mtime:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise CannotBuild(
            "npm is missing, which installs what draws the pictures. On Debian: apt-get install npm"
        )
    command = [npm, "ci", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=_WEBSITE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuild(f"npm ci failed: {done.stderr.strip()[-600:]}")


def mkdocs(*words: str) -> int:
    """Run MkDocs; a warning is a failure."""
    # Material tells its users about its successor at every build: see docs/decisions/0073.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def build(site: Path = SITE) -> list[str]:
    """Build the site and check it; what is wrong, in lines."""
    if mkdocs("build", "--strict", "--quiet", "--site-dir", str(site)) != 0:
        return ["mkdocs build --strict failed"]
    return list(problems(site))


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or show the site; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m website.build", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="show it on 127.0.0.1:8000, and follow changes")
    options = parser.parse_args(arguments)
    try:
        install_mermaid()
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    if options.serve:
        return mkdocs("serve", "--dev-addr", "127.0.0.1:8000", "--quiet")
    found = build()
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        pages = len(list(SITE.rglob("index.html")))
        print(f"build/site: {pages} pages; python -m http.server -d build/site shows them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
