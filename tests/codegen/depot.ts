// The verbs of the service "depot", for web pages and Node.
// Written by `nebula stubs depot --typescript` from its own description.
// Do not edit it: write it anew.

import type { CallOptions, Job, Nebula, StreamOptions } from "@nebula-rpc/client";

/** Parameters of "cost". */
export interface CostParameters {
  item: string;
}

/** Parameters of "count". */
export interface CountParameters {
  /** @defaultValue `2` */
  items?: number;
}

/** Parameters of "echo". */
export interface EchoParameters {
  /** @format base64url */
  data: string;
  /** @defaultValue `[]` */
  chunks?: string[];
}

export interface Options {
  fast: boolean;
  note?: string;
}

/** Parameters of "list". */
export interface ListParameters {
  options: Options;
  /** @format uuid */
  ident: string;
}

export interface Card {
  /** @defaultValue `"card"` */
  kind?: "card";
  number: string;
}

export interface Cash {
  /** @defaultValue `"cash"` */
  kind?: "cash";
  /** @defaultValue `0` */
  coins?: number;
}

export type Mixed = 7 | "seven";
export const Mixed = {
  NUMBER: 7,
  WORD: "seven",
} as const;

/** Parameters of "pay". */
export interface PayParameters {
  payment: (Card & { kind: "card" }) | (Cash & { kind: "cash" });
  /** @defaultValue `"seven"` */
  then?: Mixed;
}

export interface CardReply {
  kind: "card";
  number: string;
}

export interface CashReply {
  kind: "cash";
  coins: number;
}

/**
 * The things to bring.
 *
 * A text with \ and """ in it.
 */
export interface Order {
  /** Its "name". */
  symbol: string;
  /** @defaultValue `"buy"` */
  side?: Side;
  /** @defaultValue `1` */
  level?: Level;
  /**
   * @format decimal
   * @defaultValue `"1.50"`
   */
  price?: number | string;
  /** @defaultValue `1.0` */
  weight?: number;
  /** @defaultValue `null` */
  when?: string | null;
  /**
   * @format date
   * @defaultValue `"2026-11-21"`
   */
  day?: string;
  /**
   * @format time
   * @defaultValue `"12:30:00"`
   */
  hour?: string;
  /**
   * @format duration
   * @defaultValue `"PT3S"`
   */
  patience?: string;
  /**
   * @format base64url
   * @defaultValue `"_w=="`
   */
  photo?: string;
  payment: (Card & { kind: "card" }) | (Cash & { kind: "cash" });
  points?: Point[];
  /** @defaultValue `{"fast": true}` */
  options?: Options;
  /** @defaultValue `[1, "a"]` */
  pair?: [number, string];
  /**
   * @format uuid
   * @defaultValue `"00000000-0000-0000-0000-000000000001"`
   */
  ident?: string;
  /** @defaultValue `{}` */
  labels?: Record<string, number[]>;
  /** @defaultValue `[1]` */
  marks?: number[];
  /** @defaultValue `{"x": 1, "y": 0, "tags": [], "digest": "_wA="}` */
  place?: Point;
  /** @defaultValue `[]` */
  parts?: Order[];
  /** @defaultValue `null` */
  anything?: unknown;
  /** @defaultValue `"x"` */
  class?: string;
  /** @defaultValue `null` */
  date?: string | null;
  /** @defaultValue `1` */
  copies?: number;
  /**
   * @defaultValue `null`
   * @deprecated use `copies`
   */
  old?: number | null;
}

/** Buy or sell. */
export type Side = "buy" | "sell";
export const Side = {
  BUY: "buy",
  SELL: "sell",
} as const;

export type Level = 1 | 2;
export const Level = {
  LOW: 1,
  HIGH: 2,
} as const;

/** A place on the floor. */
export interface Point {
  x: number;
  /** @defaultValue `0` */
  y?: number;
  tags?: string[];
  /**
   * @format base64url
   * @defaultValue `"_wA="`
   */
  digest?: string;
}

export interface Receipt {
  order: OrderReply;
  /** @format decimal */
  total: string;
  /** @format decimal */
  tax: string;
}

/**
 * The things to bring.
 *
 * A text with \ and """ in it.
 */
