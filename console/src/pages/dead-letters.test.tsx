import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { DeadLetter } from "../broker";
import { session } from "../session";
import DeadLettersPage from "./dead-letters";

beforeEach(() => {
  vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
  vi.spyOn(session, "may").mockReturnValue(true);
});

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function letter(number: number, isAtHand: boolean): DeadLetter {
  return {
    number,
    source: "/queue/orders",
    reason: "rejected",
    died_at: 1_700_000_000,
    deliveries: 1,
    sender: "alice",
    body_bytes: 2,
    is_persistent: true,
    code: "",
    text: "",
    handler: "",
    is_at_hand: isAtHand,
  };
}

it("lists the newest first, and does not offer to replay what is on disk", async () => {
  const list = vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows: [letter(9, false), letter(4, true)], on_disk: 0 });
  render(<DeadLettersPage />);

  const boxes = await screen.findAllByRole<HTMLInputElement>("checkbox", { name: /Choose dead letter/ });
  expect(list).toHaveBeenCalledWith(expect.objectContaining({ reverse: true, after: 0 }), expect.anything());
  expect(boxes.map((box) => [box.getAttribute("aria-label"), box.disabled])).toEqual([
    ["Choose dead letter 9", true],
    ["Choose dead letter 4", false],
  ]);
  fireEvent.click(screen.getByText("Choose all listed"));
  expect(screen.getByText(/^Replay 1 …$/)).toBeTruthy();
  expect(boxes[0]!.checked).toBe(false);
});

it("goes on to older ones behind the last row", async () => {
  const rows = Array.from({ length: 1_000 }, (_, place) => letter(2_000 - place, true));
  const list = vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows, on_disk: 0 });
  render(<DeadLettersPage />);
  fireEvent.click(await screen.findByText("Older ones"));

  await vi.waitFor(() => expect(list).toHaveBeenCalledWith(expect.objectContaining({ after: 1_001 }), expect.anything()));
  expect(await screen.findByText("Back to the newest")).toBeTruthy();
});

it("lists the oldest first where that is chosen, and goes on to newer ones", async () => {
  const rows = Array.from({ length: 1_000 }, (_, place) => letter(place + 1, true));
  const list = vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows, on_disk: 0 });
  render(<DeadLettersPage />);
  await screen.findByText("Older ones");
  list.mockClear();
  fireEvent.change(screen.getByLabelText("Order"), { target: { value: "oldest" } });
  const newer = await screen.findByText<HTMLButtonElement>("Newer ones");
  await vi.waitFor(() => expect(newer.disabled).toBe(false));
  fireEvent.click(newer);

  await vi.waitFor(() => expect(list).toHaveBeenCalledWith(expect.objectContaining({ after: 1_000 }), expect.anything()));
  expect(list.mock.calls.some(([parameters]) => parameters?.reverse)).toBe(false);
  fireEvent.click(await screen.findByText("Back to the oldest"));
  fireEvent.change(screen.getByLabelText("Order"), { target: { value: "newest" } });
});

it("replays and purges all where none is listed but some were not looked at", async () => {
  vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows: [], on_disk: 3 });
  render(<DeadLettersPage />);

  expect(await screen.findByText("Nothing found, but not all dead letters were looked at.")).toBeTruthy();
  expect(screen.getByText("3 dead letters on disk were not looked at.")).toBeTruthy();
  expect(screen.getByText<HTMLButtonElement>("Replay all …").disabled).toBe(false);
  expect(screen.getByText<HTMLButtonElement>("Purge all …").disabled).toBe(false);
});

it("offers nothing to replay or purge where there is nothing", async () => {
  vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows: [], on_disk: 0 });
  render(<DeadLettersPage />);

  expect(await screen.findByText("There are no dead letters.")).toBeTruthy();
  expect(screen.queryByText(/not looked at/)).toBeNull();
  expect(screen.getByText<HTMLButtonElement>("Replay all …").disabled).toBe(true);
  expect(screen.getByText<HTMLButtonElement>("Purge all …").disabled).toBe(true);
});

it("keeps a source that is being typed while the list is read again", async () => {
  const list = vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows: [letter(4, true)], on_disk: 0 });
  render(<DeadLettersPage />);
  const source = screen.getByLabelText<HTMLInputElement>("Source");
  fireEvent.input(source, { target: { value: "/queue/or" } });
  await screen.findByText("Choose all listed");

  expect(source.value).toBe("/queue/or");
  expect(list).not.toHaveBeenCalledWith(expect.objectContaining({ source: "/queue/or" }), expect.anything());
});
