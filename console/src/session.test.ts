import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

/** A client without a broker: what it is asked is noted, and the test says when the connection comes and goes. */
const { Fake } = vi.hoisted(() => {
  class Fake extends EventTarget {
    static made: Fake[] = [];
    /** What `connect` and `subscribe` throw. */
    static refusal: Error | null = null;
    static rights: object | null = null;

    connected = false;
    readonly subscribed: string[] = [];
    readonly ended: string[] = [];

    constructor(
      readonly url: string,
      readonly options: Record<string, unknown>,
    ) {
      super();
      Fake.made.push(this);
    }

    async connect(): Promise<void> {
      if (Fake.refusal !== null) throw Fake.refusal;
      this.comeBack();
    }

    comeBack(): void {
      this.connected = true;
      this.dispatchEvent(new Event("connected"));
    }

    lose(): void {
      this.connected = false;
      this.dispatchEvent(new Event("lost"));
    }

    async close(): Promise<void> {
      this.connected = false;
    }

    async call(service: string, verb: string): Promise<unknown> {
      if (Fake.rights === null) throw new Error(`${service} has no ${verb}`);
      return Fake.rights;
    }

    async subscribe(destination: string): Promise<{ unsubscribe(): void }> {
      this.subscribed.push(destination);
      if (Fake.refusal !== null) throw Fake.refusal;
      return { unsubscribe: () => void this.ended.push(destination) };
    }
  }
  return { Fake };
});

vi.mock("nebula", async (original) => ({ ...(await original<object>()), Nebula: Fake }));

const { NebulaError, Session, socketUrl } = await import("./session");

const RIGHTS = {
  principal: "operator",
  verbs: ["queue.purge", "rights.mine"],
  value_prefixes: ["X/", "Y/"],
  may_publish: null,
  may_subscribe: null,
};
const HEARD = () => {};

beforeEach(() => {
  Fake.made = [];
  Fake.refusal = null;
  Fake.rights = RIGHTS;
});

afterEach(() => vi.restoreAllMocks());

/** Once everything that was asked has been answered. */
const answers = () => new Promise((resolve) => setTimeout(resolve));

async function signedIn() {
  const session = new Session();
  await session.signIn({ kind: "none" });
  await vi.waitFor(() => expect(session.isOpen.value).toBe(true));
  return { session, client: Fake.made.at(-1)! };
}

describe("signing in", () => {
  it("gives what the principal is and may do", async () => {
    const session = new Session();
    expect(session.state.value).toBe("signed-out");
    expect(session.may("queue.purge")).toBe(false);

    await session.signIn({ kind: "passcode", login: "operator", passcode: "secret" });
    await vi.waitFor(() => expect(session.state.value).toBe("open"));

    expect(Fake.made[0]!.options).toMatchObject({ login: "operator", passcode: "secret" });
    expect(session.principal.value).toBe("operator");
    expect(session.valuePrefixes.value).toEqual(["X/", "Y/"]);
    expect(session.may("queue.purge")).toBe(true);
    expect(session.may("session.end")).toBe(false);
    expect(session.kind).toBe("passcode");
  });

  it("sends a token as the passcode, without a login", async () => {
    await new Session().signIn({ kind: "token", token: "a.b.c" });

    expect(Fake.made[0]!.options).toMatchObject({ passcode: "a.b.c" });
    expect(Fake.made[0]!.options).not.toHaveProperty("login");
  });

  it("that is refused leaves the session signed out, and can be tried again", async () => {
    const session = new Session();
    Fake.refusal = new NebulaError("refused", "wrong passcode");
    const attempt = session.signIn({ kind: "passcode", login: "operator", passcode: "wrong" });
    await expect(attempt).rejects.toThrow("wrong passcode");
    expect(session.state.value).toBe("signed-out");
    expect(session.principal.value).toBeNull();

    Fake.refusal = null;
    await session.signIn({ kind: "none" });
    await vi.waitFor(() => expect(session.state.value).toBe("open"));
  });

  it("at a broker that does not say what may be done gives no rights", async () => {
    Fake.rights = null;
    const { session } = await signedIn();

    expect(session.principal.value).toBeNull();
    expect(session.may("queue.purge")).toBe(false);
    expect(session.valuePrefixes.value).toEqual(["X/"]);
  });

  it("is needed before anything is called", () => {
    expect(() => new Session().call("prices", "quote")).toThrow("not signed in");
  });
});