export interface OrderReply {
  /** Its "name". */
  symbol: string;
  side: Side;
  level: Level;
  /** @format decimal */
  price: string;
  weight: number;
  when: string | null;
  /** @format date */
  day: string;
  /** @format time */
  hour: string;
  /** @format duration */
  patience: string;
  /** @format base64url */
  photo: string;
  payment: CardReply | CashReply;
  points: PointReply[];
  options: Options;
  pair: [number, string];
  /** @format uuid */
  ident: string;
  labels: Record<string, number[]>;
  marks: number[];
  place: PointReply;
  parts: OrderReply[];
  anything: unknown;
  class: string;
  date: string | null;
  copies: number;
  /** @deprecated use `copies` */
  old: number | null;
}

/** A place on the floor. */
export interface PointReply {
  x: number;
  y: number;
  tags: string[];
  /** @format base64url */
  digest: string;
}

/** Parameters of "price". */
export interface PriceParameters {
  item: string;
  /** @defaultValue `1` */
  qty?: number;
  /** @defaultValue `"buy"` */
  side?: Side;
  /** @defaultValue `null` */
  limit?: number | string | null;
  /**
   * @format date
   * @defaultValue `"2026-11-21"`
   */
  day?: string;
  /** @defaultValue `[]` */
  tags?: string[];
  /**
   * @defaultValue `null`
   * @deprecated all are grey
   */
  colour?: string | null;
}

/** Points by name. */
export type Scores = Record<string, number>;

/** Parameters of "stock". */
export interface StockParameters {
  /** @defaultValue `2` */
  items?: number;
}

/** Parameters of "ticks". */
export interface TicksParameters {
  start: Point;
  /** @defaultValue `3` */
  count?: number;
}

/** Codes of the errors that the verbs declare, as in `error.code`. */
export const ErrorCode = {
  /** There are not so many left. */
  OutOfStock: "out-of-stock",
  /** ghosts-only */
  GhostsOnly: "ghosts-only",
} as const;

/** Calls to the service "depot". */
export class Depot {
  readonly #nebula: Pick<Nebula, "call" | "start" | "stream">;

  constructor(nebula: Pick<Nebula, "call" | "start" | "stream">) {
    this.#nebula = nebula;
  }

  /** Nothing to report. */
  close(options?: CallOptions): Promise<void> {
    return this.#nebula.call("depot", "close", undefined, options);
  }

  /**
   * What it costs.
   *
   * @deprecated ask `price` instead
   */
  cost(parameters: CostParameters, options?: CallOptions): Promise<number> {
    return this.#nebula.call("depot", "cost", parameters, options);
  }

  /**
   * Count.
   *
   * @deprecated take `stock`
   */
  count(parameters?: CountParameters, options?: CallOptions): Promise<Job<number>> {
    return this.#nebula.start("depot", "count", parameters, options);
  }

  echo(parameters: EchoParameters, options?: CallOptions): Promise<string> {
    return this.#nebula.call("depot", "echo", parameters, options);
  }

  list(parameters: ListParameters, options?: CallOptions): Promise<[Options, string]> {
    return this.#nebula.call("depot", "list", parameters, options);
  }

  pay(parameters: PayParameters, options?: CallOptions): Promise<CardReply | CashReply | null> {
    return this.#nebula.call("depot", "pay", parameters, options);
  }

  /** Take an order. */
  place(parameters: Order, options?: CallOptions): Promise<Receipt> {
    return this.#nebula.call("depot", "place", parameters, options);
  }

  /**
   * Price of `qty` pieces.
   *
   * The day's.
   *
   * @throws NebulaError "out-of-stock": There are not so many left.
   * @throws NebulaError "ghosts-only"
   */
  price(parameters: PriceParameters, options?: CallOptions): Promise<string> {
    return this.#nebula.call("depot", "price", parameters, options);
  }

  price_list(parameters: Point[], options?: CallOptions): Promise<PointReply[]> {
    return this.#nebula.call("depot", "price.list", parameters, options);
  }

  scores(parameters: Scores, options?: CallOptions): Promise<Record<string, number>> {
    return this.#nebula.call("depot", "scores", parameters, options);
  }

  /** Take stock. */
  stock(
    parameters?: StockParameters,
    options?: CallOptions,
  ): Promise<Job<Record<string, number>[]>> {
    return this.#nebula.start("depot", "stock", parameters, options);
  }

  /** Points in a row. */
  ticks(
    parameters: TicksParameters,
    options?: StreamOptions,
  ): AsyncGenerator<PointReply, void, void> {
    return this.#nebula.stream("depot", "ticks", parameters, options);
  }
}
