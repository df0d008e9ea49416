// Client for web pages: calls, streams and jobs by The Nebulous Protocol, on top of @stomp/stompjs.
//
//   import { Nebula } from "./nebula.js";
//
//   const nebula = new Nebula("ws://localhost:61680/stomp");
//   await nebula.connect();
//   const price = await nebula.call("prices", "quote", { symbol: "ABC", qty: 2 });
//   for await (const tick of nebula.stream("prices", "ticks", { symbol: "ABC" })) show(tick);
//
// All times are milliseconds.

import { Client } from "@stomp/stompjs";

const END_STATES = new Set(["done", "failed", "cancelled", "timed_out", "lost", "expired"]);

// Statuses may be lost, with a connection or with the service that would have told them.
const ASK_AFTER = 10_000;

// Items of a stream that may be in flight or unread.
const CREDIT = 256;

// A service sends a sign of life every ten seconds; so do we while the reader is busy.
const SILENCE = 30_000;
const BEAT = 10_000;

// Where instances take credit. Any other kind of destination is ignored.
const INSTANCE = /^\/queue\/(?!nebula\.)[\w-]+\.[\w-]+$/;

/**
 * What went wrong.
 *
 * `code` is a word to branch on. Of an answer it is the service's own ("bad-parameters", "busy", ...). Else:
 * "no-responder" (no such service is running), "rejected-..." (the broker's verdict), "timeout", "aborted", "lost" (the
 * connection ended, or was never open), "refused" (the broker does not let us in, or not subscribe),
 * "unexpected-reply" (the answer is not JSON of a service), and of streams
 * "stream-broken" (items are missing: the instance that sent them is gone) and "not-a-stream" (the verb has answered
 * with one value).
 */
export class NebulaError extends Error {
  constructor(code, message, { details = null, retryable = false } = {}) {
    super(message);
    this.name = "NebulaError";
    this.code = code;
    this.details = details;
    this.retryable = retryable;
  }
}

/**
 * A connection with an inbox of its own. It connects again whenever it is lost; calls in flight fail then.
 *
 * Dispatches "connected" whenever calls can be made, and "lost" when they cannot be made any more.
 */
export class Nebula extends EventTarget {
  #stomp;
  #inbox = null;
  #timeout;
  #calls = new Map();
  #streams = new Map();
  #opening = null;

