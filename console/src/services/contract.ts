// The contract of a service, read once for each contract that its instances have.

import { session } from "../session";
import { usePolled, type Polled } from "../widgets/poll";
import { addressOf, type Contract, type Instance } from "./model";

/** What `describe` says. It is read again when instances with another contract come. */
export function useContract(service: string, instances: readonly Instance[]): Polled<Contract> {
  const alike = [...new Set(instances.map(({ schemas }) => schemas))].sort().join();
  const isThere = instances.length > 0;
  return usePolled(
    (signal) => session.call<Contract>(addressOf(instances, service), "describe", {}, { signal, timeout: 10_000 }),
    0,
    [service, alike, isThere],
  );
}
