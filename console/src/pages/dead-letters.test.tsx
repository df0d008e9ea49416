import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, expect, it, vi } from "vitest";
import type { DeadLetter } from "../broker";
import { session } from "../session";
import DeadLettersPage from "./dead-letters";

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
  vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
  vi.spyOn(session, "may").mockReturnValue(true);
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
  vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
  vi.spyOn(session, "may").mockReturnValue(true);
  const rows = Array.from({ length: 1_000 }, (_, place) => letter(2_000 - place, true));
  const list = vi.spyOn(session.broker, "dlq_list").mockResolvedValue({ rows, on_disk: 0 });
  render(<DeadLettersPage />);
  fireEvent.click(await screen.findByText("Older ones"));

  await vi.waitFor(() => expect(list).toHaveBeenCalledWith(expect.objectContaining({ after: 1_001 }), expect.anything()));
  expect(await screen.findByText("Back to the newest")).toBeTruthy();
});
