// What the principal may do with one destination.

import type { ComponentChildren } from "preact";
import { session } from "../session";
import { usePolled } from "../widgets/poll";

/** Whether the principal may send to a destination; null: not known yet, then it may be tried. */
export function useMayPublish(destination: string): boolean | null {
  const polled = usePolled(
    (signal) => session.broker.rights_mine({ destination }, { signal }),
    0,
    [destination],
  );
  return polled.data?.may_publish ?? null;
}

/** A button that sends to a destination; without the right it is disabled, and says why. */
export function SendButton({
  may,
  destination,
  danger = false,
  onClick,
  children,
}: {
  may: boolean | null;
  destination: string;
  danger?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}) {
  return (
    <button
      type="button"
      class={danger ? "danger" : undefined}
      disabled={may === false}
      title={may === false ? `You may not publish to ${destination}.` : undefined}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
