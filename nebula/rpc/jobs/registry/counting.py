"""SQL that counts the bytes of jobs by owner.

A job's `bytes` are those of its row, as its writer counts them. `owners` has their sum, with the lines of the
jobs' logs; `stored` has the sum over all owners in its only row. So the bytes of an owner, or of all, are
read from one row.

`held_bytes` are those of jobs that cannot be removed: they are open, or the notice of their end has not been
delivered yet.

In SQLite the registry counts in code: no other process writes to its file, and triggers doubled the cost of a
write. In PostgreSQL triggers count, so that what instances of an earlier version write is counted as well.
"""

# ruff: noqa: S608 - the statements are built from constants

from __future__ import annotations

from typing import Final

from nebula.rpc.jobs.model.states import END_STATES
from nebula.rpc.jobs.registry.rows import JOB_BYTES, STEP_BYTES, column_types

__all__ = ["ENDED", "HELD_BYTES", "LINE_BYTES", "POSTGRES_COUNTING", "SQLITE_COUNTING"]

ENDED: Final = ", ".join(f"'{state}'" for state in sorted(END_STATES))

LINE_BYTES: Final = 50
"""About how many bytes a line of a log takes besides its text."""

_TEXTS: Final = [name for name, kind in column_types().items() if kind == "text"]

_TABLES: Final = f"""
CREATE TABLE owners (owner text PRIMARY KEY,
    jobs bigint NOT NULL, bytes bigint NOT NULL, held_bytes bigint NOT NULL);
CREATE TABLE stored (bytes bigint NOT NULL);
INSERT INTO stored VALUES (0);
CREATE INDEX jobs_ended ON jobs (owner, number) WHERE state IN ({ENDED});
"""


# `registry._held` has the same rule in Python, for SQLite. Change both.
def _held(row: str) -> str:
    """The bytes of a row if it cannot be removed, else 0."""
    may_go = f"{row}state IN ({ENDED}) AND NOT coalesce({row}is_owed, false)"
    return f"(CASE WHEN {may_go} THEN 0 ELSE {row}bytes END)"


def _upgrade(byte_count: str) -> str:
    """Count existing jobs."""
    # The same sum as `rows.size_of`, because later changes of a row are counted by their difference.
    texts = " + ".join(f"coalesce({byte_count.format(name)}, 0)" for name in _TEXTS)
    line_bytes = f"{byte_count.format('text')} + {LINE_BYTES}"
    lines = f"(SELECT coalesce(sum({line_bytes}), 0) FROM lines WHERE job = jobs.id)"
    return f"""
ALTER TABLE jobs ADD COLUMN bytes bigint NOT NULL DEFAULT {JOB_BYTES};
UPDATE jobs SET bytes = ({JOB_BYTES} + {texts} + {STEP_BYTES - 1}) / {STEP_BYTES} * {STEP_BYTES};
{_TABLES}
INSERT INTO owners SELECT coalesce(owner, ''), count(*), sum(bytes + {lines}), sum({_held("")})
    FROM jobs GROUP BY coalesce(owner, '');
UPDATE stored SET bytes = (SELECT coalesce(sum(bytes), 0) FROM owners);
"""


_SQLITE_TEXT_BYTES: Final = "length(CAST({} AS BLOB))"
_POSTGRES_TEXT_BYTES: Final = "octet_length({})"

# The functions find the tables in the schema where they were created, whatever the caller's search path is.
_POSTGRES_TRIGGERS: Final = f"""
CREATE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    log_bytes bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO owners VALUES (coalesce(NEW.owner, ''), 1, NEW.bytes, {_held("NEW.")})
            ON CONFLICT (owner) DO UPDATE SET jobs = owners.jobs + 1, bytes = owners.bytes + excluded.bytes,
            held_bytes = owners.held_bytes + excluded.held_bytes;
        UPDATE stored SET bytes = bytes + NEW.bytes;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE owners SET bytes = bytes + NEW.bytes - OLD.bytes,
            held_bytes = held_bytes + {_held("NEW.")} - {_held("OLD.")} WHERE owner = coalesce(OLD.owner, '');
        UPDATE stored SET bytes = bytes + NEW.bytes - OLD.bytes;
    ELSE
        SELECT coalesce(sum({_POSTGRES_TEXT_BYTES.format("text")} + {LINE_BYTES}), 0) INTO log_bytes
            FROM lines WHERE job = OLD.id;
        UPDATE stored SET bytes = bytes - OLD.bytes - log_bytes;
        UPDATE owners SET jobs = jobs - 1, bytes = bytes - OLD.bytes - log_bytes,
            held_bytes = held_bytes - {_held("OLD.")} WHERE owner = coalesce(OLD.owner, '');
        DELETE FROM owners WHERE owner = coalesce(OLD.owner, '') AND jobs = 0;
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION count_line() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    one record;
    whose text;
    added bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN one := NEW; ELSE one := OLD; END IF;
    SELECT coalesce(owner, '') INTO whose FROM jobs WHERE id = one.job;
    IF FOUND THEN
        added := {_POSTGRES_TEXT_BYTES.format("one.text")} + {LINE_BYTES};
        IF TG_OP = 'DELETE' THEN added := -added; END IF;
        UPDATE owners SET bytes = bytes + added WHERE owner = whose;
        UPDATE stored SET bytes = bytes + added;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_counted AFTER INSERT OR DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION count_job();
CREATE TRIGGER job_recounted AFTER UPDATE OF bytes, state, is_owed ON jobs FOR EACH ROW
    WHEN (NEW.bytes <> OLD.bytes OR {_held("NEW.")} <> {_held("OLD.")})
    EXECUTE FUNCTION count_job();
CREATE TRIGGER line_counted AFTER INSERT OR DELETE ON lines FOR EACH ROW EXECUTE FUNCTION count_line();
"""

HELD_BYTES: Final = _held("")
"""SQL for a row's part of `held_bytes`."""

SQLITE_COUNTING: Final = _upgrade(_SQLITE_TEXT_BYTES)
"""Adds the tables and counts existing jobs."""

POSTGRES_COUNTING: Final = _upgrade(_POSTGRES_TEXT_BYTES) + _POSTGRES_TRIGGERS
"""Like `SQLITE_COUNTING`, with triggers that keep counting."""
