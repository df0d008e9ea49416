// All services: who is there, and how they do.

import { useMemo } from "preact/hooks";
import { href } from "../router";
import { count, duration, percent, rate } from "../widgets/format";
import { Empty, ErrorNote, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { useStatistics, type Watched } from "./looks";
import { byService, differ, versionsOf, type Instance } from "./model";
import { usePresence } from "./presence";
import { quantile, totalOf } from "./statistics";

interface Row {
  name: string;
  instances: Instance[];
  health: Health;
  watched: Watched | undefined;
  requests: number | null;
  errors: number | null;
  p50: number | null;
  p99: number | null;
}

export interface Health {
  word: string;
  kind: "ok" | "warn" | "bad";
  why: string;
}

/** How a service does, in a word. */
export function healthOf(instances: readonly Instance[], watched: Watched | undefined): Health {
  const silent = watched?.silent.length ?? 0;
  if (watched?.last && silent === instances.length) return { word: "not responding", kind: "bad", why: "no instance replied in time" };
  if (silent > 0 && watched?.last) return { word: `${silent} not responding`, kind: "warn", why: `no reply in time from ${watched.silent.join(", ")}` };
  if (differ(instances)) return { word: "contracts differ", kind: "warn", why: "a call may reach an instance with other verbs or parameters" };
  const overloaded = watched?.last ? [...watched.last.replies.values()].reduce((sum, one) => sum + (one.overloaded ?? 0), 0) : 0;
  const waiting = instances.reduce((sum, one) => sum + one.waiting, 0);
  if (waiting > 0 && overloaded > 0) return { word: "overloaded", kind: "warn", why: `${count(overloaded)} requests were refused with the code busy` };
  return { word: "ok", kind: "ok", why: "all instances reply" };
}

const COLUMNS: Column<Row>[] = [
  { key: "name", title: "Service", value: ({ name }) => name, render: ({ name }) => <a href={href("services", [name])}>{name}</a> },
  {
    key: "health",
    title: "Health",
    value: ({ health }) => health.word,
    render: ({ health }) => <span class={`status ${health.kind}`} title={health.why}>{health.word}</span>,
  },
  { key: "instances", title: "Instances", value: ({ instances }) => instances.length, numeric: true },
  { key: "version", title: "Version", value: ({ instances }) => versionsOf(instances) || null, secondary: true },
  { key: "rate", title: "Rate", value: ({ watched }) => watched?.rates?.requests, render: ({ watched }) => rate(watched?.rates?.requests), numeric: true, about: "Requests and messages per second" },
  { key: "errors", title: "Errors", value: ({ errors }) => errors, render: ({ errors }) => percent(errors), numeric: true, about: "Share of all requests since the start that ended with an error" },
  { key: "p50", title: "p50", value: ({ p50 }) => p50, render: ({ p50 }) => duration(p50), numeric: true, secondary: true, about: "Half of all requests since the start took no longer" },
  { key: "p99", title: "p99", value: ({ p99 }) => p99, render: ({ p99 }) => duration(p99), numeric: true, about: "99 of 100 requests since the start took no longer" },
  { key: "busy", title: "Busy", value: ({ instances }) => sum(instances, "busy"), numeric: true, secondary: true, about: "Requests being handled" },
  { key: "waiting", title: "Waiting", value: ({ instances }) => sum(instances, "waiting"), numeric: true, secondary: true, about: "Requests received but not yet started" },
];

function sum(instances: readonly Instance[], what: "busy" | "waiting"): number {
  return instances.reduce((all, one) => all + one[what], 0);
}

export function ServiceList() {
  const { instances, isComplete, error } = usePresence().value;
  const services = useMemo(() => byService(instances.values()), [instances]);
  const statistics = useStatistics(services, 4);
  const rows = [...services].map(([name, group]): Row => {
    const watched = statistics.get(name);
    const total = watched?.last ? totalOf(watched.last.replies.values()) : null;
    return {
      name,
      instances: group,
      health: healthOf(group, watched),
      watched,
      requests: total?.requests ?? null,
      errors: total && total.requests > 0 ? total.errors / total.requests : null,
      p50: total && quantile(total, 0.5),
      p99: total && quantile(total, 0.99),
    };
  });
  return (
    <>
      <PageHead title="Services" about="Services that you may call. Open one to see its verbs, call them and start its jobs." />
      {error !== null && <ErrorNote error={error} />}
      {rows.length > 0 ? (
        <Table label="Services" rows={rows} columns={COLUMNS} rowKey={({ name }) => name} initialSort={{ key: "name", descending: false }} filter="Filter services" />
      ) : isComplete ? (
        <Empty title="No services are running that you may call">
          Start one with <code>nebula run module:app</code>; it appears here automatically.
        </Empty>
      ) : (
        <p class="loading" role="status">Loading …</p>
      )}
    </>
  );
}