  /**
   * @param {string} url of the broker's HTTP listener: "wss://broker.example/stomp"
   * @param {object} [options]
   * @param {string} [options.login] and `passcode`, which may be a token (JWT)
   * @param {string} [options.passcode]
   * @param {number} [options.timeout] of a call that does not say how long, and of an attempt to connect
   * @param {number} [options.reconnectDelay] between two attempts to connect; 0: never again
   */
  constructor(url, { login, passcode, timeout = 30_000, reconnectDelay = 1_000 } = {}) {
    super();
    this.#timeout = timeout;
    const connectHeaders = {};
    if (login !== undefined) connectHeaders.login = login;
    if (passcode !== undefined) connectHeaders.passcode = passcode;
    this.#stomp = new Client({
      brokerURL: url,
      connectHeaders,
      reconnectDelay,
      connectionTimeout: timeout,
      onConnect: () => this.#connected(),
      // The broker closes after it; for a connection that was open, the close is reported.
      onStompError: ({ headers }) =>
        this.#opening && this.#lost("refused", headers.message ?? "the broker has refused"),
      // If it is not active, the close is our own and was reported; the next attempt may wait for it.
      onWebSocketClose: () => this.#stomp.active && this.#lost("lost", "the connection was lost"),
    });
  }

  /**
   * Connect. Rejects with "refused" or "lost" where the first attempt fails; then nothing more is tried. While it
   * connects again, this waits until it has.
   */
  connect() {
    if (this.connected) return Promise.resolve();
    if (this.#opening === null) {
      const opening = { isFirst: !this.#stomp.active };
      opening.done = new Promise((resolve, reject) => Object.assign(opening, { resolve, reject }));
      this.#opening = opening;
      this.#stomp.activate();
    }
    return this.#opening.done;
  }

  /** Disconnect for good. Calls in flight fail as "lost". */
  async close() {
    this.#lost("lost", "the client was closed", true);
    await this.#stomp.deactivate();
  }

  /** Whether calls can be made at this moment. */
  get connected() {
    return this.#inbox !== null && this.#stomp.connected;
  }

  /**
   * Ask a service, and wait for its answer.
   *
   * @param {string} service its name, or a destination ("/queue/...")
   * @param {string} verb
   * @param {unknown} [parameters] an object by name, an array by position, anything else the single one
   * @param {object} [options]
   * @param {number} [options.timeout]
   * @param {AbortSignal} [options.signal] takes the call back: the service is told
   * @param {Record<string, string>} [options.headers] of the request besides its own: "neb-job-priority", ...
   * @returns {Promise<unknown>} the verb's value; null where there is nothing to report
   * @throws {NebulaError}
   */
  call(service, verb, parameters, { timeout = this.#timeout, signal, headers } = {}) {
    if (!this.connected) return Promise.reject(new NebulaError("lost", "not connected", { retryable: true }));
    if (signal?.aborted) return Promise.reject(new NebulaError("aborted", "the call was taken back"));
    const id = newId();
    const answer = new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }));
    const ends = Date.now() + timeout;
    const timer = setTimeout(() => this.#fail(id, "timeout", `no answer from ${service}`), timeout);
    const abort = () => this.#takeBack(service, id, ends);
    signal?.addEventListener("abort", abort);
    this.#send(service, id, { verb, parameters }, timeout, headers);
    return answer.finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    });
  }

  /**
   * The items that a verb yields: `for await (const item of nebula.stream(...))`. Leaving the loop closes the
   * handler. A slow reader slows it down: at most `credit` items are in flight or unread.
   *
   * There is no deadline unless you set one, but a service that is silent for 30 s, without even a sign of life,
   * ends the stream. So does a lost connection: read the stream again.
   *
   * @param {string} service its name, or a destination ("/queue/...")
   * @param {string} verb
   * @param {unknown} [parameters] as for `call`
   * @param {object} [options]
   * @param {number} [options.timeout] of all of the stream
   * @param {AbortSignal} [options.signal] ends it as "aborted"
   * @param {number} [options.credit] items that may be under way or unread, from 1
   * @returns {AsyncGenerator<unknown, void, void>}
   * @throws {NebulaError} behind the items that came before
   */
  async *stream(service, verb, parameters, { timeout, signal, credit = CREDIT } = {}) {
    if (!(Number.isInteger(credit) && credit > 0)) throw new RangeError("credit is a whole number from 1");
    if (signal?.aborted) throw new NebulaError("aborted", "the stream was left");
    if (!this.connected) throw new NebulaError("lost", "not connected", { retryable: true });
    const id = newId();
    const tell = (peer, more) => this.connected && this.#giveCredit(peer, id, more);
    const inflow = new Inflow(service, credit, timeout, tell);
    const abort = () => inflow.leave(new NebulaError("aborted", "the stream was left"));
    signal?.addEventListener("abort", abort);
    this.#streams.set(id, inflow);
    try {
      this.#send(service, id, { verb, parameters }, timeout, {
        "neb-stream": "true",
        "neb-credit": String(credit),
      });
      for (let items = await inflow.next(); items !== null; items = await inflow.next()) {
        for (const item of items) {
          yield item;
          inflow.consume();
        }
      }
    } finally {
      this.#streams.delete(id);
      signal?.removeEventListener("abort", abort);
      inflow.close();
      if (inflow.isOpen && this.connected) this.#withdraw(inflow.queue, id, inflow.left);
    }
  }

  /** Have a service begin a job: resolves as soon as it is accepted, with the `Job`. Takes what `call` does. */
  async start(service, verb, parameters, options) {
    const accepted = await this.call(service, verb, parameters, options);
    return new Job(this, accepted.job, accepted.via);
  }

  /** The job of an id, "reports/01J...", that was started before, here or elsewhere. */
  job(id) {
    return new Job(this, id);
  }

  /**
   * Subscribe, and wait until the broker has done so.
   *
   * @param {string} destination
   * @param {(message: import("@stomp/stompjs").IMessage) => void} heard
   * @param {Record<string, string>} [headers]
   * @returns {Promise<import("@stomp/stompjs").StompSubscription>} gone with the connection
   */
  async subscribe(destination, heard, headers = {}) {
    if (!this.#stomp.connected) throw new NebulaError("lost", "not connected", { retryable: true });
    const receipt = newId();
    const done = new Promise((resolve, reject) => {
      this.#calls.set(receipt, { resolve, reject });
      this.#stomp.watchForReceipt(receipt, ({ headers: { result } }) => {
        if (result === "ignored") this.#fail(receipt, "refused", `${destination} may not be read`);
        else this.#settle(receipt)?.resolve();
      });
    });
    const subscription = this.#stomp.subscribe(destination, heard, { ...headers, receipt });
    await done;
    return subscription;
  }

  /**
   * Send a message, and wait until the broker has taken it.
   *
   * @param {string} destination
   * @param {string | Uint8Array} body
   * @param {Record<string, string>} [headers]
   * @returns {Promise<Record<string, string>>} the headers of the broker's RECEIPT, such as `consumers`
   * @throws {NebulaError} where it was not taken; its code is the broker's verdict
   */
  publish(destination, body, headers = {}) {
    if (!this.connected) return Promise.reject(new NebulaError("lost", "not connected", { retryable: true }));
    const receipt = newId();
    const done = new Promise((resolve, reject) => this.#calls.set(receipt, { resolve, reject }));
    this.#stomp.watchForReceipt(receipt, ({ headers }) => {
      const { disposition = "accepted" } = headers;
      if (disposition === "accepted") this.#settle(receipt)?.resolve({ ...headers });
      else this.#fail(receipt, disposition, `the broker did not take the message for ${destination}`);
    });
    const content = typeof body === "string" ? { body } : { binaryBody: body };
    this.#stomp.publish({ destination, headers: { ...headers, receipt }, ...content });
    return done;
  }

  #send(service, id, request, timeout, extra = {}) {
    this.#stomp.watchForReceipt(id, ({ headers: { disposition = "accepted" } }) => {
      // Without a consumer the broker keeps nothing, and says so at once.
      if (disposition === "rejected-no-consumer") this.#fail(id, "no-responder", `no service ${service} is running`, true);
      else if (disposition !== "accepted") this.#fail(id, disposition, `${service} cannot be asked`);
    });
    this.#stomp.publish({
      destination: service.startsWith("/") ? service : `/queue/${service}`,
      headers: {
        "content-type": "application/json",
        "neb-reply-to": this.#inbox,
        "neb-reply-id": id,
        ...(timeout === undefined ? {} : { "neb-timeout": String(Math.max(1, Math.floor(timeout))) }),
        "require-consumers": "true",
        receipt: id,
        ...extra,
      },
      body: JSON.stringify(request),
    });
  }

  #takeBack(service, id, ends) {
    if (!this.#calls.has(id)) return;
    if (this.connected) this.#withdraw(service, id, ends - Date.now());
    this.#fail(id, "aborted", "the call was taken back");
  }

  /** Notify a service that the answer is no longer needed. */
  #withdraw(service, id, left) {
    // Names of services have no dot; behind it is an instance's, which has no topic of its own.
    const [name] = service.replace(/^\/queue\//, "").split(".");
    const body = { "reply-to": this.#inbox, "reply-id": id };
    if (left !== undefined) body.timeout = Math.max(1, Math.floor(left));
    this.#stomp.publish({
      destination: `/topic/nebula.cancel.${name}`,
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  #giveCredit(peer, id, more) {
    this.#stomp.publish({
      destination: peer,
      headers: { "content-type": "application/json", "neb-credit": String(more), "neb-in-reply-to": id },
      body: "{}",
    });
  }

  async #connected() {
    // An inbox belongs to its connection: each has one of its own.
    const inbox = `/queue/nebula.inbox.${newId()}`;
    try {
      await this.subscribe(inbox, (message) => this.#answered(message), {
        exclusive: "true",
        "auto-delete": "true",
      });
    } catch (error) {
      if (error.code !== "lost") this.#lost(error.code, error.message);
      return;
    }
    this.#inbox = inbox;
    this.#opening?.resolve();
    this.#opening = null;
    this.dispatchEvent(new Event("connected"));
  }

  #answered(message) {
    const id = message.headers["neb-in-reply-to"];
    const inflow = this.#streams.get(id);
    if (inflow !== undefined && message.headers["neb-stream"] === "true") {
      inflow.arrive(message);
      return;
    }
    const answer = objectOf(message.body);
    if (answer === null) {
      const error = new NebulaError("unexpected-reply", "the answer cannot be read");
      inflow?.fail(error);
      this.#settle(id)?.reject(error);
      return;
    }
    const { verb, parameters, description } = answer;
    if (verb === "error") {
      const { code, message: text, details, retryable } = parameters ?? {};
      const told = code ?? message.headers["neb-error-code"] ?? "error";
      const error = new NebulaError(told, text ?? description ?? "", { details, retryable });
      inflow?.fail(error);
      this.#settle(id)?.reject(error);
    } else if (inflow !== undefined) {
      inflow.take(parameters);
    } else {
      this.#settle(id)?.resolve(verb === "success" && isNothing(parameters) ? null : parameters);
    }
  }

  #lost(code, message, isOver = !this.#stomp.reconnectDelay) {
    const wasConnected = this.#inbox !== null;
    this.#inbox = null;
    for (const id of [...this.#calls.keys(), ...this.#streams.keys()]) this.#fail(id, "lost", message, true);
    if (isOver || this.#opening?.isFirst) {
      this.#stomp.deactivate();
      this.#opening?.reject(new NebulaError(code, message));
      this.#opening = null;
    }
    if (wasConnected) this.dispatchEvent(new Event("lost"));
  }

  #fail(id, code, message, retryable = false) {
    const error = new NebulaError(code, message, { retryable });
    this.#streams.get(id)?.refuse(error);
    this.#settle(id)?.reject(error);
  }

  #settle(id) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    return call;
  }
}

