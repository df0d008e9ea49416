"""Schema of a service's jobs in PostgreSQL: tables, triggers, upgrades."""

# ruff: noqa: S608 - the statements are made of our own words

from __future__ import annotations

from typing import Final

from nebula.rpc.jobs.registry.counting import ENDED, POSTGRES_COUNTING
from nebula.rpc.jobs.registry.rows import column_types

__all__ = ["CHANNEL", "OPEN_OR_HELD", "TABLES", "UPGRADES", "VERSION"]

# What instances tell each other: the schema whose jobs have changed, or with it the job whose log has grown.
CHANNEL: Final = "nebula_jobs"

VERSION: Final = 4

OPEN_OR_HELD: Final = f"(state NOT IN ({ENDED}) OR holder IS NOT NULL)"

TABLES: Final = f"""
CREATE SEQUENCE job_changes;
CREATE TABLE jobs (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    {", ".join(f"{name} {kind}" for name, kind in column_types().items())},
    cancel_wanted boolean NOT NULL DEFAULT false, change bigint NOT NULL);
CREATE UNIQUE INDEX job_ids ON jobs (id);
CREATE UNIQUE INDEX job_keys ON jobs (owner, verb, dedupe) WHERE dedupe IS NOT NULL;
CREATE UNIQUE INDEX job_exclusives ON jobs (exclusive) WHERE holder IS NOT NULL;
CREATE INDEX jobs_open ON jobs (id) WHERE {OPEN_OR_HELD};
CREATE INDEX job_order ON jobs (change);
CREATE INDEX job_verbs ON jobs (verb, accepted_at, number);
CREATE INDEX job_owners ON jobs (owner, accepted_at, number);
CREATE INDEX job_times ON jobs (accepted_at, number);
CREATE INDEX jobs_owed ON jobs (number) WHERE is_owed;
CREATE TABLE lines (job text NOT NULL, number bigint NOT NULL, at double precision NOT NULL,
    text text NOT NULL, PRIMARY KEY (job, number));
CREATE TABLE instances (name text PRIMARY KEY, incarnation text NOT NULL,
    expires_at timestamptz NOT NULL);
CREATE TABLE verbs (name text PRIMARY KEY, seen_at timestamptz NOT NULL, worked_at timestamptz);
CREATE TABLE version (number integer NOT NULL);
INSERT INTO version VALUES ({VERSION});
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.change := nextval(format('%I.job_changes', TG_TABLE_SCHEMA)::regclass);
    IF TG_OP = 'INSERT' OR (NEW.state, NEW.holder, NEW.cancel_wanted)
            IS DISTINCT FROM (OLD.state, OLD.holder, OLD.cancel_wanted) THEN
        PERFORM pg_notify('{CHANNEL}', TG_TABLE_SCHEMA);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER note_change BEFORE INSERT OR UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION note_change();
{POSTGRES_COUNTING}
"""

# From each version to the next. Running instances of the earlier version write as before, and are counted.
# `note_change` is off meanwhile, because counting rows is not a change of a job.
UPGRADES: Final = {
    3: f"ALTER TABLE jobs DISABLE TRIGGER note_change; {POSTGRES_COUNTING} "
    "ALTER TABLE jobs ENABLE TRIGGER note_change;"
}
