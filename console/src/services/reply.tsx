// What came of an attempt: the value, the items of a stream, the job, or the error.

import { useEffect, useState } from "preact/hooks";
import { isObject } from "../forms/schema";
import { href } from "../router";
import { count, duration, rate } from "../widgets/format";
import type { Verb } from "./model";
import { MOST_ITEMS, type Attempt } from "./try-call";
import { Json, ValueView } from "./value";

export function Reply({ service, verb, attempt }: { service: string; verb: Verb; attempt: Attempt }) {
  return (
    <>
      <p class="reply-head">
        <Outcome attempt={attempt} />
      </p>
      {attempt.error !== null && <Failure verb={verb} attempt={attempt} />}
      {attempt.kind === "stream" ? (
        <Items attempt={attempt} />
      ) : attempt.state !== "done" ? null : attempt.kind === "job" ? (
        <Started service={service} value={attempt.value} />
      ) : attempt.value === null || attempt.value === undefined ? (
        <p class="muted">No result (null).</p>
      ) : (
        <ValueView value={attempt.value} label="Result" />
      )}
    </>
  );
}

function Outcome({ attempt }: { attempt: Attempt }) {
  const took = attempt.took === null ? "" : duration(attempt.took / 1000);
  switch (attempt.state) {
    case "open":
      return (
        <>
          <span class="status warn">{attempt.kind === "stream" ? "streaming" : "waiting"}</span> <Elapsed began={attempt.began} />
        </>
      );
    case "done":
      return (
        <>
          <span class="status ok">{attempt.kind === "job" ? "accepted" : attempt.kind === "stream" ? "ended" : "success"}</span> <span class="muted">after {took}</span>
        </>
      );
    case "stopped":
      return (
        <>
          <span class="status">{attempt.kind === "stream" ? "stopped" : "cancelled"}</span> <span class="muted">after {took}</span>
        </>
      );
    case "failed":
      return (
        <>
          <span class="status bad">error</span> <span class="muted">after {took}</span>
        </>
      );
  }
}

function Elapsed({ began }: { began: number }) {
  const [now, setNow] = useState(() => performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 250);
    return () => clearInterval(timer);
  }, []);
  // Read by no screen reader: it would speak without end.
  return <span class="muted" aria-hidden="true">{duration(Math.max(0, now - began) / 1000)}</span>;
}

function Failure({ verb, attempt }: { verb: Verb; attempt: Attempt }) {
  const error = attempt.error;
  if (error === null) return null;
  const declared = verb.errors?.find(({ code }) => code === error.code);
  return (
    <div class="reply-error" role="alert">
      <p><code class="reply-code">{error.code}</code> {error.retryable && <span class="pill">a retry may succeed</span>}</p>
      <p>{error.message}</p>
      {declared && <p class="form-hint">{declared.description}</p>}
      {error.code === "bad-parameters" && Array.isArray(error.details) ? (
        <ul>
          {error.details.filter(isObject).map((detail) => <li key={String(detail.field)}><code>{String(detail.field)}</code> {String(detail.message)}</li>)}
        </ul>
      ) : (
        error.details !== null && error.details !== undefined && <Json value={error.details} label="Details of the error" />
      )}
    </div>
  );
}

function Items({ attempt }: { attempt: Attempt }) {
  const seconds = ((attempt.took ?? performance.now() - attempt.began) - (attempt.firstAfter ?? 0)) / 1000;
  const hidden = attempt.count - attempt.items.length;
  return (
    <>
      <p class="muted">
        {count(attempt.count)} {attempt.count === 1 ? "item" : "items"}
        {attempt.firstAfter !== null && `, the first after ${duration(attempt.firstAfter / 1000)}`}
        {attempt.count > 1 && seconds > 0 && `, ${rate((attempt.count - 1) / seconds)}`}
        {hidden > 0 && `; the last ${MOST_ITEMS} are shown`}
      </p>
      {attempt.items.length > 0 && (
        <ol class="stream" start={hidden + 1} aria-label="Items" tabIndex={0}>
          {attempt.items.map((item, number) => <li key={hidden + number}><code>{JSON.stringify(item)}</code></li>)}
        </ol>
      )}
    </>
  );
}

/** A job that was accepted: where to follow it. */
function Started({ service, value }: { service: string; value: unknown }) {
  const job = isObject(value) && typeof value.job === "string" ? value.job : null;
  if (job === null) return <Json value={value} label="Reply" />;
  const [, ulid = job] = job.split("/");
  const position = isObject(value) && typeof value.position === "number" ? value.position : null;
  return (
    <>
      <p>Accepted as <code>{job}</code>{position !== null && `, position ${position} in the queue`}.</p>
      <p><a class="button" href={href("jobs", [service, ulid])}>Follow the job</a></p>
    </>
  );
}