/** One job of one service, seen from afar. Nothing is open but while a method runs. */
export class Job {
  #nebula;
  #queue;

  constructor(nebula, id, via) {
    const [service] = id.split("/");
    this.id = id;
    this.#nebula = nebula;
    this.#queue = via ?? `/queue/${service}`;
  }

  /** How the job is now: `state`, `progress` (0 to 1, or null), `note`, ... */
  status() {
    return this.#ask("job.status");
  }

  /** End the job. Resolves at once, with its status: "cancelling", mostly. */
  cancel() {
    return this.#ask("job.cancel");
  }

  /**
   * The status now, and each newer one as it comes; the last one is the job's end. It may skip some and never goes
   * back; one that waits may be told again nearer to its turn. Where the connection is lost it throws: watch again.
   */
  async *watch() {
    const [service, job] = this.id.split("/");
    const latest = new Latest();
    // A subscription is gone with its connection, and the next connection knows nothing of it.
    const lose = () => latest.fail(new NebulaError("lost", "the connection was lost", { retryable: true }));
    this.#nebula.addEventListener("lost", lose);
    const heard = (message) => {
      message.ack();
      // An empty one says that the service is away, not that the job has ended.
      if (message.body) latest.put(JSON.parse(message.body));
    };
    let subscription = null;
    try {
      // Subscribed before asked: what happens in between is seen twice rather than not at all.
      const headers = { ack: "client-individual", eager: "true" };
      subscription = await this.#nebula.subscribe(`X/jobs.${service}.${job}`, heard, headers);
      let status = await this.status();
      yield status;
      while (!END_STATES.has(status.state)) {
        const newer = (await latest.take(ASK_AFTER)) ?? (await this.status());
        // Where it stands in its line is told again under the same number.
        const isNearer = newer.seq === status.seq && newer.position !== null && newer.position < status.position;
        if (newer.seq > status.seq || isNearer) {
          status = newer;
          yield status;
        }
      }
    } finally {
      this.#nebula.removeEventListener("lost", lose);
      if (!latest.hasFailed && this.#nebula.connected) subscription?.unsubscribe();
    }
  }

  /** What the job returned, once it has ended; a `NebulaError` with its code if it did not end as done. */
  async result() {
    let last;
    for await (const status of this.watch()) last = status;
    if (last.state !== "done") {
      const { code, message } = last.error ?? { code: last.state.replace("_", "-"), message: last.note };
      throw new NebulaError(code, message);
    }
    return (await this.#ask("job.result")).value;
  }

  async #ask(verb) {
    const parameters = { job: this.id };
    try {
      return await this.#nebula.call(this.#queue, verb, parameters);
    } catch (error) {
      if (error.code !== "elsewhere" || !error.details?.via) throw error;
      // Once: two instances that send us to each other must not keep us busy.
      this.#queue = error.details.via;
      return this.#nebula.call(this.#queue, verb, parameters);
    }
  }
}

/** The JSON object in a body, or null: callers never see an exception in a callback of stompjs. */
function objectOf(body) {
  try {
    const value = JSON.parse(body);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

/** The reader's end of one stream: order, gaps, credit, and signs of life. */
class Inflow {
  #credit;
  #tell;
  #peer = null;
  #batches = [];
  #error = null;
  #isComplete = false;
  #isRefused = false;
  #isLeft = false;
  #next = 0;
  #end;
  #owed = 0;
  #ends;
  #heardAt = Date.now();
  #toldAt = Date.now();
  #timer;
  #wake = () => {};

  constructor(service, credit, timeout, tell) {
    /** Called when the stream has no reader any more. */
    this.queue = service;
    this.#credit = this.#end = credit;
    this.#tell = tell;
    this.#ends = timeout === undefined ? undefined : Date.now() + timeout;
    this.#look();
  }

  /** Whether its service may be sending still. */
  get isOpen() {
    return !this.#isComplete && !this.#isRefused;
  }

  /** The milliseconds that it would have had. */
  get left() {
    return this.#ends === undefined ? undefined : this.#ends - Date.now();
  }

  /** Take a message of the stream. */
  arrive(message) {
    if (this.#isComplete || this.#error !== null) return;
    this.#heardAt = Date.now();
    const { "neb-stream-seq": seq, "neb-stream-end": end, "neb-reply-to": peer } = message.headers;
    // To the sender of the items. Before the first item, to the last peer that spoke: the first one may have died, and the broker given
    // the request to another one.
    if (peer && peer !== this.#peer && this.#next === 0) {
      if (!INSTANCE.test(peer)) {
        this.#break(`credit is wanted at ${peer.slice(0, 100)}, which is no instance's`);
        return;
      }
      this.#peer = this.queue = peer;
    }
    if (seq === undefined) {
      // A sign of life. Only its sender knows how long it accepts our silence, so it gets one, too.
      this.#giveCredit();
      return;
    }
    const parameters = objectOf(message.body)?.parameters;
    if (!Array.isArray(parameters)) this.#break("the items cannot be read");
    else if (Number(seq) !== this.#next) {
      const isNew = Number(seq) === 0;
      this.#break(isNew ? "it began anew: the instance that sent it is gone" : `item ${this.#next} did not come`);
    } else if (this.#next + parameters.length > this.#end) this.#break("more items came than there was credit for");
    else {
      this.#next += parameters.length;
      this.#isComplete = end === "true";
      this.#put(parameters);
    }
  }

  /** Take the one answer of a service: all items at once. */
  take(items) {
    this.#isComplete = true;
    if (Array.isArray(items)) this.#put(items);
    else this.#stop(new NebulaError("not-a-stream", "the verb has answered with one value: call it", { details: items }));
  }

  /** The service has ended it with an error, which comes behind the items. */
  fail(error) {
    this.#isComplete = true;
    this.#stop(error);
  }

  /** The reader goes, whatever has come. */
  leave(error) {
    this.#isLeft = true;
    this.#batches = [];
    this.#stop(error);
  }

  /** The broker has refused the request, or is gone: no service works on it. */
  refuse(error) {
    this.#isRefused = true;
    this.#stop(error);
  }

  /** The next items; null at the end. */
  async next() {
    while (!this.#batches.length) {
      if (this.#error !== null) throw this.#error;
      if (this.#isComplete) return null;
      await new Promise((resolve) => (this.#wake = resolve));
    }
    return this.#batches.shift();
  }

  /** The reader is done with one more. */
  consume() {
    if (this.#isLeft) throw this.#error;
    this.#owed += 1;
    // By halves, so that the next ones are under way while these are read.
    if (this.#owed >= Math.max(1, Math.floor(this.#credit / 2)) && this.isOpen && !this.#error) this.#giveCredit();
  }

  close() {
    clearTimeout(this.#timer);
  }

  #put(items) {
    this.#batches.push(items);
    this.#wake();
  }

  #break(message) {
    this.#stop(new NebulaError("stream-broken", `the stream is broken: ${message}`, { retryable: true }));
  }

  #stop(error) {
    this.#error ??= error;
    this.#wake();
  }

  #giveCredit() {
    this.#toldAt = Date.now();
    if (this.#peer === null) return;
    this.#end += this.#owed;
    this.#tell(this.#peer, this.#owed);
    this.#owed = 0;
  }

  /** Check whether the service or this side has been silent for too long. */
  #look() {
    const now = Date.now();
    if (this.#error !== null || this.#isComplete) return;
    if (this.#ends !== undefined && now >= this.#ends) {
      this.#stop(new NebulaError("timeout", "the time for the stream is over"));
    } else if (now - this.#heardAt >= SILENCE) {
      this.#stop(new NebulaError("timeout", `${this.queue} has said nothing for ${SILENCE / 1000} s`));
    } else {
      if (now - this.#toldAt >= BEAT) this.#giveCredit();
      const until = Math.min(this.#ends ?? Infinity, this.#heardAt + SILENCE, this.#toldAt + BEAT);
      this.#timer = setTimeout(() => this.#look(), Math.max(1, until - now));
    }
  }
}

/** The last thing that was put, for one who takes. */
class Latest {
  #thing = null;
  #failure = null;
  #wake = () => {};

  put(thing) {
    this.#thing = thing;
    this.#wake();
  }

  /** Let every `take` fail from now on. */
  fail(error) {
    this.#failure = error;
    this.#wake();
  }

  get hasFailed() {
    return this.#failure !== null;
  }

  /** Resolves with it, or with null where nothing came in time. */
  async take(timeout) {
    if (this.#thing === null && this.#failure === null) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, timeout);
        this.#wake = () => (clearTimeout(timer), resolve());
      });
    }
    if (this.#failure !== null) throw this.#failure;
    const thing = this.#thing;
    this.#thing = null;
    return thing;
  }
}

/** An id that cannot be guessed. `crypto.randomUUID` is there only for pages of https and of this machine. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function isNothing(parameters) {
  return parameters === undefined || parameters === null || (Array.isArray(parameters) && !parameters.length);
}
