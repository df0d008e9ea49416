// One service: instances, rates and latencies, engines, and its verbs.

import { useMemo, useState } from "preact/hooks";
import { readDocstring } from "../forms/docstring";
import { href } from "../router";
import { Chart } from "../widgets/chart";
import { count, duration, percent, rate } from "../widgets/format";
import { Empty, Loaded, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { useContract } from "./contract";
import { Engines } from "./engines";
import { healthOf } from "./list";
import { useStatistics, type Watched } from "./looks";
import { differ, isBuiltIn, versionsOf, type Contract, type Instance, type Statistics, type Verb } from "./model";
import { usePresence } from "./presence";
import { byVerb, quantile, totalOf, type Tally } from "./statistics";

export function ServiceDetail({ service }: { service: string }) {
  const { instances, isComplete } = usePresence().value;
  const own = useMemo(() => [...instances.values()].filter((one) => one.service === service).sort((one, other) => one.name.localeCompare(other.name)), [instances, service]);
  const statistics = useStatistics(useMemo(() => new Map([[service, own]]), [service, own]), 2);
  const watched = statistics.get(service);
  const contract = useContract(service, own);
  const back = <span class="crumbs"><a href={href("services")}>Services</a></span>;
  if (own.length === 0) {
    return (
      <>
        <PageHead title={service} about={back} />
        {isComplete ? (
          <Empty title={`No instance of ${service} is running`}>It may have ended, or you may not call it. This page updates when an instance starts.</Empty>
        ) : (
          <p class="loading" role="status">Loading …</p>
        )}
      </>
    );
  }
  const health = healthOf(own, watched);
  const version = versionsOf(own);
  return (
    <>
      <PageHead
        title={<>{service} <span class={`status ${health.kind}`} title={health.why}>{health.word}</span></>}
        about={<>{back}{version && ` · version ${version}`}</>}
      >
        {own.some(({ verbs }) => verbs.includes("job.list")) && <a class="button" href={href("jobs", [], { service })}>Jobs</a>}
      </PageHead>
      {differ(own) && (
        <p class="note warn">Instances have different contracts, and a call may reach any of them. This is expected during an update.</p>
      )}
      <Figures instances={own} watched={watched} />
      <Verbs service={service} contract={contract} watched={watched} />
      <Instances instances={own} watched={watched} />
      {own.some(({ verbs }) => verbs.includes("engine.status")) && <Engines service={service} instances={own} />}
    </>
  );
}

function Figures({ instances, watched }: { instances: readonly Instance[]; watched: Watched | undefined }) {
  const total = watched?.last ? totalOf(watched.last.replies.values()) : null;
  const history = watched?.history ?? [];
  const times = history.map(({ at }) => at);
  const busy = instances.reduce((sum, one) => sum + one.busy, 0);
  const waiting = instances.reduce((sum, one) => sum + one.waiting, 0);
  return (
    <>
      <dl class="tiles">
        <Tile name="Instances" value={count(instances.length)} />
        <Tile name="Rate" value={rate(watched?.rates?.requests)} small={total ? `${count(total.requests)} since the start` : ""} />
        <Tile name="Errors" value={total && total.requests > 0 ? percent(total.errors / total.requests) : "–"} small={total ? `${count(total.errors)} since the start` : ""} />
        <Tile name="p50" value={duration(total && quantile(total, 0.5))} small="median latency" />
        <Tile name="p99" value={duration(total && quantile(total, 0.99))} small="99th percentile" />
        <Tile name="Busy" value={count(busy)} small={`${count(waiting)} waiting`} />
      </dl>
      <div class="grid">
        <Chart
          title="Requests per second"
          times={times}
          series={[
            { label: "requests", colour: "--chart-1", values: history.map((one) => one.requests) },
            { label: "errors", colour: "--bad", values: history.map((one) => one.errors) },
          ]}
        />
        <Chart
          title="Latency"
          times={times}
          format={duration}
          series={[
            { label: "p50", colour: "--chart-2", values: history.map((one) => one.p50) },
            { label: "p99", colour: "--chart-3", values: history.map((one) => one.p99) },
          ]}
        />
      </div>
    </>
  );
}

function Tile({ name, value, small = "" }: { name: string; value: string; small?: string }) {
  return (
    <div class="tile">
      <dt>{name}</dt>
      <dd>{value}{small && <small>{small}</small>}</dd>
    </div>
  );
}

interface VerbRow {
  verb: Verb;
  tally: Tally | undefined;
}

function Verbs({ service, contract, watched }: { service: string; contract: ReturnType<typeof useContract>; watched: Watched | undefined }) {
  const [isAll, showAll] = useState(false);
  const tallies = watched?.last ? byVerb(watched.last.replies.values()) : new Map<string, Tally>();
  const columns: Column<VerbRow>[] = [
    {
      key: "verb",
      title: "Verb",
      value: ({ verb }) => verb.verb,
      render: ({ verb }) => (
        <>
          <a class="mono" href={href("services", [service, verb.verb])}>{verb.verb}</a> <Badges verb={verb} />
        </>
      ),
    },
    { key: "about", title: "Description", value: ({ verb }) => readDocstring(verb.description).summary, sortable: false, secondary: true },
    { key: "requests", title: "Requests", value: ({ tally }) => tally?.requests ?? 0, numeric: true },
    { key: "errors", title: "Errors", value: ({ tally }) => tally?.errors ?? 0, numeric: true },
    { key: "mean", title: "Mean", value: ({ tally }) => mean(tally), render: ({ tally }) => duration(mean(tally)), numeric: true, secondary: true },
    { key: "p50", title: "p50", value: ({ tally }) => tally && quantile(tally, 0.5), render: ({ tally }) => duration(tally && quantile(tally, 0.5)), numeric: true, secondary: true },
    { key: "p99", title: "p99", value: ({ tally }) => tally && quantile(tally, 0.99), render: ({ tally }) => duration(tally && quantile(tally, 0.99)), numeric: true },
  ];
  return (
    <section class="section">
      <h2>Verbs</h2>
      <Loaded polled={contract}>
        {(known: Contract) => {
          const rows = known.verbs.filter(({ verb }) => isAll || !isBuiltIn(verb)).map((verb) => ({ verb, tally: tallies.get(verb.verb) }));
          return (
            <>
              <Table
                label="Verbs"
                rows={rows}
                columns={columns}
                rowKey={({ verb }) => verb.verb}
                filter="Filter verbs"
                empty="This service has no verbs of its own."
                tools={
                  <label class="check">
                    <input type="checkbox" checked={isAll} onChange={() => showAll(!isAll)} /> include built-in verbs
                  </label>
                }
              />
              <Listens contract={known} watched={watched} />
            </>
          );
        }}
      </Loaded>
    </section>
  );
}

export function Badges({ verb }: { verb: Verb }) {
  return (
    <>
      {verb.job && <span class="pill accent">job</span>}
      {verb.stream && <span class="pill accent">stream</span>}
      {verb.idempotent && <span class="pill" title="Calling it twice has the same effect as calling it once">idempotent</span>}
      {verb.deprecated && <span class="pill warn">deprecated</span>}
      {verb.allowed === false && <span class="pill bad" title="The service does not let you call this verb">not allowed</span>}
    </>
  );
}

function mean(tally: Tally | undefined): number | null {
  return tally && tally.requests > 0 ? tally.seconds / tally.requests : null;
}

type Listener = NonNullable<Statistics["listens"]>[number];

function Listens({ contract, watched }: { contract: Contract; watched: Watched | undefined }) {
  const listens = contract.listens ?? [];
  if (listens.length === 0) return null;
  const told = watched?.last ? [...watched.last.replies.values()].flatMap((one) => one.listens ?? []) : [];
  const sumOf = (destination: string, handler: string, what: "messages" | "errors" | "unreadable" | "given_up" | "waiting"): number =>
    told.filter((one: Listener) => one.destination === destination && one.handler === handler).reduce((sum, one) => sum + one[what], 0);
  const number = (title: string, what: Parameters<typeof sumOf>[2], about?: string): Column<(typeof listens)[number]> => ({
    key: what,
    title,
    value: ({ destination, handler }) => sumOf(destination, handler, what),
    numeric: true,
    ...(about ? { about } : {}),
  });
  return (
    <>
      <h3>Subscriptions</h3>
      <Table
        label="Subscriptions"
        rows={listens}
        rowKey={({ destination, handler }) => `${destination} ${handler}`}
        columns={[
          { key: "destination", title: "Destination", value: ({ destination }) => destination, render: ({ destination }) => <code>{destination}</code> },
          { key: "handler", title: "Handler", value: ({ handler }) => handler, secondary: true },
          number("Messages", "messages"),
          number("Errors", "errors"),
          { ...number("Unreadable", "unreadable", "Messages whose body does not fit"), secondary: true },
          { ...number("Given up", "given_up", "Messages that failed too often"), secondary: true },
          number("Waiting", "waiting"),
        ]}
      />
    </>
  );
}

function Instances({ instances, watched }: { instances: readonly Instance[]; watched: Watched | undefined }) {
  const isDifferent = differ(instances);
  const common = mostCommon(instances.map(({ schemas }) => schemas));
  const columns: Column<Instance>[] = [
    { key: "name", title: "Instance", value: ({ name }) => name, render: ({ name }) => <code>{name}</code> },
    {
      key: "state",
      title: "State",
      value: (one) => stateOf(one, watched),
      render: (one) => <span class={`status ${stateOf(one, watched) === "not responding" ? "bad" : "ok"}`}>{stateOf(one, watched)}</span>,
    },
    { key: "version", title: "Version", value: ({ version }) => version || null },
    {
      key: "contract",
      title: "Contract",
      value: ({ schemas }) => schemas || null,
      render: ({ schemas }) => (
        <>
          <code>{schemas.slice(0, 8) || "–"}</code> {isDifferent && schemas !== common && <span class="pill warn">differs</span>}
        </>
      ),
      secondary: true,
      about: "A hash of its verbs with their parameters and results",
    },
    { key: "verbs", title: "Verbs", value: ({ verbs }) => verbs.filter((verb) => !isBuiltIn(verb)).length, numeric: true, secondary: true },
    { key: "busy", title: "Busy", value: ({ busy }) => busy, numeric: true },
    { key: "waiting", title: "Waiting", value: ({ waiting }) => waiting, numeric: true },
    { key: "requests", title: "Requests", value: (one) => totalsOf(one, watched)?.requests, numeric: true, secondary: true },
    { key: "errors", title: "Errors", value: (one) => totalsOf(one, watched)?.errors, numeric: true, secondary: true },
    { key: "up", title: "Up", value: ({ started_at }) => -started_at, render: ({ started_at }) => duration(Math.max(0, Date.now() / 1000 - started_at)), numeric: true, secondary: true },
  ];
  return (
    <section class="section">
      <h2>Instances</h2>
      <Table label="Instances" rows={instances} columns={columns} rowKey={({ name }) => name} />
    </section>
  );
}

function stateOf(one: Instance, watched: Watched | undefined): string {
  if (!watched?.last) return "running";
  return watched.silent.includes(one.name) ? "not responding" : "ok";
}

function totalsOf(one: Instance, watched: Watched | undefined): Tally | null {
  const reply = watched?.last?.replies.get(one.name);
  return reply ? totalOf([reply]) : null;
}

function mostCommon(words: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one)[0]?.[0] ?? "";
}
