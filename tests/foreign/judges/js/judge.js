// Judges our broker with @stomp/stompjs, in Node and in browsers. What each check shows is told in checks.py.

import { Client, Versions } from '@stomp/stompjs';

const DEADLINE_MILLISECONDS = 10_000;

/**
 * Run all checks of one version, one after the other.
 *
 * @param {object} plan
 * @param {(protocols: string[]) => WebSocket} plan.connect opens the WebSocket
 * @param {string} plan.version of STOMP
 * @param {string} plan.namespace begins the names of all queues
 * @param {number} plan.silence seconds that a silent connection is watched
 * @param {(result: {check: string, ok: boolean, detail: string}) => unknown} report takes each result
 */
export async function judge(plan, report) {
  for (const [name, check] of Object.entries(CHECKS)) {
    if (plan.version === '1.0' && SINCE_1_1.has(check)) continue;
    try {
      await check(plan, `/queue/${plan.namespace}-${name}`);
      await report({ check: name, ok: true, detail: '' });
    } catch (error) {
      await report({ check: name, ok: false, detail: String(error.stack ?? error) });
    }
  }
}

function expect(actual, expected) {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${is} instead of ${should}`);
}

function withDeadline(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come`)), DEADLINE_MILLISECONDS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** What came and was not taken yet, in order. */
class Mailbox {
  #letters = [];
  #waiting = [];

