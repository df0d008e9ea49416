import { JobDetail } from "../jobs/detail";
import { JobList } from "../jobs/list";
import { route } from "../router";
import "../services/services.css";
import "../jobs/jobs.css";

/** `#/jobs`, `#/jobs/reports/01J…`. */
export default function JobsPage() {
  const [service, ulid] = route.value.rest;
  if (service === undefined || ulid === undefined) return <JobList />;
  return <JobDetail key={`${service}/${ulid}`} service={service} ulid={ulid} />;
}
