import { useComputed, useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import type { BrokerStatus } from "../broker";
import { href } from "../router";
import { session } from "../session";
import { alarmsOf, type Alarm } from "../overview/alarms";
import { history, historyFailure, lately, latestStatus, rates, WINDOW_SECONDS } from "../overview/history";
import { Chart } from "../widgets/chart";
import { bytes, count, duration, percent, rate, short } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { PageHead } from "../widgets/states";

// How long an event counts as news.
const NEWS_SECONDS = 300;

export default function OverviewPage() {
  const seconds = useSignal(WINDOW_SECONDS);
  const status = latestStatus.value;
  const samples = history.value;
  const shown = useMemo(
    () => lately(samples, seconds.value, samples.at(-1)?.at ?? 0),
    [samples, seconds.value],
  );
  const queues = usePolled(
    async () =>
      session.may("queues.list")
        ? (await session.broker.queues_list({ order: "depth", limit: 100 })).rows
        : [],
    10,
  );
  const before = useEarlier(status);
  const alarms = status === null ? [] : alarmsOf(status, before, queues.data ?? []);
  const times = useMemo(() => shown.map(({ at }) => at), [shown]);
  const perSecond = (total: Parameters<typeof rates>[1]) => rates(shown, total);
  const last = <T,>(values: readonly T[]) => values.at(-1) ?? null;
  const received = useMemo(() => perSecond("received"), [shown]);
  const sent = useMemo(() => perSecond("sent_frames"), [shown]);
  const read = useMemo(() => perSecond("read_bytes"), [shown]);
  const written = useMemo(() => perSecond("written_bytes"), [shown]);

  if (status === null) {
    return (
      <>
        <PageHead title="Overview" />
        <p class="loading" role="status">
          {historyFailure.value ?? "Loading …"}
        </p>
      </>
    );
  }
  return (
    <>
      <PageHead title="Overview" about={`Nebula ${status.version}, up for ${duration(status.uptime_seconds)}`}>
        <fieldset class="segments">
          <legend class="hidden">Time shown</legend>
          {[
            { length: 300, title: "5 minutes" },
            { length: WINDOW_SECONDS, title: "1 hour" },
          ].map(({ length, title }) => (
            <label key={length}>
              <input
                type="radio"
                name="window"
                checked={seconds.value === length}
                onChange={() => (seconds.value = length)}
              />
              <span>{title}</span>
            </label>
          ))}
        </fieldset>
      </PageHead>
      <Alarms alarms={alarms} />
      <Tiles status={status} received={last(received)} sent={last(sent)} />
      <div class="grid">
        <Chart
          title="Messages per second"
          times={times}
          format={rate}
          series={[
            { label: "in", colour: "--chart-1", values: received },
            { label: "out", colour: "--chart-2", values: sent },
          ]}
        />
        <Chart
          title="Backlog of queues"
          times={times}
          series={[
            { label: "messages", colour: "--chart-1", values: shown.map(({ messages }) => messages) },
            { label: "un-ACKed", colour: "--chart-3", values: shown.map(({ unacked }) => unacked) },
            { label: "dead", colour: "--chart-4", values: shown.map(({ dead_letters }) => dead_letters) },
          ]}
        />
        <Chart
          title="Network"
          times={times}
          binary
          format={(value) => `${bytes(value)}/s`}
          series={[
            { label: "read", colour: "--chart-1", values: read },
            { label: "written", colour: "--chart-2", values: written },
          ]}
        />
        <Chart
          title="Connections"
          times={times}
          series={[{ label: "connections", colour: "--chart-5", values: shown.map((each) => each.connections) }]}
        />
        <Chart
          title="Memory"
          times={times}
          format={bytes}
          binary
          series={[{ label: "messages", colour: "--chart-5", values: shown.map((each) => each.memory_bytes) }]}
        />
        <Chart
          title="Disk"
          times={times}
          format={bytes}
          binary
          series={[{ label: "messages", colour: "--chart-3", values: shown.map((each) => each.disk_bytes) }]}
        />
      </div>
    </>
  );
}

function Tiles({ status, received, sent }: { status: BrokerStatus; received: number | null; sent: number | null }) {
  const queues = status.kinds["queue"];
  const services = useComputed(() => session.isOpen.value);
  return (
    <dl class="tiles" aria-busy={!services.value}>
      <Tile title="Messages in" value={rate(received)} more={`${short(status.received)} since the start`} />
      <Tile title="Messages out" value={rate(sent)} more={`${short(status.sent_frames)} frames`} />
      <Tile
        title="Backlog"
        value={count(queues?.messages)}
        more={`in ${count(queues?.destinations)} queues`}
        to={href("queues")}
      />
      <Tile
        title="Connections"
        value={count(status.connections)}
        more={`of ${count(status.max_connections)}; ${count(status.principals)} principals`}
        to={href("connections")}
      />
      <Tile
        title="Memory"
        value={bytes(status.memory_bytes)}
        more={`${percent(status.memory_bytes / status.max_memory_bytes)} of ${bytes(status.max_memory_bytes)}`}
      />
      <Tile title="Dead letters" value={count(status.dead_letters)} to={href("dead-letters")} more="waiting" />
    </dl>
  );
}

function Tile({ title, value, more, to }: { title: string; value: string; more: string; to?: string }) {
  return (
    <div class="tile">
      <dt>{to === undefined ? title : <a href={to}>{title}</a>}</dt>
      <dd>
        {value}
        <small>{more}</small>
      </dd>
    </div>
  );
}

function Alarms({ alarms }: { alarms: readonly Alarm[] }) {
  if (alarms.length === 0) {
    return (
      <p class="note calm">
        <span>
          <strong>No alarms.</strong> The broker has room, and every queue with messages has a consumer.
        </span>
      </p>
    );
  }
  return (
    <section class="alarms" aria-label="Alarms">
      {alarms.map(({ key, level, title, cure, link }) => (
        <div key={key} class={level === "bad" ? "note failed" : "note warn"}>
          <div>
            <strong>{title}</strong>
            <div class="cure">{cure}</div>
          </div>
          {link !== undefined && (
            <a class="button" href={link.to}>
              {link.text}
            </a>
          )}
        </div>
      ))}
    </section>
  );
}

/** A status of some minutes ago, or the first one; none of before a restart. */
function useEarlier(status: BrokerStatus | null): BrokerStatus | null {
  const seen = useRef<BrokerStatus[]>([]);
  return useMemo(() => {
    if (status === null) return null;
    const last = seen.current.at(-1);
    if (last !== undefined && status.uptime_seconds < last.uptime_seconds) seen.current = [];
    seen.current.push(status);
    while (seen.current.length > 1 && status.uptime_seconds - seen.current[0]!.uptime_seconds > NEWS_SECONDS) {
      seen.current.shift();
    }
    return seen.current[0] ?? null;
  }, [status]);
}
