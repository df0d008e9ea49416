// Names of principals, which may be fingerprints of certificates.

import { shortId } from "./format";

/** A principal; a long one is shortened, and whole in its tooltip. */
export function Principal({ name }: { name: string }) {
  return (
    <span class="nowrap" title={name}>
      {shortId(name)}
    </span>
  );
}
