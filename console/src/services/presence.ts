// The instances that are there, as the broker tells it: one subscription for all pages that look.

import { effect, signal, type ReadonlySignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { session, type NebulaError } from "../session";
import { readInstance, type Instance } from "./model";

export interface Presence {
  /** By the destination of their last value. */
  instances: ReadonlyMap<string, Instance>;
  /** All that were there at first are known. */
  isComplete: boolean;
  error: NebulaError | null;
}

const NONE: Presence = { instances: new Map(), isComplete: false, error: null };
const found = signal<Presence>(NONE);
let readers = 0;
let stop = (): void => {};

/** Instances that come and go, while a component is there. */
export function usePresence(): ReadonlySignal<Presence> {
  useEffect(() => {
    readers += 1;
    if (readers === 1) stop = follow();
    return () => {
      readers -= 1;
      if (readers === 0) stop();
    };
  }, []);
  return found;
}

function follow(): () => void {
  const changed = new Map<string, Instance | null>();
  let isComplete = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  // Many at once are drawn once.
  const draw = (): void => {
    timer = undefined;
    const instances = new Map(found.value.instances);
    for (const [destination, one] of changed) {
      if (one === null) instances.delete(destination);
      else instances.set(destination, one);
    }
    changed.clear();
    found.value = { instances, isComplete, error: null };
  };
  // Another connection begins anew.
  const forget = effect(() => {
    if (session.epoch.value > 0) {
      changed.clear();
      isComplete = false;
      found.value = NONE;
    }
  });
  const leave = session.subscribe(
    "X/nebula.services.*.*",
    { ack: "client-individual", eager: "true", snapshot: "true" },
    (message) => {
      message.ack();
      const destination = message.headers.destination ?? "";
      if (message.headers.snapshot === "end") isComplete = true;
      if (destination.startsWith("X/")) changed.set(destination, message.body ? readInstance(message.body, destination) : null);
      timer ??= setTimeout(draw, 30);
    },
    (error) => (found.value = { ...NONE, isComplete: true, error }),
  );
  return () => {
    clearTimeout(timer);
    forget();
    leave();
    found.value = NONE;
  };
}
