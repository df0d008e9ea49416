// The subscriptions of a destination.

import type { SubscriptionRow } from "../broker";
import { href } from "../router";
import { session } from "../session";
import { Table, type Column } from "../widgets/table";

export function SubscriptionTable({
  label,
  rows,
  empty,
}: {
  label: string;
  rows: readonly SubscriptionRow[];
  empty: string;
}) {
  const columns: Column<SubscriptionRow>[] = [
    {
      key: "session",
      title: "Session",
      value: (row) => row.session,
      render: (row) =>
        session.may("connections.list") ? (
          <a class="destination-link" href={href("connections", [row.session])}>
            {row.session}
          </a>
        ) : (
          <code>{row.session}</code>
        ),
    },
    { key: "principal", title: "Principal", value: (row) => row.principal },
    { key: "destination", title: "Subscribed to", secondary: true, value: (row) => row.destination },
    { key: "ack", title: "ACK", secondary: true, value: (row) => row.ack },
    { key: "prefetch", title: "Prefetch", numeric: true, secondary: true, value: (row) => row.prefetch },
    { key: "unacked", title: "Un-ACKed", numeric: true, value: (row) => row.unacked },
  ];
  return (
    <Table
      label={label}
      rows={rows}
      columns={columns}
      rowKey={(row) => `${row.session} ${row.id}`}
      pageSize={20}
      {...(rows.length > 20 ? { filter: "Filter" } : {})}
      empty={empty}
    />
  );
}
