import { useMemo, useRef } from "preact/hooks";
import type { ConnectionRow, DurableRow, SessionRow, SubscriptionRow } from "../broker";
import { Speeds } from "../connections/speeds";
import { go, href, route } from "../router";
import { session } from "../session";
import { confirm, Dialog } from "../widgets/dialog";
import { bytes, count, duration, shortId } from "../widgets/format";
import { Principal } from "../widgets/principal";
import { usePolled } from "../widgets/poll";
import { Loaded, NotAllowed, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { attempt } from "../widgets/toast";

// As many as one reply has.
const MOST = 1_000;

// The query of the other half of this page.
const DURABLE = { kind: "durable" };

export default function ConnectionsPage() {
  const [chosen] = route.value.rest;
  const isSessions = route.value.query.get("kind") === DURABLE.kind;
  const verb = isSessions ? "sessions.list" : "connections.list";
  return (
    <>
      <PageHead title="Connections" about="Who is connected, and what is kept for those who are away">
        <nav class="tabs" aria-label="Kinds">
          <a href={href("connections")} aria-current={isSessions ? undefined : "page"}>
            Connected
          </a>
          <a href={href("connections", [], DURABLE)} aria-current={isSessions ? "page" : undefined}>
            Durable sessions
          </a>
        </nav>
      </PageHead>
      {!session.may(verb) ? <NotAllowed verb={verb} /> : isSessions ? <Sessions chosen={chosen} /> : <Connections chosen={chosen} />}
    </>
  );
}

// --- connected ---

function Connections({ chosen }: { chosen: string | undefined }) {
  const speeds = useRef(new Speeds());
  const polled = usePolled(async () => {
    const found = await session.broker.connections_list({
      order: "traffic",
      limit: MOST,
    });
    speeds.current.note(found.rows, performance.now() / 1000);
    return found;
  }, 2);
  const columns = useMemo<Column<ConnectionRow>[]>(
    () => [
      {
        key: "principal",
        title: "Principal",
        value: (row) => row.principal,
        render: (row) => <Principal name={row.principal} />,
      },
      {
        key: "session",
        title: "Session",
        value: (row) => row.session,
        render: (row) => (
          <a class="nowrap" href={href("connections", [row.session])} title={row.session}>
            {shortId(row.session)}
          </a>
        ),
      },
      {
        key: "peer",
        title: "From",
        value: (row) => row.link.peer,
        render: (row) => <span class="nowrap">{row.link.peer}</span>,
        secondary: true,
      },
      {
        key: "scheme",
        title: "By",
        value: (row) => row.link.scheme,
        render: (row) => <span class="pill">{row.link.scheme}</span>,
        secondary: true,
      },
      {
        key: "since",
        title: "Since",
        value: (row) => row.link.since_seconds,
        render: (row) => duration(row.link.since_seconds),
        numeric: true,
        secondary: true,
      },
      {
        key: "read",
        title: "Sends",
        about: "Bytes per second that the broker reads from it",
        value: (row) => speeds.current.of(row.session).read,
        render: (row) => speed(speeds.current.of(row.session).read),
        numeric: true,
      },
      {
        key: "written",
        title: "Receives",
        about: "Bytes per second that the broker writes to it",
        value: (row) => speeds.current.of(row.session).written,
        render: (row) => speed(speeds.current.of(row.session).written),
        numeric: true,
      },
      { key: "subscriptions", title: "Subscribed", about: "Number of subscriptions", value: (row) => row.subscriptions, numeric: true, secondary: true },
      {
        key: "unacked",
        title: "Un-ACKed",
        about: "Messages delivered and not settled",
        value: (row) => row.unacked,
        numeric: true,
        secondary: true,
      },
      {
        key: "outbox",
        title: "Outbox",
        about: "What waits to be written to it",
        value: (row) => row.outbox_bytes,
        render: (row) => (
          <>
            {row.link.is_held_back && <span class="pill warn">held back</span>} {bytes(row.outbox_bytes)}
          </>
        ),
        numeric: true,
        secondary: true,
      },
    ],
    [],
  );
  return (
    <Loaded polled={polled}>
      {({ rows, matched }) => (
        <>
          {matched > rows.length && (
            <p class="muted">
              The {count(rows.length)} with most traffic, of {count(matched)}.
            </p>
          )}
          <Table
            label="Connections"
            rows={rows}
            columns={columns}
            rowKey={(row) => row.session}
            filter="Principal, session or address"
            empty="There are no connections."
            onSelect={(row) => go("connections", [row.session])}
          />
          {chosen !== undefined && <ConnectionDialog name={chosen} onChange={polled.refresh} />}
        </>
      )}
    </Loaded>
  );
}

function speed(value: number | null): string {
  return value === null ? "–" : `${bytes(value)}/s`;
}

function ConnectionDialog({ name, onChange }: { name: string; onChange: () => void }) {
  const close = () => go("connections");
  const polled = usePolled(() => session.broker.connection_show({ session: name }), 2, [name]);
  const disconnect = async () => {
    const isSure = await confirm({
      title: "Disconnect?",
      body: (
        <p>
          The connection <code>{name}</code> ends with an ERROR. Its durable subscriptions stay, its un-ACKed messages
          go to others, and the client may connect again.
        </p>
      ),
      action: "Disconnect",
      danger: true,
    });
    if (!isSure) return;
    if (await attempt(() => session.broker.connection_end({ session: name }), "Disconnected.")) {
      close();
      onChange();
    }
  };
  return (
    <Dialog
      title="Connection"
      wide
      onClose={close}
      actions={
        session.may("connection.end") && (
          <button type="button" class="danger" onClick={() => void disconnect()}>
            Disconnect …
          </button>
        )
      }
    >
      <Loaded polled={polled}>
        {({ summary, transactions, subscriptions }) => (
          <>
            <dl class="facts">
              <dt>Principal</dt>
              <dd>{summary.principal}</dd>
              <dt>Session</dt>
              <dd class="mono">{summary.session}</dd>
              <dt>From</dt>
              <dd>
                {summary.link.peer} by {summary.link.scheme}, STOMP {summary.link.version ?? "not begun"},{" "}
                {duration(summary.link.since_seconds)} ago
              </dd>
              <dt>Traffic</dt>
              <dd>
                {bytes(summary.link.read_bytes)} read, {bytes(summary.link.written_bytes)} written in{" "}
                {count(summary.link.sent_frames)} frames
              </dd>
              <dt>Waits for it</dt>
              <dd>
                {bytes(summary.outbox_bytes)} in its outbox, {bytes(summary.link.buffered_bytes)} in its buffers,{" "}
                {count(summary.unacked)} messages un-ACKed
                {summary.link.is_held_back && " – it is held back"}
              </dd>
              <dt>Transactions</dt>
              <dd>{count(transactions)} open</dd>
            </dl>
            <Table
              label="Subscriptions"
              rows={subscriptions}
              columns={SUBSCRIPTION_COLUMNS}
              rowKey={(row) => row.id}
              pageSize={20}
              empty="It has no subscriptions."
            />
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

const SUBSCRIPTION_COLUMNS: Column<SubscriptionRow>[] = [
  { key: "destination", title: "Destination", value: (row) => row.destination },
  { key: "ack", title: "Ack", value: (row) => row.ack },
  { key: "prefetch", title: "Prefetch", value: (row) => row.prefetch, numeric: true, secondary: true },
  { key: "unacked", title: "Un-ACKed", value: (row) => row.unacked, numeric: true },
];

// --- durable sessions ---

const SESSION_COLUMNS: Column<SessionRow>[] = [
  {
    key: "session",
    title: "Session",
    value: (row) => row.session,
    render: (row) => <a href={href("connections", [row.session], DURABLE)}>{row.session}</a>,
  },
  {
    key: "principal",
    title: "Principal",
    value: (row) => row.principal,
    render: (row) => <Principal name={row.principal} />,
    secondary: true,
  },
  {
    key: "away",
    title: "State",
    value: (row) => row.away_seconds,
    render: (row) =>
      row.away_seconds === null ? (
        <span class="pill ok">connected</span>
      ) : (
        <span class="pill warn">away for {duration(row.away_seconds)}</span>
      ),
  },
  { key: "subscriptions", title: "Subscribed", about: "Number of subscriptions", value: (row) => row.subscriptions, numeric: true, secondary: true },
  {
    key: "waiting",
    title: "Waiting",
    about: "Messages or last values that wait for it",
    value: (row) => row.waiting,
    numeric: true,
  },
  {
    key: "memory",
    title: "Memory",
    value: (row) => row.stored_bytes,
    render: (row) => bytes(row.stored_bytes),
    numeric: true,
    secondary: true,
  },
];

function Sessions({ chosen }: { chosen: string | undefined }) {
  const polled = usePolled(() => session.broker.sessions_list({ limit: MOST }), 3);
  return (
    <Loaded polled={polled}>
      {({ rows, matched }) => (
        <>
          {matched > rows.length && (
            <p class="muted">
              The first {count(rows.length)} of {count(matched)}.
            </p>
          )}
          <Table
            label="Durable sessions"
            rows={rows}
            columns={SESSION_COLUMNS}
            rowKey={(row) => row.session}
            initialSort={{ key: "waiting", descending: true }}
            filter="Session or principal"
            empty="There are no durable sessions."
            onSelect={(row) => go("connections", [row.session], DURABLE)}
          />
          {chosen !== undefined && <SessionDialog name={chosen} onChange={polled.refresh} />}
        </>
      )}
    </Loaded>
  );
}

function SessionDialog({ name, onChange }: { name: string; onChange: () => void }) {
  const close = () => go("connections", [], DURABLE);
  const polled = usePolled(() => session.broker.session_show({ session: name }), 3, [name]);
  const purge = async () => {
    const isSure = await confirm({
      title: "Drop what waits?",
      body: (
        <p>
          Everything that waits for <code>{name}</code> is dropped for good. Its subscriptions stay.
        </p>
      ),
      action: "Drop",
      danger: true,
    });
    if (!isSure) return;
    await attempt(() => session.broker.session_purge({ session: name }), "Dropped.");
    polled.refresh();
    onChange();
  };
  const end = async () => {
    const isSure = await confirm({
      title: "End the session?",
      body: (
        <p>
          The durable subscriptions of <code>{name}</code> end, with everything kept for them, and so does its
          connection.
        </p>
      ),
      action: "End session",
      danger: true,
    });
    if (!isSure) return;
    if (await attempt(() => session.broker.session_end({ session: name }), "The session has ended.")) {
      close();
      onChange();
    }
  };
  return (
    <Dialog
      title="Durable session"
      wide
      onClose={close}
      actions={
        <>
          {session.may("session.purge") && (
            <button type="button" onClick={() => void purge()}>
              Drop what waits …
            </button>
          )}
          {session.may("session.end") && (
            <button type="button" class="danger" onClick={() => void end()}>
              End session …
            </button>
          )}
        </>
      }
    >
      <Loaded polled={polled}>
        {({ summary, subscriptions }) => (
          <>
            <dl class="facts">
              <dt>Session</dt>
              <dd class="mono">{summary.session}</dd>
              <dt>Principal</dt>
              <dd>{summary.principal}</dd>
              <dt>State</dt>
              <dd>{summary.away_seconds === null ? "connected" : `away for ${duration(summary.away_seconds)}`}</dd>
              <dt>Waiting</dt>
              <dd>
                {count(summary.waiting)} messages, {bytes(summary.stored_bytes)}
              </dd>
            </dl>
            <Table
              label="Durable subscriptions"
              rows={subscriptions}
              columns={DURABLE_COLUMNS}
              rowKey={(row) => row.id}
              pageSize={20}
            />
          </>
        )}
      </Loaded>
    </Dialog>
  );
}

const DURABLE_COLUMNS: Column<DurableRow>[] = [
  { key: "destination", title: "Destination", value: (row) => row.destination },
  { key: "id", title: "Id", value: (row) => row.id, secondary: true },
  { key: "ack", title: "Ack", value: (row) => row.ack, secondary: true },
  { key: "active", title: "Active", value: (row) => row.is_active },
  { key: "waiting", title: "Waiting", value: (row) => row.waiting, numeric: true },
];
