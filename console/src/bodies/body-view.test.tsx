import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { NebulaError, session } from "../session";
import { BodyView } from "./body-view";
import { bytesOfHex } from "./hex";
import type { Body } from "./reading";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

function body(bytes: Uint8Array | string, more: Partial<Body> = {}): Body {
  const data = typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes;
  return { bytes: data, total: data.length, destination: "/queue/a", contentType: "", ...more };
}

const forms = () => screen.getAllByRole("radio").map((each) => each.parentElement?.textContent);

describe("BodyView", () => {
  it("shows JSON as a tree, and as text and hex on demand", () => {
    const asked = [vi.spyOn(session.broker, "schema_get"), vi.spyOn(session.broker, "schema_bound")];
    render(<BodyView body={body('{"lamp":{"on":true}}')} />);

    expect(forms()).toEqual(["JSON", "Text", "Hex"]);
    expect(screen.getByText("true").className).toBe("json-boolean");
    fireEvent.click(screen.getByLabelText("Text"));
    expect(screen.getByText('{"lamp":{"on":true}}').tagName).toBe("PRE");
    fireEvent.click(screen.getByLabelText("Hex"));
    expect(screen.getByText(/7b 22 6c 61/)).toBeTruthy();
    // JSON is no Avro: the broker need not be asked for a schema.
    for (const ask of asked) expect(ask).not.toHaveBeenCalled();
  });

  it("decodes Avro in an envelope by the broker's schema, and shows what the envelope says", async () => {
    vi.spyOn(session.broker, "schema_get").mockResolvedValue({
      name: "venue.Meter_v1",
      fingerprint: "1807060504030201",
      definition: { type: "record", name: "venue.Meter_v1", fields: [{ name: "cents", type: "long" }] },
    });
    render(<BodyView body={body(bytesOfHex("06 02 06 58 2f 6d 04 10 01 02 03 04 05 06 07 18 06 04 c4 13 00")!)} />);

    expect((await screen.findByText("1250")).className).toBe("json-number");
    expect(screen.getByText("venue.Meter_v1")).toBeTruthy();
    expect(screen.getByText("X/m")).toBeTruthy();
    expect(forms()[0]).toBe("Avro");
  });

  it("says why a body cannot be decoded, and shows its bytes", async () => {
    vi.spyOn(session.broker, "schema_get").mockRejectedValue(new NebulaError("not-found", "no schema has this fingerprint"));
    render(<BodyView body={body(bytesOfHex("04 04 10 09 02 03 04 05 06 07 08 06 02 00 00")!)} />);

    expect((await screen.findByRole("alert")).textContent).toContain("no schema has this fingerprint");
    fireEvent.click(screen.getByLabelText("Hex"));
    expect(screen.getByText(/04 04 10 09/)).toBeTruthy();
  });

  it("says that only the beginning is shown", () => {
    vi.spyOn(session.broker, "schema_bound").mockResolvedValue(null);
    render(<BodyView body={body('{"a":', { total: 4_096 })} />);

    expect(forms()).toEqual(["Text", "Hex"]);
    expect(screen.getByText(/the first 5 B shown/)).toBeTruthy();
  });

  it("opens long lists on demand, a part at a time", () => {
    render(<BodyView body={body(JSON.stringify({ list: Array.from({ length: 250 }, (_, at) => `item ${at}`) }))} />);
    expect(screen.queryByText('"item 0"')).toBeNull();

    const list = screen.getByText("[ 250 items ]").closest("details")!;
    list.open = true;
    fireEvent(list, new Event("toggle"));
    expect(screen.getByText('"item 99"')).toBeTruthy();
    expect(screen.queryByText('"item 100"')).toBeNull();
    fireEvent.click(screen.getByText("150 more"));
    expect(screen.getByText('"item 249"')).toBeTruthy();
  });
});
