// The jobs of all services: read page by page, and kept up to date by their statuses.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { session, type NebulaError } from "../session";
import type { Instance } from "../services/model";
import { asNebulaError, usePolled } from "../widgets/poll";
import { hearStatuses } from "./asking";
import { hasEnded, merged, readStatus, withStatus, type JobRow, type Status } from "./model";

export interface JobQuery {
  /** Empty: all services. */
  service: string;
  /** Empty: all states. */
  states: readonly string[];
  text: string;
}

export interface Listing {
  rows: readonly JobRow[] | null;
  /** By service: why its jobs are not there. */
  errors: ReadonlyMap<string, NebulaError>;
  hasMore: boolean;
  isLoading: boolean;
  loadMore: () => void;
  refresh: () => void;
}

interface Page {
  jobs: JobRow[];
  next: string | null;
}

interface Round {
  pages: Map<string, Page>;
  errors: Map<string, NebulaError>;
}

const PAGE = 100;
const PATIENCE = 5_000;
const SECONDS = 5;

/** Which instances are asked: all that have jobs, since each lists its own. */
export function holders(instances: Iterable<Instance>, service: string): Instance[] {
  return [...instances].filter((one) => one.queue !== null && one.verbs.includes("job.list") && (service === "" || one.service === service));
}

async function readPage(one: Instance, query: JobQuery, before: string | null, signal: AbortSignal | undefined): Promise<Page> {
  const parameters = {
    limit: PAGE,
    ...(query.states.length > 0 ? { state: query.states } : {}),
    ...(query.text ? { text: query.text } : {}),
    ...(before ? { before } : {}),
  };
  return session.call<Page>(one.queue ?? "", "job.list", parameters, { timeout: PATIENCE, ...(signal ? { signal } : {}) });
}

export function useJobs(instances: readonly Instance[], query: JobQuery): Listing {
  const key = `${instances.map(({ service, name }) => `${service}.${name}`).join()} ${JSON.stringify(query)}`;
  const [older, setOlder] = useState<{ key: string; rows: JobRow[]; next: Map<string, string | null> }>({ key: "", rows: [], next: new Map() });
  const [isLoading, setLoading] = useState(false);
  const [statuses, setStatuses] = useState<ReadonlyMap<string, Status>>(new Map());
  const fresh = useRef(new Map<string, Status>());

  const polled = usePolled(
    async (signal): Promise<Round> => {
      // What is told from here on is newer than what is read.
      fresh.current.clear();
      const [pages, errors] = [new Map<string, Page>(), new Map<string, NebulaError>()];
      await Promise.all(
        instances.map(async (one) => {
          try {
            pages.set(one.queue ?? "", await readPage(one, query, null, signal));
          } catch (error) {
            errors.set(one.service, asNebulaError(error));
          }
        }),
      );
      setStatuses(new Map(fresh.current));
      return { pages, errors };
    },
    SECONDS,
    [key],
  );

  const known = useRef<ReadonlySet<string>>(new Set());
  const refresh = useRef(polled.refresh);
  refresh.current = polled.refresh;
  useEffect(() => {
    let drawing: ReturnType<typeof setTimeout> | undefined;
    let reading: ReturnType<typeof setTimeout> | undefined;
    const stop = hearStatuses(
      query.service ? `X/jobs.${query.service}.*` : "X/jobs.*.*",
      (message) => {
        const status = readStatus(message.body);
        if (status === null) return;
        fresh.current.set(status.job, status);
        drawing ??= setTimeout(() => {
          drawing = undefined;
          setStatuses(new Map(fresh.current));
        }, 200);
        // A status says nothing of verb, owner and times.
        if (!known.current.has(status.job) || hasEnded(status.state)) {
          reading ??= setTimeout(() => {
            reading = undefined;
            refresh.current();
          }, 400);
        }
      },
      { eager: false },
    );
    return () => {
      clearTimeout(drawing);
      clearTimeout(reading);
      stop();
    };
  }, [query.service]);

  const round = polled.data;
  const more = older.key === key ? older : { rows: [], next: new Map<string, string | null>() };
  const rows = useMemo(() => {
    if (round === null) return null;
    const all = merged([...[...round.pages.values()].map(({ jobs }) => jobs), more.rows]);
    const now = all.map((row) => withStatus(row, statuses.get(row.job)));
    return query.states.length === 0 ? now : now.filter(({ state }) => query.states.includes(state));
  }, [round, more.rows, statuses, query.states]);
  known.current = useMemo(() => new Set(rows?.map(({ job }) => job)), [rows]);

  const nextOf = (queue: string): string | null => more.next.get(queue) ?? (more.next.has(queue) ? null : (round?.pages.get(queue)?.next ?? null));
  const pending = instances.filter(({ queue }) => nextOf(queue ?? "") !== null);
  return {
    rows,
    errors: round?.errors ?? new Map(),
    hasMore: pending.length > 0,
    isLoading,
    refresh: polled.refresh,
    loadMore: () => {
      if (isLoading) return;
      setLoading(true);
      const next = new Map(more.next);
      void Promise.all(
        pending.map(async (one) => {
          const queue = one.queue ?? "";
          const page = await readPage(one, query, nextOf(queue), undefined).catch(() => null);
          if (page === null) return [];
          next.set(queue, page.next);
          return page.jobs;
        }),
      ).then((lists) => {
        setOlder({ key, rows: [...more.rows, ...lists.flat()], next });
        setLoading(false);
      });
    },
  };
}
