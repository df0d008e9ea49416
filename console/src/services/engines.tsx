// What runs the jobs of a service: its engines, and links to the UI of Spark.

import { session } from "../session";
import { confirm } from "../widgets/dialog";
import { bytes, count, duration } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { Loaded } from "../widgets/states";
import { attempt } from "../widgets/toast";
import type { Engine, Instance } from "./model";

export interface EngineRow extends Engine {
  instance: string;
  queue: string;
  name: string;
}

/** What runs the jobs of each instance. */
export function Engines({ service, instances }: { service: string; instances: readonly Instance[] }) {
  const asked = instances.filter(({ queue, verbs }) => queue !== null && verbs.includes("engine.status"));
  const polled = usePolled(
    async (signal) => {
      const replies = await Promise.allSettled(
        asked.map(async ({ name, queue }) => {
          const engines = await session.call<Record<string, Engine>>(queue ?? "", "engine.status", {}, { signal, timeout: 5_000 });
          return Object.entries(engines).map(([engine, status]): EngineRow => ({ ...status, instance: name, queue: queue ?? "", name: engine }));
        }),
      );
      return replies.flatMap((one) => (one.status === "fulfilled" ? one.value : []));
    },
    5,
    [service, asked.map(({ name }) => name).join()],
  );
  return (
    <section class="section">
      <h2>Engines</h2>
      <Loaded polled={polled}>
        {(engines) => (
          <div class="grid">
            {engines.map((engine) => <EngineCard key={`${engine.instance} ${engine.name}`} engine={engine} onDone={polled.refresh} isAlone={asked.length === 1} />)}
          </div>
        )}
      </Loaded>
    </section>
  );
}

const ENGINE_KINDS: Record<string, string> = { ready: "ok", starting: "warn", waiting: "warn" };

export function EngineCard({ engine, onDone, isAlone }: { engine: EngineRow; onDone: () => void; isAlone: boolean }) {
  // The service itself runs jobs without Spark; it is called so among the engines.
  const isSpark = engine.master !== undefined;
  const kind = engine.broken ? "bad" : (ENGINE_KINDS[engine.state] ?? "");
  const restart = async (): Promise<void> => {
    const isSure = await confirm({
      title: `Restart the engine ${engine.name}?`,
      body: "Its open jobs are lost, or run again if they are declared that way. Isolated jobs continue.",
      action: "Restart",
      danger: true,
    });
    if (isSure && (await attempt(() => session.call(engine.queue, "engine.restart", { engine: engine.name }), `Engine ${engine.name} is restarting`))) onDone();
  };
  const jobs = Object.entries(engine.jobs).filter(([, number]) => number > 0);
  return (
    <div class="card engine">
      <div class="engine-head">
        <h3>{isSpark ? `Spark engine ${engine.name}` : "In the service's process"}</h3>
        <span class={`status ${kind}`}>{engine.state}</span>
      </div>
      {engine.broken && <p class="note failed">{engine.broken}</p>}
      <dl class="facts">
        {!isAlone && <><dt>instance</dt><dd><code>{engine.instance}</code></dd></>}
        <dt>jobs</dt><dd>{jobs.map(([what, number]) => `${count(number)} ${what}`).join(", ") || "none"}</dd>
        {engine.spark && <><dt>Spark</dt><dd>{engine.spark} on {engine.java ?? "Java"}, {engine.master}</dd></>}
        {typeof engine.rss_bytes === "number" && <><dt>memory</dt><dd>{bytes(engine.rss_bytes)}</dd></>}
        {typeof engine.up_seconds === "number" && <><dt>up</dt><dd>{duration(engine.up_seconds)}, started {count(engine.starts)} {engine.starts === 1 ? "time" : "times"}</dd></>}
        {engine.last_end && <><dt>last end</dt><dd>{engine.last_end}</dd></>}
      </dl>
      {isSpark && (
        <div class="actions">
          {isWebAddress(engine.ui) && <a class="button" href={engine.ui} target="_blank" rel="noreferrer">Spark UI ↗</a>}
          {engine.may_restart !== false && <button type="button" onClick={() => void restart()}>Restart</button>}
        </div>
      )}
    </div>
  );
}

/** Links to Spark's own pages, once an engine of the job's instance is up and has them open. */
export function SparkPages({ via }: { via: string }) {
  const polled = usePolled((signal) => session.call<Record<string, Engine>>(via, "engine.status", {}, { signal, timeout: 5_000 }), 5, [via]);
  const open = Object.entries(polled.data ?? {}).filter(([, { ui }]) => isWebAddress(ui));
  if (open.length === 0) return null;
  return (
    <section class="card" aria-label="Spark">
      <h2>Spark</h2>
      {open.map(([name, { ui }]) => <p key={name}><a class="button" href={ui ?? ""} target="_blank" rel="noreferrer">Spark UI of engine {name} ↗</a></p>)}
      <p class="form-hint">Usually reachable only from the machine of the service.</p>
    </section>
  );
}

/** Whether this is a link that a page may show: no `javascript:` from a service. */
export function isWebAddress(text: unknown): text is string {
  return typeof text === "string" && /^https?:\/\//.test(text);
}
