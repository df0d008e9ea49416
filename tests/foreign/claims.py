"""How many jobs a second instances take from one queue in PostgreSQL, in two ways (decision 0034).

`python -m tests.foreign.claims`
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from nebula.extras.postgres_database import Database
from nebula.extras.postgres_registry import PostgresJobRegistry
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.registry.errors import Superseded
from tests.foreign.postgresql import PostgresServer

_JOBS = 600

Take = Callable[[PostgresJobRegistry, str], int]


def ours(registry: PostgresJobRegistry, name: str, batch: int) -> int:
    """Know the queue, begin its first jobs under the service's lock, look again when another was quicker."""
    seen: int | None = None
    waiting: dict[str, JobRecord] = {}
    taken = 0
    while True:
        with registry.transaction():
            changes = registry.changes(seen)
        seen = changes.last
        for record in changes.records:
            waiting[record.id] = record
            if record.state is not JobState.QUEUED:
                del waiting[record.id]
        if not waiting:
            return taken
        was_late = False
        while waiting and not was_late:
            with registry.transaction():
                for record in list(waiting.values())[:batch]:
                    del waiting[record.id]
                    try:
                        registry.begin(
                            replace(record, state=JobState.STARTING, seq=2, holder=name), most=9999
                        )
                        taken += 1
                    except Superseded:
                        was_late = True


def skip_locked(registry: PostgresJobRegistry, name: str) -> int:
    """Let the database find a row that nobody has locked: no keys, no numbers of verbs."""
    statement = (
        "UPDATE jobs SET state = 'starting', seq = seq + 1, holder = ? WHERE id = (SELECT id FROM jobs "
        "WHERE state = 'queued' ORDER BY priority DESC, accepted_at LIMIT 1 FOR UPDATE SKIP LOCKED)"
    )
    taken = 0
    while True:
        with registry.transaction():
            done = registry._do(statement, name)
        if not done:
            return taken
        taken += done


def _rate(url: str, instances: int, take: Take) -> float:
    registries = [PostgresJobRegistry(Database(url), "claims") for _ in range(instances)]
    with registries[0].transaction():
        for number in range(_JOBS):
            registries[0].insert(JobRecord(f"{number:026}", "count", {"up_to": 3}, float(number)))
    counts: list[int] = []

    def work(number: int) -> None:
        counts.append(take(registries[number], f"i{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(instances)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    assert sum(counts) == _JOBS, "a job was begun twice, or never"
    for registry in registries:
        registry.close()
    return _JOBS / seconds


def main() -> None:
    """Measure."""
    server = PostgresServer(is_durable=True)
    ways: dict[str, Take] = {
        "the service's lock, one job a transaction": lambda registry, name: ours(registry, name, 1),
        "the service's lock, eight jobs a transaction": lambda registry, name: ours(registry, name, 8),
        "SKIP LOCKED, one job a transaction": skip_locked,
    }
    try:
        print(f"{'jobs begun a second, by instances:':<50}{1:>8}{2:>8}{4:>8}")
        for name, take in ways.items():
            rates = [_rate(server.new_database(), instances, take) for instances in (1, 2, 4)]
            print(f"{name:<50}" + "".join(f"{rate:>8.0f}" for rate in rates))
    finally:
        server.close()


if __name__ == "__main__":
    main()
