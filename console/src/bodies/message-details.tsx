// One message: its headers and its body.

import { useMemo } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { BodyView } from "./body-view";
import { HeadersTable } from "./headers-table";
import type { MessageView } from "../broker";
import { bodyOf } from "./reading";

export function MessageDetails({ view, children }: { view: MessageView; children?: ComponentChildren }) {
  const body = useMemo(() => bodyOf(view), [view]);
  return (
    <div class="message-details">
      <section>
        <h3>Body</h3>
        <BodyView body={body} />
        {children}
      </section>
      <section>
        <h3>Headers</h3>
        <HeadersTable headers={view.headers} />
      </section>
    </div>
  );
}
