"""An engine host without an engine: speaks the lines, and does what the names of jobs and modes say.

Usage: fake_host.py MODE [FOLDER]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from nebula.spark import lines

SESSION = lines.Ready("4.0.0", "Java 17 from a fake", os.getpid(), 0.1)


class FakeHost:
    def __init__(self, mode: str, folder: Path | None) -> None:
        self.mode, self.folder = mode, folder
        self.writer, self.reader = lines.LineWriter(), lines.LineReader()
        self.functions: dict[str, str] = {}
        self.notes: Path | None = None
        self.note: object = None  # open for as long as this process lives

    def say(self, *said: lines.Event) -> None:
        for line in said:
            os.write(1, self.writer.encode(line))

    def leave(self, status: int) -> None:
        os._exit(status)

    def serve(self) -> None:
        self.open()
        while self.reader.failure is None and (data := os.read(0, 65536)):
            for line in self.reader.feed(data):
                self.obey(line)
        self.leave(1)

    def open(self) -> None:
        match self.mode:
            case "gibberish":
                os.write(1, b"Welcome to\n")
            case "newer":
                self.say(lines.Hello(lines.VERSION + 1, os.getpid()))
            case "impolite":
                self.say(SESSION)
            case _:
                self.say(lines.Hello(lines.VERSION, os.getpid()))

    def obey(self, line: lines.Line) -> None:
        match line:
            case lines.Configure():
                self.configure(line)
            case lines.Submit():
                self.functions[line.job] = line.function
                self.say(lines.Started(line.job, line.attempt))
                self.run(line)
            case lines.Cancel():
                self.cancel(line)
            case lines.Stop() if self.mode != "deaf":
                self.say(lines.Bye("asked to stop"))
                self.leave(0)
            case _:
                pass

    def configure(self, line: lines.Configure) -> None:
        self.notes = None if line.notes is None else Path(line.notes)
        match self.mode:
            case "broken":
                self.say(lines.Broken("There is no Java"), lines.Bye("There is no Java"))
                self.leave(2)
            case "dies":
                self.leave(2)
            case "slow":
                pass
            case "with archive dies":
                assert self.folder is not None
                if line.with_archive:
                    (self.folder / "died").touch()
                    self.leave(lines.STATUS_SPARK_DIED)
                self.say(SESSION)
            case "hangs once":
                assert self.folder is not None
                with (self.folder / "archives").open("a") as starts:
                    starts.write(f"{line.with_archive}\n")
                if (self.folder / "archives").read_text().count("\n") > 1:
                    self.say(SESSION)
            case "mended":
                # The first start fails, those after it do not.
                assert self.folder is not None
                if not (self.folder / "tried").exists():
                    (self.folder / "tried").touch()
                    self.leave(2)
                self.say(SESSION)
            case "parent":
                # A grandchild outside our process group, which inherits our end of the conversation.
                subprocess.Popen(
                    [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
                )
                self.say(SESSION)
            case _:
                self.say(SESSION)

    def run(self, submit: lines.Submit) -> None:  # noqa: C901 - a list of what a host may do
        key = (submit.job, submit.attempt)
        match submit.function.rpartition(":")[2]:
            case "done":
                progress = lines.Progressed(
                    *key, 0.5, "half", (1, 2, "first"), (5, 10, 2), stages=((7, "count", 5, 8, 2),)
                )
                self.say(progress, lines.Done(*key, submit.parameters, None, None, None, None))
            case "trace":
                self.say(lines.Done(*key, dict(submit.trace), None, None, None, None))
            case "table":
                self.say(lines.Done(*key, None, "/results/table.parquet", 7, 100, {"id": "bigint"}))
            case "failed":
                self.say(
                    lines.Logged(*key, "so far"),
                    lines.Failed(*key, "data", "Division by zero.", "22012", "…"),
                )
            case "twice":
                done = lines.Done(*key, 1, None, None, None, None)
                self.say(done, done, lines.Progressed(*key, 0.9, "", None, None))
            case "dies":
                self.leave(9)
            case "jvm_dies":
                self.say(lines.Bye("Spark's JVM died"))
                self.leave(3)
            case "floods":
                self.say(*(lines.Logged(*key, f"line {number}") for number in range(20_000)))
                self.say(lines.Done(*key, None, None, None, None, None))
            case "leaves_unfinished":
                # As a killed host does; the run's own folder is our last argument's, not the service's.
                assert self.folder is not None
                unfinished = self.folder / "results" / f"{submit.job}.parquet.__{submit.job}.{submit.attempt}"
                unfinished.mkdir(parents=True)
                (unfinished / "part").touch()
                self.leave(9)
            case "writes_elsewhere":
                assert self.notes is not None
                final = Path(submit.parameters["path"])
                unfinished = final.with_name(f"{final.name}.__{submit.job}.{submit.attempt}")
                # Here, as it imports the library of logs: hosts start four times as fast without.
                from nebula.rpc.jobs.registry.unfinished import AttemptNote

                self.note = note = AttemptNote(self.notes, f"{submit.job}.{submit.attempt}")
                note.add(final, unfinished)
                unfinished.mkdir()
                self.say(lines.Logged(*key, "writing"))
            case "child":
                # Outlives us, unless somebody looks for it.
                subprocess.Popen(
                    [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
                )
            case "raving":
                os.write(1, b'{"n":-1,"line":"done"}\n')
                time.sleep(60)
            case "hangs":
                time.sleep(60)
            case _:
                pass  # runs until it is cancelled

    def cancel(self, line: lines.Cancel) -> None:
        key = (line.job, line.attempt)
        match self.functions.get(line.job):
            case "holds_slots":
                self.say(lines.Cancelled(*key, slots_free=False), lines.SlotsFree(*key))
            case "stuck":
                self.say(lines.Cancelled(*key, slots_free=False), lines.Stuck(*key))
            case "holds_its_slots":
                self.say(lines.Cancelled(*key, slots_free=False))
            case "was_quicker":
                self.say(lines.Done(*key, "made it", None, None, None, None))
            case "deaf" | "child":
                pass
            case "dies_when_cancelled" | "writes_elsewhere":
                self.leave(9)
            case _:
                self.say(lines.Cancelled(*key, slots_free=True))


if __name__ == "__main__":
    FakeHost(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None).serve()
