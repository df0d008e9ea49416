import { expect, test } from "vitest";
import type { ConnectionRow } from "../broker";
import { Speeds } from "./speeds";

function row(session: string, read: number, written: number): ConnectionRow {
  return {
    session,
    principal: "p",
    subscriptions: 0,
    unacked: 0,
    outbox_bytes: 0,
    link: {
      peer: "",
      scheme: "stomp",
      profile: "standard",
      version: "1.2",
      since_seconds: 0,
      read_bytes: read,
      written_bytes: written,
      sent_frames: 0,
      buffered_bytes: 0,
      is_held_back: false,
    },
  };
}

test("a speed is known from the second reading on, and not of a connection that has begun anew", () => {
  const speeds = new Speeds();

  speeds.note([row("a", 100, 0), row("b", 100, 0)], 10);
  expect(speeds.of("a")).toEqual({ read: null, written: null });
  speeds.note([row("a", 300, 50), row("b", 20, 0)], 12);
  expect(speeds.of("a")).toEqual({ read: 100, written: 25 });
  expect(speeds.of("b")).toEqual({ read: null, written: null });
});
