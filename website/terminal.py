"""`python -m website.terminal`: the pictures of the terminal in docs/how-to/pictures.

Each picture is what commands print against a real broker, drawn as SVG by rich. Times, ids and rates differ
from run to run, so nothing compares the pictures with the code: draw them again when the output changes.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from nebula import sync
from nebula.stomp.client import AckMode

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "how-to" / "pictures"

_COLUMNS: Final = 100
_DEADLINE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: the commands that are typed, one after the other."""

    name: str
    title: str
    commands: Sequence[str]


SCENES: Final = (
    Scene(
        "call",
        "Ask a service what it offers, and call it",
        (
            "nebula describe warehouse",
            """nebula call warehouse order lines:='[{"item": "cup", "pieces": 6}]' due=2030-01-31""",
            """nebula call warehouse order lines:='[{"item": "unicorn"}]'""",
            "nebula call warehouse order lines:=7",
        ),
    ),
    Scene(
        "job",
        "Start a job, watch it, and look back",
        (
            "nebula call warehouse stocktaking shelves:=4 > job.json",
            "nebula watch - --result < job.json",
            "nebula job show - < job.json",
        ),
    ),
    Scene("top", "nebula top", ("nebula top --once",)),
    Scene(
        "dead-letters",
        "Dead letters: why, from where, and back again",
        ("nebula dlq list", "nebula dlq replay --from orders", "nebula queues '/queue/*'"),
    ),
)


def typed(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """What a command writes to a terminal, with its colours; of a line that is drawn over, the last state."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    data = b""
    until = time.monotonic() + _DEADLINE
    try:
        while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                data += os.read(reader, 65536)
            except OSError:  # Linux says EIO when the last writer has gone
                break
        process.wait(max(0.1, until - time.monotonic()))
    finally:
        process.kill()
        os.close(reader)
    return drawn_over(data.decode())


def drawn_over(said: str) -> str:
    """The lines that are left on a screen where a program went back and drew again."""
    lines = [""]
    at = 0
    for part in re.split(r"(\x1b\[\d*A|\x1b\[\d*K|\r?\n|\r|\x1b\[\?\d+[hl])", said):
        up = re.fullmatch(r"\x1b\[(\d*)A", part)
        if up:
            at = max(0, at - int(up[1] or 1))
        elif part in ("\n", "\r\n"):
            at += 1
            if at == len(lines):
                lines.append("")
        elif re.fullmatch(r"\x1b\[\d*K", part):
            lines[at] = ""
        elif part != "\r" and not part.startswith("\x1b[?"):
            lines[at] += part
    return "\n".join(lines).rstrip()


def picture(scene: Scene, shown: Sequence[tuple[str, str]]) -> str:
    """The SVG of commands with what they wrote."""
    with Path(os.devnull).open("w") as nowhere:
        console = Console(
            record=True,
            file=nowhere,
            width=_COLUMNS,
            force_terminal=True,
            color_system="truecolor",
            legacy_windows=False,
        )
        for command, said in shown:
            console.print(Text.assemble(("$ ", "bright_black"), (command, "bold")))
            if said:
                console.print(Text.from_ansi(said))
            console.print()
        svg = console.export_svg(title=scene.title, theme=DIMMED_MONOKAI, unique_id=scene.name, clear=True)
    # The fonts of the template would come from elsewhere.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code, monospace", "monospace"
    )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


@contextmanager
def running(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A program of `nebula` that has begun: yields the line that says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nebula", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.wait(_DEADLINE)


def fill(url: str) -> None:
    """Messages that wait, and some that could not be delivered."""
    with sync.Client(url, client_id="till-2") as client:
        for number in range(40):
            client.publish("/queue/orders", {"order": number})
        for number in range(7):
            client.publish("/queue/invoices", {"invoice": number})
        with client.subscribe("/queue/orders", ack=AckMode.CLIENT_INDIVIDUAL) as messages:
            for _ in range(3):
                messages.nack(next(messages), requeue="false")


def scenes() -> Iterator[tuple[Scene, list[tuple[str, str]]]]:
    """Each scene with its commands and what they wrote."""
    with tempfile.TemporaryDirectory(prefix="nebula-pictures-") as name, ExitStack() as stack:
        folder = Path(name)
        plain = {
            key: value for key, value in os.environ.items() if not key.startswith(("NEBULA_", "NO_COLOR"))
        }
        environment = plain | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "NEBULA_STATE": str(folder / "state"),
            "TERM": "xterm-256color",
            "COLUMNS": str(_COLUMNS),
            "LINES": "40",
        }
        said = stack.enter_context(
            running(["broker", "--port", "0", "--log-level", "error"], folder, environment)
        )
        url = re.search(r"stomp://[\d.:]+", said)
        assert url is not None, said
        environment["NEBULA_BROKER"] = url[0]
        stack.enter_context(
            running(["run", "website.scenes:app", "--log-level", "error"], folder, environment)
        )
        fill(url[0])
        bench = ["bench", "call", "warehouse", "price", "item=cup", "--seconds", "600"]
        for scene in SCENES:
            with ExitStack() as busy:
                if scene.name == "top":
                    load = subprocess.Popen(
                        [sys.executable, "-m", "nebula", *bench], cwd=folder, env=environment
                    )
                    busy.callback(load.wait, _DEADLINE)
                    busy.callback(load.terminate)
                yield scene, [(command, typed(command, folder, environment)) for command in scene.commands]


def main() -> int:
    """Draw all pictures; the result is the exit status."""
    FOLDER.mkdir(exist_ok=True)
    for scene, shown in scenes():
        path = FOLDER / f"{scene.name}.svg"
        path.write_text(picture(scene, shown), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
