// Jobs of all services: what waits, what runs, and what has ended.

import { useEffect, useMemo, useState } from "preact/hooks";
import { go, href, route } from "../router";
import { session } from "../session";
import { usePresence } from "../services/presence";
import { Views } from "../services/views";
import { count, duration, time } from "../widgets/format";
import { Empty, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { attempt } from "../widgets/toast";
import { askJob } from "./asking";
import { holders, useJobs, type JobQuery } from "./listing";
import { ENDED, hasEnded, mayManage, ranFor, RUNNING, serviceOf, ulidOf, WAITING, type JobRow } from "./model";
import { StartJob } from "./start";
import { Progress, StatePill } from "./state";
import { TimelineView } from "./timeline-view";

const GROUPS = { all: [], waiting: WAITING, running: RUNNING, ended: ENDED } as const;
type Group = keyof typeof GROUPS;

export function JobList() {
  const { query } = route.value;
  const service = query.get("service") ?? "";
  const given = query.get("state") ?? "all";
  const group: Group = given in GROUPS ? (given as Group) : "all";
  const text = query.get("text") ?? "";
  const [typed, setTyped] = useState(text);
  const [isStarting, setStarting] = useState(false);
  const { instances, isComplete } = usePresence().value;
  const asked = useMemo(() => holders(instances.values(), service), [instances, service]);
  const services = useMemo(() => [...new Set(holders(instances.values(), "").map((one) => one.service))].sort(), [instances]);
  const wanted: JobQuery = useMemo(() => ({ service, states: GROUPS[group], text }), [service, group, text]);
  const listing = useJobs(asked, wanted);
  const now = useNow(1_000);

  const narrow = (more: Record<string, string>): void => {
    const next = { service, state: group === "all" ? "" : group, text, ...more };
    go("jobs", [], Object.fromEntries(Object.entries(next).filter(([, value]) => value !== "")));
  };
  // A pause ends what is typed.
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => narrow({ text: typed }), 400);
    return () => clearTimeout(timer);
  }, [typed]);

  return (
    <>
      <PageHead title="Jobs" about="Waiting, running and ended jobs of all services that you may call.">
        {services.length > 0 && <button type="button" class="primary" onClick={() => setStarting(true)}>Start a job…</button>}
      </PageHead>
      {isStarting && <StartJob instances={instances} onClose={() => setStarting(false)} />}
      <div class="job-tools">
        <Views
          name="Which jobs"
          views={[["all", "All"], ["waiting", "Waiting"], ["running", "Running"], ["ended", "Ended"]]}
          chosen={group}
          onChoose={(next: Group) => narrow({ state: next === "all" ? "" : next })}
        />
        <select aria-label="Service" value={service} onChange={(event) => narrow({ service: event.currentTarget.value })}>
          <option value="">all services</option>
          {(service !== "" && !services.includes(service) ? [service, ...services] : services).map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <input type="search" aria-label="Search notes and errors" placeholder="Search notes and errors" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      {[...listing.errors].map(([of, error]) => (
        <div key={of} class="note warn" role="alert">
          <span>Cannot list the jobs of {of}: <strong>{error.code}</strong> {error.message}</span>
        </div>
      ))}
      {asked.length === 0 && isComplete ? (
        <Empty title={service ? `No instance of ${service} with jobs is running` : "No service with jobs is running"}>
          Declare a job with <code>@app.job</code>; jobs appear here while their service runs.
        </Empty>
      ) : listing.rows === null ? (
        <p class="loading" role="status">Loading …</p>
      ) : (
        <>
          <TimelineView rows={listing.rows} now={now} />
          <Jobs rows={listing.rows} now={now} onChange={listing.refresh} isNarrowed={group !== "all" || text !== ""} />
          {listing.hasMore && (
            <p class="job-more">
              <button type="button" disabled={listing.isLoading} onClick={listing.loadMore}>{listing.isLoading ? "Loading …" : "Load older jobs"}</button>
              <span class="muted">{count(listing.rows.length)} shown</span>
            </p>
          )}
        </>
      )}
    </>
  );
}

function Jobs({ rows, now, onChange, isNarrowed }: { rows: readonly JobRow[]; now: number; onChange: () => void; isNarrowed: boolean }) {
  const principal = session.principal.value;
  const columns: Column<JobRow>[] = [
    { key: "state", title: "State", value: ({ state }) => state, render: ({ state }) => <StatePill state={state} /> },
    {
      key: "job",
      title: "Job",
      value: ({ job, verb }) => `${serviceOf(job)} ${verb} ${ulidOf(job)}`,
      render: (row) => (
        <>
          <a class="job-link" href={href("jobs", [serviceOf(row.job), ulidOf(row.job)])}><span>{serviceOf(row.job)}</span> <strong>{row.verb}</strong></a>
          <span class="job-id">…{ulidOf(row.job).slice(-6)}</span>
        </>
      ),
    },
    {
      key: "progress",
      title: "Progress",
      value: ({ progress }) => progress,
      render: (row) => (row.state === "queued" ? <span class="muted">{row.position === null ? "–" : `position ${row.position}`}</span> : <Progress state={row.state} progress={row.progress} label={`Progress of ${row.job}`} />),
    },
    { key: "note", title: "Note", value: ({ note, error }) => (error ? `${error.code}: ${error.message}` : note) || null, secondary: true },
    { key: "owner", title: "Owner", value: ({ owner }) => owner, render: ({ owner }) => <span class="job-owner" title={owner ?? ""}>{owner ?? "–"}</span>, secondary: true },
    { key: "accepted", title: "Accepted", value: ({ accepted_at }) => accepted_at, render: ({ accepted_at }) => time(accepted_at), numeric: true, secondary: true },
    { key: "ran", title: "Ran", value: (row) => ranFor(row, now), render: (row) => duration(ranFor(row, now)), numeric: true },
    {
      key: "end",
      title: "",
      value: () => null,
      sortable: false,
      secondary: true,
      render: (row) => {
        if (hasEnded(row.state)) return "";
        const isMine = mayManage(row.owner, principal);
        return (
          <button
            type="button"
            class="small"
            disabled={!isMine || row.state === "cancelling"}
            title={isMine ? undefined : "Only its owner can cancel it"}
            aria-label={`Cancel ${row.job}`}
            onClick={() => void attempt(() => askJob(row.job, "job.cancel"), "Cancellation requested").then((is) => is && onChange())}
          >
            Cancel
          </button>
        );
      },
    },
  ];
  return (
    <Table
      label="Jobs"
      rows={rows}
      columns={columns}
      rowKey={({ job }) => job}
      empty={isNarrowed ? "No job matches." : "No jobs yet."}
    />
  );
}

/** The present time, in seconds since 1970, renewed after this number of milliseconds. */
export function useNow(every: number): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