  put(letter) {
    if (this.#waiting.length) this.#waiting.shift()(letter);
    else this.#letters.push(letter);
  }

  take(what) {
    if (this.#letters.length) return Promise.resolve(this.#letters.shift());
    return withDeadline(new Promise((resolve) => this.#waiting.push(resolve)), what);
  }
}

class Session {
  messages = new Mailbox();
  closed = new Mailbox();
  beats = 0;

  constructor(plan, heartBeat) {
    this.client = new Client({
      webSocketFactory: () => plan.connect(this.client.stompVersions.protocolVersions()),
      stompVersions: new Versions([plan.version]),
      heartbeatIncoming: heartBeat,
      heartbeatOutgoing: heartBeat,
      reconnectDelay: 0,
      onStompError: (frame) => (this.error = frame),
      onWebSocketClose: (event) => this.closed.put(event),
      onHeartbeatReceived: () => (this.beats += 1),
    });
  }

  static async open(plan, { heartBeat = 0 } = {}) {
    const session = new Session(plan, heartBeat);
    const connected = new Promise((resolve) => (session.client.onConnect = resolve));
    session.client.activate();
    session.connected = (await withDeadline(connected, 'CONNECTED')).headers;
    return session;
  }

  /** Leave as stompjs does: it waits for the RECEIPT of its DISCONNECT, or for the end after an ERROR. */
  async close() {
    await withDeadline(this.client.deactivate(), 'the end');
    if (this.error) throw new Error(`ERROR: ${this.error.headers.message}`);
  }

  send(destination, body, headers = {}) {
    const content = typeof body === 'string' ? { body } : { binaryBody: body };
    this.client.publish({ destination, headers, ...content });
  }

  subscribe(queue, ack = 'auto', headers = {}) {
    const take = (message) => this.messages.put(message);
    return this.client.subscribe(queue, take, { id: '1', ack, ...headers });
  }

  receipt(name) {
    const came = new Promise((resolve) => this.client.watchForReceipt(name, resolve));
    return withDeadline(came, `RECEIPT ${name}`);
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.messages.take('MESSAGE'));
    return taken;
  }
}

async function inSession(plan, work) {
  const session = await Session.open(plan);
  const result = await work(session);
  await session.close();
  return result;
}

/** What a queue holds: everything before a last message of our own. */
function drain(plan, queue) {
  return inSession(plan, async (session) => {
    const left = [];
    session.send(queue, 'end');
    session.subscribe(queue);
    for (;;) {
      const [message] = await session.take(1);
      if (message.body === 'end') return left;
      left.push(message);
    }
  });
}

/** Other checks' messages lie in the dead-letter queue, too. They go back when we unsubscribe. */
function takeDeadLetter(plan, queue) {
  return inSession(plan, async (session) => {
    const subscription = session.subscribe('/queue/DLQ', 'client-individual');
    for (;;) {
      const [message] = await session.take(1);
      if (message.headers['dead-letter-from'] !== queue) continue;
      const left = session.receipt('left');
      message.ack();
      subscription.unsubscribe({ receipt: 'left' });
      await left;
      return message;
    }
  });
}

const bodies = (messages) => messages.map((message) => message.body);

async function connects(plan) {
  await inSession(plan, async ({ connected }) => {
    expect(typeof connected.session, 'string');
    expect(connected.version, plan.version === '1.0' ? undefined : plan.version);
  });
}

async function receipts(plan, queue) {
  await inSession(plan, async (session) => {
    const names = Array.from({ length: 20 }, (_, number) => `r${number}`);
    const answered = [];
    const all = names.map((name) => session.receipt(name).then(() => answered.push(name)));
    for (const receipt of names) session.send(queue, 'x', { receipt });
    await Promise.all(all);
    expect(answered, names);
  });
}

async function errors(plan, queue) {
  const session = await Session.open(plan);
  session.subscribe(queue, 'bogus', { receipt: 'r1' });
  await session.closed.take('the end');
  const { headers } = session.error;
  expect([headers.message.includes('bogus'), headers['receipt-id']], [true, 'r1']);
}

async function auto(plan, queue) {
  await inSession(plan, async (session) => {
    session.subscribe(queue);
    const sent = Array.from({ length: 100 }, (_, number) => `${number}`);
    for (const body of sent) session.send(queue, body);
    expect(bodies(await session.take(100)), sent);
  });
  expect(await drain(plan, queue), []);
}

async function ackSecondOfThree(plan, queue, mode) {
  await inSession(plan, async (session) => {
    session.subscribe(queue, mode);
    for (const body of ['0', '1', '2']) session.send(queue, body);
    (await session.take(3))[1].ack();
  });
  return bodies(await drain(plan, queue));
}

async function client(plan, queue) {
  expect(await ackSecondOfThree(plan, queue, 'client'), ['2']);
}

async function clientIndividual(plan, queue) {
  expect(await ackSecondOfThree(plan, queue, 'client-individual'), ['0', '2']);
}

async function nack(plan, queue) {
  await inSession(plan, async (session) => {
    session.subscribe(queue, 'client-individual');
    session.send(queue, 'again');
    (await session.take(1))[0].nack();
    const [second] = await session.take(1);
    expect([second.body, second.headers.redelivered], ['again', 'true']);
    second.ack();
  });
  expect(await drain(plan, queue), []);
}

async function deadLetter(plan, queue) {
  await inSession(plan, async (session) => {
    session.subscribe(queue, 'client-individual');
    session.send(queue, 'rejected');
    (await session.take(1))[0].nack({ requeue: 'false' });
  });
  expect(await drain(plan, queue), []);
  const message = await takeDeadLetter(plan, queue);
  expect([message.body, message.headers['dead-letter-reason']], ['rejected', 'rejected']);
}

async function commit(plan, queue) {
  await inSession(plan, async (session) => {
    session.subscribe(queue);
    const transaction = session.client.begin('t1');
    session.send(queue, 'first', { transaction: transaction.id });
    session.send(queue, 'second', { transaction: transaction.id });
    session.send(queue, 'before');
    expect(bodies(await session.take(1)), ['before']);
    transaction.commit();
    expect(bodies(await session.take(2)), ['first', 'second']);
  });
}

async function abort(plan, queue) {
  await inSession(plan, async (session) => {
    const transaction = session.client.begin('t1');
    session.send(queue, 'never', { transaction: transaction.id });
    transaction.abort();
  });
  expect(await drain(plan, queue), []);
}

async function abortedAck(plan, queue) {
  await inSession(plan, async (session) => {
    session.subscribe(queue, 'client');
    session.send(queue, 'kept');
    const [message] = await session.take(1);
    const transaction = session.client.begin('t1');
    message.ack({ transaction: transaction.id });
    transaction.abort();
  });
  expect(bodies(await drain(plan, queue)), ['kept']);
}

async function sendOctets(plan, queue, count) {
  const body = Uint8Array.from({ length: count }, (_, index) => index % 256);
  await inSession(plan, async (session) => session.send(queue, body));
  const [message] = await drain(plan, queue);
  expect(message.binaryBody.length, count);
  expect(message.binaryBody.findIndex((octet, index) => octet !== body[index]), -1);
}

async function headers(plan, queue) {
  // stompjs escapes in 1.2 alone.
  const text = plan.version === '1.2' ? 'grün: a\\ b\n✓' : 'grün ✓';
  await inSession(plan, async (session) => session.send(queue, 'x', { größe: text }));
  expect((await drain(plan, queue))[0].headers['größe'], text);
}

async function heartBeats(plan, queue) {
  const session = await Session.open(plan, { heartBeat: 1000 });
  await new Promise((resolve) => setTimeout(resolve, plan.silence * 1000));
  if (session.beats < 2) throw new Error(`${session.beats} beats came`);
  const receipt = session.receipt('r1');
  session.send(queue, 'alive', { receipt: 'r1' });
  await receipt;
  await session.close();
}

const CHECKS = {
  connects,
  receipts,
  errors,
  auto,
  client,
  'client-individual': clientIndividual,
  nack,
  'dead-letter': deadLetter,
  commit,
  abort,
  'aborted-ack': abortedAck,
  binary: (plan, queue) => sendOctets(plan, queue, 256),
  mebibyte: (plan, queue) => sendOctets(plan, queue, 1024 * 1024),
  headers,
  'heart-beats': heartBeats,
};

const SINCE_1_1 = new Set([clientIndividual, nack, deadLetter, heartBeats]);