describe("a connection that is lost", () => {
  it("is told, and what one may do is read again when it is back", async () => {
    const { session, client } = await signedIn();
    expect(session.epoch.value).toBe(1);

    client.lose();
    expect(session.state.value).toBe("lost");
    expect(session.isOpen.value).toBe(false);
    // The page stays as it is until then.
    expect(session.may("queue.purge")).toBe(true);

    Fake.rights = { ...RIGHTS, verbs: [] };
    client.comeBack();
    await vi.waitFor(() => expect(session.state.value).toBe("open"));
    expect(session.epoch.value).toBe(2);
    expect(session.may("queue.purge")).toBe(false);
  });

  it("has its subscriptions again when it is back, but for those that were ended", async () => {
    const { session, client } = await signedIn();
    session.subscribe("/topic/a", {}, HEARD);
    const end = session.subscribe("/topic/b", {}, HEARD);
    expect(client.subscribed).toEqual(["/topic/a", "/topic/b"]);
    await answers();

    client.lose();
    end();
    client.comeBack();
    await vi.waitFor(() => expect(client.subscribed).toEqual(["/topic/a", "/topic/b", "/topic/a"]));
    // What was lost with the connection need not be ended.
    expect(client.ended).toEqual([]);
  });

  it("before the rights were read does not count as open", async () => {
    const session = new Session();
    let answer = (_: object) => {};
    vi.spyOn(Fake.prototype, "call").mockReturnValueOnce(new Promise((resolve) => (answer = resolve)));
    await session.signIn({ kind: "none" });
    Fake.made[0]!.lose();
    answer(RIGHTS);
    await answers();

    expect(session.state.value).toBe("lost");
    expect(session.epoch.value).toBe(0);
  });
});

describe("a subscription", () => {
  it("waits for the connection, and ends with it", async () => {
    const session = new Session();
    const end = session.subscribe("/topic/a", {}, HEARD);
    await session.signIn({ kind: "none" });
    const client = Fake.made[0]!;
    await vi.waitFor(() => expect(client.subscribed).toEqual(["/topic/a"]));

    end();
    await vi.waitFor(() => expect(client.ended).toEqual(["/topic/a"]));
  });

  it("that is ended while the broker is asked for it is ended after its answer", async () => {
    const { session, client } = await signedIn();
    session.subscribe("/topic/a", {}, HEARD)();

    await vi.waitFor(() => expect(client.ended).toEqual(["/topic/a"]));
  });

  it("that is refused says so; one that is lost is made again instead", async () => {
    const { session } = await signedIn();
    const failed = vi.fn();
    Fake.refusal = new NebulaError("lost", "the connection has ended");
    session.subscribe("/topic/a", {}, HEARD, failed);
    Fake.refusal = new NebulaError("refused", "/topic/b may not be read");
    session.subscribe("/topic/b", {}, HEARD, failed);

    await vi.waitFor(() => expect(failed).toHaveBeenCalledTimes(1));
    expect(failed.mock.calls[0]![0]).toMatchObject({ code: "refused" });
  });
});

it("after signing out ignores events of the connection", async () => {
  const { session, client } = await signedIn();
  await session.signOut();
  expect(session.principal.value).toBeNull();

  client.comeBack();
  client.lose();
  await answers();
  expect(session.state.value).toBe("signed-out");
});

it("the socket is next to the folder of the page", () => {
  const at = (href: string) => socketUrl({ href } as Location);

  expect(at("https://broker.example/console/#/queues")).toBe("wss://broker.example/stomp");
  expect(at("http://127.0.0.1:8080/nebula/console/?a=b")).toBe("ws://127.0.0.1:8080/nebula/stomp");
});
