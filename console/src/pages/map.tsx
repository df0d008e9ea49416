import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  FlowReader,
  NODE_HEIGHT,
  nodeWidth,
  path,
  picture,
  thickness,
  type Edge,
  type Node,
  type Picture,
  type Rated,
} from "../map/graph";
import { href } from "../router";
import { session } from "../session";
import { count, rate, shortId } from "../widgets/format";
import { Principal } from "../widgets/principal";
import { usePolled } from "../widgets/poll";
import { Empty, Loaded, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";

export default function MapPage() {
  return (
    <>
      <PageHead title="Map" about="Senders, destinations and receivers" />
      {session.may("flows.list") ? (
        <Flows />
      ) : (
        <Empty title="This broker does not count messages by sender">
          To turn it on, set <code>count_flows = true</code> in the broker's settings, or{" "}
          <code>NEBULA_SERVER_COUNT_FLOWS=true</code>, and restart it. If it is on, you lack the right to call{" "}
          <code>flows.list</code>.
        </Empty>
      )}
    </>
  );
}

const OWN = /^(\/topic\/|X\/)nebula\./;

function Flows() {
  const reader = useRef(new FlowReader());
  const polled = usePolled(async () => {
    const flows = await session.broker.flows_list({ limit: 300 });
    // How services announce themselves and take back calls is of no interest here.
    const others = flows.filter(({ destination }) => !OWN.test(destination));
    return reader.current.read(others, performance.now() / 1000);
  }, 2);
  return (
    <Loaded polled={polled}>
      {(flows) =>
        flows.length === 0 ? (
          <Empty title="Nothing has been sent yet">Destinations and their senders appear here with the first message.</Empty>
        ) : (
          <>
            <Graph flows={flows} />
            <Table
              label="Flows"
              rows={flows}
              columns={COLUMNS}
              rowKey={({ sender, destination }) => `${sender}\n${destination}`}
              initialSort={{ key: "rate", descending: true }}
              filter="Sender, destination or receiver"
              pageSize={25}
            />
          </>
        )
      }
    </Loaded>
  );
}

const COLUMNS: Column<Rated>[] = [
  { key: "sender", title: "Sender", value: (row) => row.sender, render: (row) => <Principal name={row.sender} /> },
  {
    key: "destination",
    title: "Destination",
    value: (row) => row.destination,
    render: (row) =>
      row.destination.startsWith("/queue/") ? (
        <a href={href("queues", [row.destination])}>{row.destination}</a>
      ) : (
        row.destination
      ),
  },
  { key: "receivers", title: "Receivers", value: (row) => row.receivers.map(shortId).join(", ") || null, secondary: true },
  { key: "rate", title: "Rate", value: (row) => row.rate, render: (row) => rate(row.rate), numeric: true },
  { key: "messages", title: "Messages", value: (row) => row.messages, render: (row) => count(row.messages), numeric: true, secondary: true },
];

const NARROW = 720;
const HEADS = ["Senders", "Destinations", "Receivers"];

function Graph({ flows }: { flows: readonly Rated[] }) {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(NARROW);
  const chosen = useSignal<string | null>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const sized = new ResizeObserver(() => setWidth(Math.max(NARROW, Math.floor(element.clientWidth))));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);
  const drawn = useMemo(() => picture(flows, width), [flows, width]);
  const near = neighbours(drawn, chosen.value);
  const choose = (key: string | null) => (chosen.value = chosen.value === key ? null : key);
  return (
    <figure class="card map" aria-label="Graph of senders, destinations and receivers">
      <div class="map-scroll" ref={place} tabIndex={0} role="region" aria-label="Graph">
        <svg width={width} height={drawn.height} viewBox={`0 0 ${width} ${drawn.height}`}>
          {HEADS.map((head, column) => (
            <text key={head} class="map-head" x={(column * (width - nodeWidth(width))) / 2} y="14">
              {head}
            </text>
          ))}
          <g>
            {drawn.edges.map((edge) => (
              <Line key={`${edge.from} ${edge.to}`} edge={edge} drawn={drawn} isFaint={!near(edge.from, edge.to)} />
            ))}
          </g>
          {drawn.nodes.map((node) => (
            <Box
              key={node.key}
              node={node}
              width={nodeWidth(width)}
              isChosen={chosen.value === node.key}
              isFaint={!near(node.key)}
              onChoose={() => choose(node.key)}
            />
          ))}
        </svg>
      </div>
      {drawn.left > 0 && (
        <figcaption class="muted">{count(drawn.left)} more have no place here; the table has them.</figcaption>
      )}
    </figure>
  );
}

function Line({ edge, drawn, isFaint }: { edge: Edge; drawn: Picture; isFaint: boolean }) {
  const from = drawn.nodes.find(({ key }) => key === edge.from);
  const to = drawn.nodes.find(({ key }) => key === edge.to);
  if (from === undefined || to === undefined) return null;
  const isBusy = edge.rate !== null && edge.rate > 0;
  return (
    <path
      class={`map-line ${isBusy ? "busy" : ""} ${isFaint ? "faint" : ""}`}
      d={path(from, to, drawn.width)}
      stroke-width={thickness(edge.rate)}
    >
      <title>{`${from.name} → ${to.name}: ${rate(edge.rate)}`}</title>
    </path>
  );
}

/** A name without its middle: what it begins with says what it is, its end which one. */
function elided(name: string, characters: number): string {
  const head = Math.floor((characters - 1) / 2);
  return `${name.slice(0, head)}…${name.slice(1 + head - characters)}`;
}

function Box(props: { node: Node; width: number; isChosen: boolean; isFaint: boolean; onChoose: () => void }) {
  const { node, width, isChosen, isFaint, onChoose } = props;
  const characters = Math.max(8, Math.floor((width - 76) / 7.2));
  const name = shortId(node.name);
  const short = name.length > characters ? elided(name, characters) : name;
  return (
    <g
      class={`map-node ${node.column} ${isChosen ? "chosen" : ""} ${isFaint ? "faint" : ""}`}
      transform={`translate(${node.x} ${node.y})`}
      role="button"
      // Of SVG the attribute is all in lower case.
      tabindex={0}
      aria-pressed={isChosen}
      onClick={onChoose}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        onChoose();
      }}
    >
      <title>{`${node.column} ${node.name}`}</title>
      <rect width={width} height={NODE_HEIGHT} rx="7" />
      <text x="11" y={NODE_HEIGHT / 2 + 4}>
        {short}
      </text>
      <text class="map-rate" x={width - 11} y={NODE_HEIGHT / 2 + 4} text-anchor="end">
        {rate(node.rate)}
      </text>
    </g>
  );
}

/** Whether a node or line has to do with the chosen node; everything has where none is chosen. */
function neighbours({ edges }: Picture, chosen: string | null): (...keys: string[]) => boolean {
  if (chosen === null) return () => true;
  // Along the lines, forwards and backwards.
  const reached = new Set([chosen]);
  const spread = (begin: string, from: "from" | "to", to: "from" | "to") => {
    for (const edge of edges) {
      if (edge[from] === begin && !reached.has(edge[to])) {
        reached.add(edge[to]);
        spread(edge[to], from, to);
      }
    }
  };
  spread(chosen, "from", "to");
  spread(chosen, "to", "from");
  return (...keys) => keys.every((key) => reached.has(key));
}
