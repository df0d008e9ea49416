// The contract of a service, read once for each contract that its instances have.

import { useRef } from "preact/hooks";
import { session } from "../session";
import { usePolled, type Polled } from "../widgets/poll";
import { addressOf, type Contract, type Instance } from "./model";

/**
 * What `describe` says. It is read again when instances with another contract come, and stays while none is there, so that
 * what was typed into a form survives a restart of the service or the broker.
 */
export function useContract(service: string, instances: readonly Instance[]): Polled<Contract> {
  const alike = [...new Set(instances.map(({ schemas }) => schemas))].sort().join();
  const isThere = instances.length > 0;
  const last = useRef<Contract | null>(null);
  const polled = usePolled(
    (signal) => session.call<Contract>(addressOf(instances, service), "describe", {}, { signal, timeout: 10_000 }),
    0,
    [service, alike, isThere],
  );
  if (polled.data !== null) last.current = polled.data;
  return { ...polled, data: last.current?.service === service ? last.current : null };
}
