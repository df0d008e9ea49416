import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { NebulaError, session } from "../session";
import { Compose, draftOf, encodeDraft, headersOf, newDraft, verdictText } from "./compose";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function open() {
  vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
}

describe("Compose", () => {
  it("sends what was written, and says what the broker answered", async () => {
    open();
    const send = vi.spyOn(session, "send").mockResolvedValue({ consumers: "2" });
    render(<Compose draft={newDraft("/queue/orders")} />);

    fireEvent.input(screen.getByLabelText("Body"), { target: { value: '{"id": 1}' } });
    fireEvent.click(screen.getByText("Add header"));
    fireEvent.input(screen.getByLabelText("Name of header 1"), { target: { value: "priority" } });
    fireEvent.input(screen.getByLabelText("Value of header 1"), { target: { value: "9" } });
    fireEvent.click(screen.getByLabelText("Persistent"));
    fireEvent.click(screen.getByText("Publish"));

    await screen.findByText("/queue/orders has accepted the message; 2 consumers.");
    expect(send).toHaveBeenCalledWith(
      "/queue/orders",
      { priority: "9", "content-type": "application/json", persistent: "true" },
      '{"id": 1}',
    );
  });

  it("shows the verdict of a message that was refused", async () => {
    open();
    vi.spyOn(session, "send").mockRejectedValue(new NebulaError("rejected-full", "there is no room"));
    render(<Compose draft={newDraft("/queue/orders")} />);

    fireEvent.click(screen.getByText("Publish"));

    expect((await screen.findByRole("alert")).textContent).toContain("rejected-full");
  });

  it("sends no malformed JSON", async () => {
    open();
    const send = vi.spyOn(session, "send").mockResolvedValue({});
    render(<Compose draft={{ ...newDraft("/queue/orders"), body: "{" }} />);

    fireEvent.click(screen.getByText("Publish"));

    expect((await screen.findByRole("alert")).textContent).toContain("not valid JSON");
    expect(send).not.toHaveBeenCalled();
  });
});

describe("draftOf", () => {
  it("has JSON, text and bytes in the form that can be edited", () => {
    const bytes = (text: string) => new TextEncoder().encode(text);

    expect(draftOf("/queue/a", {}, bytes('{"a":1}'))).toMatchObject({ kind: "json", body: '{\n  "a": 1\n}' });
    expect(draftOf("/queue/a", {}, bytes("hello"))).toMatchObject({ kind: "text", body: "hello" });
    expect(draftOf("/queue/a", {}, Uint8Array.of(0, 255))).toMatchObject({ kind: "hex", body: "00 ff" });
  });
});

describe("encodeDraft", () => {
  it("makes bytes of hexadecimal digits", () => {
    expect(encodeDraft("hex", "0a FF\n00")).toEqual(Uint8Array.of(10, 255, 0));
    expect(() => encodeDraft("hex", "0")).toThrow();
  });
});

it("headers that the broker writes are not sent", () => {
  const pairs = [
    { name: " kind ", value: "new" },
    { name: "", value: "nothing" },
    { name: "message-id", value: "7" },
  ];

  expect(headersOf(pairs)).toEqual({ kind: "new" });
});

it("verdicts are told in words", () => {
  expect(verdictText({ consumers: "0" }, "/queue/a")).toContain("no consumer is there yet");
  expect(verdictText({ durable: "false" }, "/queue/a", true)).toContain("not on disk");
  expect(verdictText({ durable: "false" }, "/queue/a")).not.toContain("not on disk");
  expect(verdictText({ duplicate: "true" }, "/queue/a")).toContain("dedup-id");
});
