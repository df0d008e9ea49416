import { route } from "../router";
import { ServiceDetail } from "../services/detail";
import { ServiceList } from "../services/list";
import { VerbPage } from "../services/verb-page";
import "../services/services.css";
import "../jobs/jobs.css";

/** `#/services`, `#/services/prices`, `#/services/prices/quote`. */
export default function ServicesPage() {
  const [service, verb] = route.value.rest;
  if (service === undefined) return <ServiceList />;
  if (verb === undefined) return <ServiceDetail key={service} service={service} />;
  return <VerbPage key={`${service}/${verb}`} service={service} verb={verb} />;
}
