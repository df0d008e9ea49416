import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest";

/** A client that the broker lets in or not; the test says when the broker answers what the principal may do. */
const { Fake } = vi.hoisted(() => {
  class Fake extends EventTarget {
    static refusal: Error | null = null;
    static answer = () => {};

    connected = false;

    async connect(): Promise<void> {
      if (Fake.refusal !== null) throw Fake.refusal;
      this.connected = true;
      this.dispatchEvent(new Event("connected"));
    }

    async close(): Promise<void> {}

    call(): Promise<unknown> {
      return new Promise((resolve) => (Fake.answer = () => resolve({ principal: "operator", verbs: [], value_prefixes: ["X/"] })));
    }

    async subscribe(): Promise<{ unsubscribe(): void }> {
      return { unsubscribe: () => {} };
    }
  }
  return { Fake };
});

vi.mock("nebula", async (original) => ({ ...(await original<object>()), Nebula: Fake }));

// jsdom has no screen: charts ask for its density and the theme for its colours, and a new page scrolls to its top.
beforeAll(() => {
  vi.stubGlobal("matchMedia", () => Object.assign(new EventTarget(), { matches: false }));
  Element.prototype.scrollTo = () => {};
});

beforeEach(() => {
  // Each test opens the page anew: only then does it try to sign in without a form.
  vi.resetModules();
  Fake.refusal = null;
});

afterEach(cleanup);

async function open(): Promise<void> {
  const { App } = await import("./app");
  render(<App />);
}

/** Once everything that needs no answer of the broker has happened. */
const settled = () => new Promise((resolve) => setTimeout(resolve));

it("shows no form where the broker wants none, also while it is asked what one may do", async () => {
  await open();
  await settled();
  screen.getByText(/Connecting to/);
  expect(screen.queryByLabelText("Login")).toBeNull();

  Fake.answer();
  await screen.findByRole("navigation");
  expect(screen.queryByText(/Connecting to/)).toBeNull();
});

it("shows the form where the broker refuses, and keeps it busy until the pages come", async () => {
  Fake.refusal = new Error("who are you?");
  await open();
  fireEvent.input(await screen.findByLabelText("Login"), { target: { value: "operator" } });

  Fake.refusal = null;
  fireEvent.submit(screen.getByRole("button", { name: "Sign in" }).closest("form")!);
  await settled();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Signing in …" }).disabled).toBe(true);

  Fake.answer();
  await screen.findByRole("navigation");
});

it("can be tried again after a refusal", async () => {
  Fake.refusal = new Error("who are you?");
  await open();
  fireEvent.submit((await screen.findByRole("button", { name: "Sign in" })).closest("form")!);

  expect((await screen.findByRole("alert")).textContent).toContain("who are you?");
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Sign in" }).disabled).toBe(false);
});
