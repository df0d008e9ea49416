// Headers of a message as a table.

import { time } from "../widgets/format";

export function HeadersTable({ headers, caption = "Headers" }: { headers: Record<string, string>; caption?: string }) {
  const entries = Object.entries(headers);
  if (entries.length === 0) return <p class="muted">No headers.</p>;
  return (
    <div class="headers-table" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          {entries.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                {value}
                <Meaning name={name} value={value} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// Their values are milliseconds since 1970.
const TIMES = new Set(["expires", "deliver-at", "dead-letter-at", "dead-letter-expires", "timestamp"]);

function Meaning({ name, value }: { name: string; value: string }) {
  if (!TIMES.has(name) || !/^\d{10,15}$/.test(value)) return null;
  return <span class="header-meaning"> {time(Number(value) / 1000)}</span>;
}
