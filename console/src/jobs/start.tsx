// A choice of the jobs that can be started: each leads to its form.

import { useMemo } from "preact/hooks";
import { readDocstring } from "../forms/docstring";
import { href } from "../router";
import { session } from "../session";
import { addressOf, byService, type Contract, type Instance } from "../services/model";
import { Dialog } from "../widgets/dialog";
import { usePolled } from "../widgets/poll";
import { Loaded } from "../widgets/states";

interface Startable {
  service: string;
  verb: string;
  about: string;
  isAllowed: boolean;
}

export function StartJob({ instances, onClose }: { instances: ReadonlyMap<string, Instance>; onClose: () => void }) {
  const services = useMemo(() => [...byService(instances.values())].filter(([, own]) => own.some(({ verbs }) => verbs.includes("job.list"))), [instances]);
  const polled = usePolled(
    async (signal): Promise<Startable[]> => {
      const contracts = await Promise.allSettled(
        services.map(([service, own]) => session.call<Contract>(addressOf(own, service), "describe", {}, { signal, timeout: 5_000 })),
      );
      return contracts.flatMap((one) =>
        one.status === "rejected"
          ? []
          : one.value.verbs.filter(({ job }) => job).map(({ verb, description, allowed }) => ({
              service: one.value.service,
              verb,
              about: readDocstring(description).summary,
              isAllowed: allowed !== false,
            })),
      );
    },
    0,
    [services.map(([name]) => name).join()],
  );
  return (
    <Dialog title="Start a job" onClose={onClose}>
      <Loaded polled={polled}>
        {(jobs) => (
          <ul class="job-choice">
            {jobs.map(({ service, verb, about, isAllowed }) => (
              <li key={`${service} ${verb}`}>
                <a href={href("services", [service, verb])} onClick={onClose}>{service} <strong>{verb}</strong></a>
                {!isAllowed && <span class="pill bad">not allowed</span>}
                {about && <p class="muted">{about}</p>}
              </li>
            ))}
            {jobs.length === 0 && <li>No running service has jobs.</li>}
          </ul>
        )}
      </Loaded>
    </Dialog>
  );
}
