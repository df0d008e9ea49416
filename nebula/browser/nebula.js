// Calls verbs and watches jobs from a web page: The Nebulous Protocol on top of @stomp/stompjs.
//
//   import { Nebula } from "./nebula.js";
//
//   const nebula = new Nebula("ws://localhost:61680/stomp");
//   await nebula.connect();
//   const price = await nebula.call("prices", "quote", { symbol: "ABC", qty: 2 });
//
// All times are milliseconds.

import { Client } from "@stomp/stompjs";

const END_STATES = new Set(["done", "failed", "cancelled", "timed_out", "lost", "expired"]);

// Statuses may be lost, with a connection or with the service that would have told them.
const ASK_AFTER = 10_000;

/**
 * What went wrong.
 *
 * `code` is a word to branch on. Of an answer it is the service's own ("bad-parameters", "busy", ...). Else:
 * "no-responder" (nobody serves there), "rejected-..." (the broker's verdict), "timeout", "aborted", "lost" (the
 * connection ended, or there is none), "refused" (the broker does not let us in, or not subscribe).
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
      // The broker closes after it: of a connection that was open, that is told of then.
      onStompError: ({ headers }) =>
        this.#opening && this.#lost("refused", headers.message ?? "the broker has refused"),
      // Where it is not active the close is our own, and was told of; the next attempt may wait for it.
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
   * @returns {Promise<unknown>} the verb's value; null where there is nothing to report
   * @throws {NebulaError}
   */
  call(service, verb, parameters, { timeout = this.#timeout, signal } = {}) {
    if (!this.connected) return Promise.reject(new NebulaError("lost", "not connected", { retryable: true }));
    if (signal?.aborted) return Promise.reject(new NebulaError("aborted", "the call was taken back"));
    const id = newId();
    const answer = new Promise((resolve, reject) => this.#calls.set(id, { resolve, reject }));
    const ends = Date.now() + timeout;
    const timer = setTimeout(() => this.#fail(id, "timeout", `no answer from ${service}`), timeout);
    const abort = () => this.#takeBack(service, id, ends);
    signal?.addEventListener("abort", abort);
    this.#send(service, id, { verb, parameters }, timeout);
    return answer.finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    });
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

  #send(service, id, request, timeout) {
    this.#stomp.watchForReceipt(id, ({ headers: { disposition = "accepted" } }) => {
      // Without a consumer the broker keeps nothing, and says so at once.
      if (disposition === "rejected-no-consumer") this.#fail(id, "no-responder", `nobody serves ${service}`, true);
      else if (disposition !== "accepted") this.#fail(id, disposition, `${service} cannot be asked`);
    });
    this.#stomp.publish({
      destination: service.startsWith("/") ? service : `/queue/${service}`,
      headers: {
        "content-type": "application/json",
        "neb-reply-to": this.#inbox,
        "neb-reply-id": id,
        "neb-timeout": String(Math.max(1, Math.floor(timeout))),
        "require-consumers": "true",
        receipt: id,
      },
      body: JSON.stringify(request),
    });
  }

  #takeBack(service, id, ends) {
    if (!this.#calls.has(id)) return;
    if (this.connected) {
      const body = { "reply-to": this.#inbox, "reply-id": id, timeout: Math.max(1, ends - Date.now()) };
      this.#stomp.publish({
        destination: `/topic/nebula.cancel.${service.replace(/^\/queue\//, "")}`,
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    }
    this.#fail(id, "aborted", "the call was taken back");
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
    const { verb, parameters, description } = JSON.parse(message.body);
    if (verb === "error") {
      const { code, message: text, details, retryable } = parameters ?? {};
      const told = code ?? message.headers["neb-error-code"] ?? "error";
      this.#settle(id)?.reject(new NebulaError(told, text ?? description ?? "", { details, retryable }));
    } else {
      this.#settle(id)?.resolve(verb === "success" && isNothing(parameters) ? null : parameters);
    }
  }

  #lost(code, message, isOver = !this.#stomp.reconnectDelay) {
    const wasConnected = this.#inbox !== null;
    this.#inbox = null;
    for (const id of [...this.#calls.keys()]) this.#fail(id, "lost", message, true);
    if (isOver || this.#opening?.isFirst) {
      this.#stomp.deactivate();
      this.#opening?.reject(new NebulaError(code, message));
      this.#opening = null;
    }
    if (wasConnected) this.dispatchEvent(new Event("lost"));
  }

  #fail(id, code, message, retryable = false) {
    this.#settle(id)?.reject(new NebulaError(code, message, { retryable }));
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

  /** What the job returned, once it has ended; a `NebulaError` with its code where it ended otherwise than done. */
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

/** The last thing that was put, for one who takes. */
class Latest {
  #thing = null;
  #failure = null;
  #wake = () => {};

  put(thing) {
    this.#thing = thing;
    this.#wake();
  }

  /** Have whoever takes fail from now on. */
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

/** An id that nobody can guess. `crypto.randomUUID` is there only for pages of https and of this machine. */
function newId() {
  const octets = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, "0")).join("");
}

function isNothing(parameters) {
  return parameters === undefined || parameters === null || (Array.isArray(parameters) && !parameters.length);
}
