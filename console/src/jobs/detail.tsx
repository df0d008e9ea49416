// One job: its progress by steps, log, counters, result, and what can be done with it.

import { useEffect, useState } from "preact/hooks";
import { go, href } from "../router";
import { session, type NebulaError } from "../session";
import { SparkPages } from "../services/engines";
import { Json } from "../services/value";
import { confirm } from "../widgets/dialog";
import { count, duration, percent, time } from "../widgets/format";
import { asNebulaError, usePolled } from "../widgets/poll";
import { ErrorNote, PageHead } from "../widgets/states";
import { attempt, toast } from "../widgets/toast";
import { askJob, hearStatuses } from "./asking";
import { useNow } from "./list";
import { JobLog } from "./log";
import { hasEnded, lookOf, mayManage, ranFor, readStatus, tasksOf, withStatus, wordOf, type JobDetails, type JobRow, type Status } from "./model";
import { JobResultView } from "./result";
import { StatePill } from "./state";
import { StepsView } from "./steps";

/** What could be read of a job: all of it by its owner, else what every caller may see. */
interface Found {
  row: JobRow;
  details: JobDetails | null;
}

async function read(job: string, signal: AbortSignal): Promise<Found> {
  try {
    const details = await askJob<JobDetails>(job, "job.show", { lines: 0 }, { signal });
    return { row: details, details };
  } catch (error) {
    if (asNebulaError(error).code !== "not-allowed") throw error;
    const ulid = job.slice(job.indexOf("/") + 1);
    // Lists say nothing that its owner alone may know.
    const { jobs } = await session.call<{ jobs: JobRow[] }>(job.slice(0, job.indexOf("/")), "job.list", { prefix: ulid }, { signal });
    const [row] = jobs;
    if (row === undefined) throw error;
    return { row, details: null };
  }
}

export function JobDetail({ service, ulid }: { service: string; ulid: string }) {
  const job = `${service}/${ulid}`;
  const [status, setStatus] = useState<Status | undefined>();
  const [isOver, setOver] = useState(false);
  const polled = usePolled((signal) => read(job, signal), isOver ? 0 : 3, [job]);

  useEffect(() => {
    const stop = hearStatuses(
      `X/jobs.${service}.${ulid}`,
      (message) => {
        const told = readStatus(message.body);
        if (told === null) return;
        setStatus((before) => (before === undefined || told.seq >= before.seq ? told : before));
      },
      { eager: true },
    );
    return stop;
  }, [job]);

  const row = polled.data && withStatus(polled.data.row, status);
  const ended = row !== null && hasEnded(row.state);
  useEffect(() => {
    // The result and the last steps come with the end.
    if (ended && polled.data !== null && !hasEnded(polled.data.row.state)) polled.refresh();
    setOver(polled.data !== null && hasEnded(polled.data.row.state));
  }, [ended, polled.data]);

  // A new step is recorded: read when it began.
  const step = status?.step?.[0] ?? 0;
  useEffect(() => {
    if (step > 0) polled.refresh();
  }, [step]);

  const crumbs = (
    <span class="crumbs">
      <a href={href("jobs")}>Jobs</a> / <a href={href("jobs", [], { service })}>{service}</a>
    </span>
  );
  if (row === null) {
    return (
      <>
        <PageHead title={<code>{ulid}</code>} about={crumbs} />
        {polled.error === null || polled.error.code === "lost" ? <p class="loading" role="status">Loading …</p> : <NotThere error={polled.error} onRetry={polled.refresh} />}
      </>
    );
  }
  const details = polled.data?.details ?? null;
  return (
    <>
      <PageHead title={<>{row.verb} <StatePill state={row.state} /></>} about={<>{crumbs} / <code>{ulid}</code></>}>
        <Actions row={row} details={details} onChange={polled.refresh} />
      </PageHead>
      {polled.error !== null && polled.error.code !== "lost" && <ErrorNote error={polled.error} onRetry={polled.refresh} />}
      {row.error !== null && (
        <div class="reply-error" role="alert">
          <p><code class="reply-code">{row.error.code}</code>{row.error.sqlstate && ` (SQLSTATE ${row.error.sqlstate})`}</p>
          <p>{row.error.message}</p>
        </div>
      )}
      {details === null && (
        <p class="note warn">This job belongs to {row.owner ?? "another principal"}. Only its owner can see parameters, steps, log and result.</p>
      )}
      <Overview row={row} />
      {details !== null && (
        <div class="job-parts">
          <div>
            <StepsView details={details} state={row.state} tasks={tasksOf(details, status)} current={status?.step ?? null} />
            {details.result !== null && row.state === "done" && <JobResultView job={job} result={details.result} />}
            <JobLog job={job} isOver={ended} />
          </div>
          <div>
            <Counters counters={{ ...details.counters, ...status?.counters }} />
            {!ended && <SparkPages via={status?.via || details.via} />}
            <Facts row={row} details={details} />
            <section class="card" aria-label="Parameters">
              <h2>Parameters</h2>
              <Json value={details.parameters} label="Parameters" />
            </section>
          </div>
        </div>
      )}
    </>
  );
}

