// The steps of a job's last run, as bars over time, with Spark's tasks at the present one.

import { useRef } from "preact/hooks";
import { count, duration } from "../widgets/format";
import { useNow } from "./list";
import { hasEnded, type JobDetails, type Stage, type Step, type Tasks } from "./model";

export function StepsView({ details, state, tasks, current }: { details: JobDetails; state: string; tasks: Tasks | null; current: [number, number, string] | null }) {
  const now = useNow(500);
  const isOpen = !hasEnded(state);
  // A step that has just begun is not recorded yet: its time counts from when it was first seen here.
  const seen = useRef({ number: 0, at: 0 });
  if (current !== null && current[0] !== seen.current.number) seen.current = { number: current[0], at: now };
  const steps = known(details.steps, current, seen.current.at);
  if (steps.length === 0 && tasks === null) return null;
  const from = steps[0]?.started_at ?? details.started_at ?? now;
  const to = Math.max(from + 0.001, steps.at(-1)?.ended_at ?? (isOpen ? now : (details.ended_at ?? now)));
  const total = steps.at(-1)?.total ?? 0;
  const done = steps.at(-1)?.number ?? 0;
  return (
    <section class="card" aria-label="Steps">
      <h2>Steps</h2>
      <ol class="steps">
        {steps.map((step) => {
          const isPresent = step.ended_at === null && isOpen;
          const end = step.ended_at ?? (isOpen ? now : to);
          const [left, width] = [(step.started_at - from) / (to - from), Math.max(0.004, (end - step.started_at) / (to - from))];
          return (
            <li key={`${step.number} ${step.started_at}`} aria-current={isPresent ? "step" : undefined}>
              <span class="step-name"><span class="muted">{step.number}/{step.total}</span> {step.name || `step ${step.number}`}</span>
              <span class="step-took">{duration(end - step.started_at)}{isPresent && " …"}</span>
              {/* Of a single step it would be full, and look like progress. */}
              {steps.length > 1 && (
                <svg class="step-bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                  <rect class="step-track" width="100" height="4" />
                  <rect class={isPresent ? "timeline-run accent" : "timeline-run ok"} x={left * 100} width={Math.min(width, 1 - left) * 100} height="4" />
                </svg>
              )}
              {isPresent && tasks !== null && <TaskCounts tasks={tasks} />}
              {isPresent && tasks !== null && <Stages stages={tasks.stages ?? []} />}
            </li>
          );
        })}
        {isOpen && done < total && <li class="muted">{total - done === 1 ? "1 more step" : `${total - done} more steps`}</li>}
      </ol>
      {!isOpen && tasks !== null && (
        <>
          <p class="muted">{count(tasks.done)} Spark tasks in the last step</p>
          <Stages stages={tasks.stages ?? []} />
        </>
      )}
    </section>
  );
}

/** The recorded steps, and the present one if it began since they were read. */
function known(steps: readonly Step[], current: [number, number, string] | null, begun: number): Step[] {
  const last = steps.at(-1);
  if (current === null || (last !== undefined && last.number >= current[0])) return [...steps];
  const [number, total, name] = current;
  const before = steps.map((step) => (step.ended_at === null ? { ...step, ended_at: begun } : step));
  return [...before, { number, total, name, started_at: begun, ended_at: null }];
}

function Stages({ stages }: { stages: readonly Stage[] }) {
  if (stages.length === 0) return null;
  return (
    <ol class="stages" aria-label="Spark stages">
      {stages.map(({ id, name, done, known, active }) => (
        <li key={id}>
          <span>Stage {id}{name && <span class="muted"> {name}</span>}</span>
          <progress class={done < known ? "accent" : "ok"} value={known > 0 ? done / known : 0} max={1} aria-label={`Tasks of stage ${id}`} />
          <span class="muted">{count(done)} of {count(known)} tasks{active > 0 && `, ${count(active)} running`}</span>
        </li>
      ))}
    </ol>
  );
}

function TaskCounts({ tasks }: { tasks: Tasks }) {
  return (
    <span class="step-tasks">
      <progress class="accent" value={tasks.known > 0 ? tasks.done / tasks.known : 0} max={1} aria-label="Spark tasks" />
      <span>{count(tasks.done)} of {count(tasks.known)} Spark tasks done, {count(tasks.active)} running</span>
    </span>
  );
}
