// Dead letters: what they are, and what becomes of a replay.

import type { MessageView, Replayed } from "../broker";

export const REASONS = ["exhausted", "expired", "full", "rejected"] as const;

/** Why a message became a dead letter, in a sentence. */
export function reasonText(reason: string): string {
  switch (reason) {
    case "exhausted":
      return "It was delivered as often as its queue allows, and failed each time.";
    case "expired":
      return "Its expiry time, or the time to live of its queue, passed before it was consumed.";
    case "full":
      return "There was no room for it, and no sender who could be told.";
    case "rejected":
      return "A consumer refused it for good.";
    default:
      return "";
  }
}

/** What a replay has done, in sentences. */
export function replayedText(outcome: Replayed): string {
  const { replayed, full, without_queue: withoutQueue, not_permitted: notPermitted, on_disk: onDisk } = outcome;
  const parts = [`${letters(replayed)} replayed.`];
  if (full > 0) parts.push(`${letters(full)} stayed: the queue is full.`);
  if (withoutQueue > 0) parts.push(`${letters(withoutQueue)} stayed: the source is no queue. Name one to replay to.`);
  if (notPermitted > 0) parts.push(`${letters(notPermitted)} stayed: the sender may not send there any more.`);
  if (onDisk > 0) parts.push(onDiskText(onDisk));
  return parts.join(" ");
}

export function onDiskText(onDisk: number): string {
  return `${letters(onDisk)} on disk ${onDisk === 1 ? "was" : "were"} not looked at; they come when those before them are gone.`;
}

/** About a list that ended before its limit. */
export function notReadText(onDisk: number): string {
  return `${letters(onDisk)} on disk ${onDisk === 1 ? "was" : "were"} not looked at.`;
}

export function letters(count: number): string {
  return `${count.toLocaleString("en")} ${count === 1 ? "dead letter" : "dead letters"}`;
}

// Written by the broker for one delivery, or about the death; a copy begins without them, and without its expiry,
// as a replay does.
const NOT_COPIED = new Set([
  "destination",
  "message-id",
  "subscription",
  "ack",
  "content-length",
  "sender",
  "redelivered",
  "delivery-count",
  "original-destination",
  "dedup-id",
  "expires",
]);

/** The headers that an edited copy begins with. */
export function copiedHeaders(view: MessageView): Record<string, string> {
  const own = Object.entries(view.headers).filter(
    ([name, value]) =>
      !NOT_COPIED.has(name) &&
      !name.startsWith("dead-letter-") &&
      // Only its owner may name an inbox: the broker would refuse the copy.
      !(name === "neb-reply-to" && value.startsWith("/queue/nebula.inbox.")),
  );
  return { ...Object.fromEntries(own), ...(view.is_persistent ? { persistent: "true" } : {}) };
}
