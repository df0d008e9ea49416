// Schemas of the broker, asked for once.

import type { NebulaService, SchemaText } from "../broker";
import { session } from "../session";
import type { Schema } from "./avro";
import type { SchemaSource } from "./reading";

type Text = SchemaText & { definition: Schema };
type Verbs = Pick<NebulaService, "schema_bound" | "schema_get" | "schema_list">;

// A schema of a fingerprint never changes; what a destination is bound to changes with a reload of the settings.
const BOUND_FOR_MS = 30_000;

export class BrokerSchemas implements SchemaSource {
  readonly #texts = new Map<string, Promise<Text>>();
  readonly #bare = new Map<string, { asked: number; found: Promise<Text | null> }>();

  constructor(readonly broker: Verbs) {}

  get(fingerprint: string): Promise<Text> {
    let found = this.#texts.get(fingerprint);
    if (found === undefined) {
      found = this.broker.schema_get({ fingerprint }) as Promise<Text>;
      this.#texts.set(fingerprint, found);
      // What failed is asked again the next time.
      found.catch(() => this.#texts.delete(fingerprint));
    }
    return found;
  }

  bare(destination: string): Promise<Text | null> {
    const known = this.#bare.get(destination);
    if (known !== undefined && Date.now() - known.asked < BOUND_FOR_MS) return known.found;
    const found = this.#findBare(destination);
    // A page that looks at thousands of destinations asks again rather than keep them all.
    if (this.#bare.size >= 1_000) this.#bare.clear();
    this.#bare.set(destination, { asked: Date.now(), found });
    return found;
  }

  async #findBare(destination: string): Promise<Text | null> {
    let bound;
    try {
      bound = await this.broker.schema_bound({ destination });
    } catch {
      // Not to be asked for by this principal, or a broker without schemas: then it is not known to be Avro.
      return null;
    }
    if (bound === null || bound.content !== "bare") return null;
    const [entry] = await this.broker.schema_list({ name: bound.name });
    return entry === undefined ? null : this.get(entry.fingerprint);
  }
}

/** Those of the broker that the page is connected to. */
export const schemas = new BrokerSchemas(session.broker);
