import { expect, it } from "vitest";
import type { MessageView } from "../broker";
import { copiedHeaders, notReadText, REASONS, reasonText, replayedText } from "./letters";

it("each reason is explained", () => {
  expect(REASONS.map(reasonText).every((text) => text !== "")).toBe(true);
});

it("a replay says what stayed, and why", () => {
  const outcome = { replayed: 1, full: 2, without_queue: 0, not_permitted: 1, on_disk: 3 };

  expect(replayedText(outcome)).toBe(
    "1 dead letter replayed. 2 dead letters stayed: the queue is full. 1 dead letter stayed: the sender may not send" +
      " there any more. 3 dead letters on disk were not looked at; they come when those before them are gone.",
  );
});

it("a list says how many it did not look at", () => {
  expect(notReadText(1)).toBe("1 dead letter on disk was not looked at.");
  expect(notReadText(1_200)).toBe("1,200 dead letters on disk were not looked at.");
});

it("a copy begins with the headers of its sender alone", () => {
  const view = {
    headers: {
      "content-type": "application/json",
      "message-id": "7",
      "dead-letter-reason": "rejected",
      "dead-letter-from": "/queue/orders",
      expires: "1",
      "neb-reply-to": "/queue/nebula.inbox.1",
      trace: "abc",
    },
    is_persistent: true,
  } as unknown as MessageView;

  expect(copiedHeaders(view)).toEqual({ "content-type": "application/json", trace: "abc", persistent: "true" });
});