function NotThere({ error, onRetry }: { error: NebulaError; onRetry: () => void }) {
  if (error.code === "no-responder") return <p class="note warn">The service is not running. This page shows the job when the service is back. <button type="button" onClick={onRetry}>Try again</button></p>;
  return <ErrorNote error={error} onRetry={onRetry} />;
}

function Overview({ row }: { row: JobRow }) {
  const now = useNow(1_000);
  const isOpen = !hasEnded(row.state);
  const known = row.state === "queued" ? null : row.progress;
  return (
    <section class="card job-overview" aria-label="Progress">
      <div class="job-progress">
        <progress class={lookOf(row.state)} max={1} {...(known === null && isOpen && row.state !== "queued" ? {} : { value: known ?? 0 })} aria-label="Progress" />
        <strong>{known === null ? (row.state === "queued" ? "waiting" : "") : percent(Math.floor(known * 100) / 100)}</strong>
      </div>
      <p class="job-note" aria-live="polite">
        {row.state === "queued" ? [row.position !== null && `Position ${row.position} in the queue.`, row.note].filter(Boolean).join(" ") || "Waiting for its turn." : row.note || wordOf(row.state)}
      </p>
      <p class="muted">
        accepted {time(row.accepted_at)}
        {row.started_at !== null && `, started ${time(row.started_at)}`}
        {row.ended_at !== null && `, ended ${time(row.ended_at)}`}
        {row.started_at !== null && `, ran ${duration(ranFor(row, now))}`}
        {row.attempt > 1 && `, attempt ${row.attempt}`}
      </p>
    </section>
  );
}

function Actions({ row, details, onChange }: { row: JobRow; details: JobDetails | null; onChange: () => void }) {
  const isMine = mayManage(row.owner, session.principal.value) && details !== null;
  const reason = isMine ? undefined : "Only its owner can do that";
  const service = row.job.slice(0, row.job.indexOf("/"));
  const cancel = async (): Promise<void> => {
    const isSure = await confirm({
      title: "Cancel this job?",
      body: <p><strong>{row.verb}</strong> stops at its next progress report. Its work so far is discarded.</p>,
      action: "Cancel the job",
      danger: true,
    });
    if (isSure && (await attempt(() => askJob(row.job, "job.cancel"), "Cancellation requested"))) onChange();
  };
  const rerun = async (): Promise<void> => {
    try {
      const accepted = await askJob<{ job: string }>(row.job, "job.rerun");
      toast("Started a new job with the same parameters");
      const [of = service, ulid = ""] = accepted.job.split("/");
      go("jobs", [of, ulid]);
    } catch (error) {
      const { code, message } = asNebulaError(error);
      toast(`${message} (${code})`, "failed");
    }
  };
  return (
    <>
      {!hasEnded(row.state) && (
        <button type="button" class="danger" disabled={!isMine || row.state === "cancelling"} title={reason} onClick={() => void cancel()}>
          {row.state === "cancelling" ? "Cancelling …" : "Cancel"}
        </button>
      )}
      <button type="button" disabled={!isMine} title={reason} onClick={() => void rerun()}>Run again</button>
      {details !== null && (
        <a class="button" href={href("services", [service, row.verb], { with: JSON.stringify(details.parameters) })}>Edit and run…</a>
      )}
    </>
  );
}

function Counters({ counters }: { counters: Record<string, number> }) {
  const entries = Object.entries(counters);
  if (entries.length === 0) return null;
  return (
    <section class="card" aria-label="Counters">
      <h2>Counters</h2>
      <dl class="facts counters">
        {entries.map(([name, value]) => (
          <>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd>{count(value)}</dd>
          </>
        ))}
      </dl>
    </section>
  );
}

function Facts({ row, details }: { row: JobRow; details: JobDetails }) {
  const facts: [string, string | null][] = [
    ["Owner", row.owner],
    ["Priority", String(details.priority)],
    ["Time limit", details.timeout === null ? "none" : duration(details.timeout)],
    ["Not before", details.not_before === null ? null : time(details.not_before)],
    ["Expires", details.expires_at === null ? null : time(details.expires_at)],
    ["Exclusive", details.exclusive],
    ["Instance", details.via.replace(/^\/queue\//, "")],
  ];
  return (
    <section class="card" aria-label="About the job">
      <h2>About</h2>
      <dl class="facts">
        {facts.filter(([, value]) => value !== null).map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
        {row.rerun_of && (
          <>
            <dt>Rerun of</dt>
            <dd><a href={href("jobs", row.rerun_of.split("/"))}>…{row.rerun_of.slice(-6)}</a></dd>
          </>
        )}
      </dl>
    </section>
  );
}
