// Topics, and a live view of one or of a glob.

import { useState } from "preact/hooks";
import type { TopicRow, TopicsListParameters } from "../broker";
import { go, route } from "../router";
import { session } from "../session";
import { bytes } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { Loaded, PageHead } from "../widgets/states";
import type { Column } from "../widgets/table";
import { DestinationHead, DestinationTable, listView, PublishDialog, useListed } from "./destinations";
import { isGlob } from "./globs";
import { LiveView } from "./live-view";
import { SendButton, useMayPublish } from "./permission";
import { SubscriptionTable } from "./subscriptions";

const PREFIX = "/topic/";

const view = listView();

export default function TopicsPage() {
  const [topic] = route.value.rest;
  return topic === undefined ? <Topics /> : <Topic key={topic} name={topic} />;
}

function Topics() {
  const [isPublishing, setPublishing] = useState(false);
  return (
    <>
      <PageHead title="Topics" about="Each message goes to all subscribers of that moment.">
        <button type="button" onClick={() => setPublishing(true)}>
          Publish …
        </button>
      </PageHead>
      <Watch />
      {session.may("topics.list") ? (
        <TopicTable />
      ) : (
        <p class="muted">
          The list of topics needs the right to call <code>topics.list</code>. You can watch those that you may subscribe
          to.
        </p>
      )}
      {isPublishing && <PublishDialog to={PREFIX} onClose={() => setPublishing(false)} />}
    </>
  );
}

function Watch() {
  const [glob, setGlob] = useState(PREFIX);
  const problem = watchable(glob);
  return (
    <form
      class="watch"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem === null) go("topics", [glob.trim()]);
      }}
    >
      <input
        aria-label="Topic or glob to watch"
        value={glob}
        placeholder="/topic/orders.*"
        spellcheck={false}
        onInput={(event) => setGlob(event.currentTarget.value)}
      />
      <button type="submit" class="primary" disabled={problem !== null} title={problem ?? undefined}>
        Watch live
      </button>
    </form>
  );
}

/** Why a destination cannot be watched; null: it can. To watch a queue would be to consume from it. */
export function watchable(glob: string): string | null {
  const name = glob.trim();
  if (name.startsWith(PREFIX)) return name.length > PREFIX.length ? null : "Name a topic, or a glob such as /topic/**";
  if (session.valuePrefixes.value.some((prefix) => name.startsWith(prefix))) return null;
  return "Only topics and last values can be watched: to subscribe to a queue takes its messages away.";
}

function TopicTable() {
  const listed = useListed<TopicRow>(view, (wanted, order, signal) => {
    const parameters = { ...wanted, kind: "topic", order: order as TopicsListParameters["order"] } as const;
    return session.broker.topics_list(parameters, { signal });
  });
  const columns: Column<TopicRow>[] = [
    { key: "subscribers", title: "Subscribers", numeric: true, value: (row) => row.subscribers },
    {
      key: "waiting",
      title: "Waiting",
      numeric: true,
      about: "Messages that wait for subscribers",
      value: (row) => row.waiting,
    },
    {
      key: "bytes",
      title: "Memory",
      numeric: true,
      secondary: true,
      value: (row) => row.stored_bytes,
      render: (row) => bytes(row.stored_bytes),
    },
  ];
  return (
    <DestinationTable
      listed={listed}
      page="topics"
      label="Topics"
      title="Topic"
      example="/topic/a*"
      empty="No topic has a subscriber at present."
      columns={columns}
      nameOf={(row) => row.topic}
    />
  );
}

function Topic({ name }: { name: string }) {
  const [isPublishing, setPublishing] = useState(false);
  const mayPublish = useMayPublish(name);
  const problem = watchable(name);
  return (
    <>
      <DestinationHead page="topics" back="Topics" name={name}>
        {!isGlob(name) && (
          <SendButton may={mayPublish} destination={name} onClick={() => setPublishing(true)}>
            Publish …
          </SendButton>
        )}
      </DestinationHead>
      {problem === null ? <LiveView glob={name} /> : <p class="note warn">{problem}</p>}
      {session.may("topic.show") && name.startsWith(PREFIX) && <Subscribers name={name} />}
      {isPublishing && <PublishDialog to={name} onClose={() => setPublishing(false)} />}
    </>
  );
}

function Subscribers({ name }: { name: string }) {
  const polled = usePolled(
    async (signal) => {
      try {
        return await session.broker.topic_show({ topic: name }, { signal });
      } catch (error) {
        // A topic exists while it has subscribers.
        if ((error as { code?: string }).code === "not-found") return "none";
        throw error;
      }
    },
    3,
    [name],
  );
  return (
    <section class="part">
      <h2>Subscribers</h2>
      <Loaded polled={polled}>
        {(details) => (
          <SubscriptionTable
            label="Subscribers"
            rows={details === "none" ? [] : details.subscriptions}
            empty="It has no subscribers."
          />
        )}
      </Loaded>
    </section>
  );
}
