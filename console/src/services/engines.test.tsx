import { cleanup, render, screen } from "@testing-library/preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { session } from "../session";
import { EngineCard, isWebAddress, SparkPages, type EngineRow } from "./engines";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const ENGINE: EngineRow = { instance: "3f2a9c41", queue: "/queue/flights.3f2a9c41", name: "default", state: "ready", broken: null, jobs: {}, master: "local[2]", starts: 1 };

function show(more: Partial<EngineRow>): void {
  render(<EngineCard engine={{ ...ENGINE, ...more }} onDone={() => {}} isAlone />);
}

describe("EngineCard", () => {
  it("has a button that restarts the engine for those who may, and where an older service does not say", () => {
    show({ may_restart: true });
    show({});

    expect(screen.getAllByRole("button", { name: "Restart" })).toHaveLength(2);
  });

  it("has no such button for others, nor for the service itself, which is no Spark", () => {
    show({ may_restart: false });
    const { master: _, ...service } = ENGINE;
    render(<EngineCard engine={{ ...service, name: "service" }} onDone={() => {}} isAlone />);

    expect(screen.queryByRole("button", { name: "Restart" })).toBeNull();
  });

  it("links to the Spark UI, in a tab of its own", () => {
    show({ ui: "http://127.0.0.1:40215" });

    const link = screen.getByRole("link", { name: /Spark UI/ });
    expect(link.getAttribute("href")).toBe("http://127.0.0.1:40215");
    expect(link.getAttribute("target")).toBe("_blank");
    expect(link.getAttribute("rel")).toBe("noreferrer");
  });

  it("links to nothing where the UI is off, or the address is none of the web", () => {
    for (const ui of [null, "javascript:alert(1)", "file:///etc/passwd"]) show({ ui });

    expect(screen.queryByRole("link")).toBeNull();
  });
});

describe("SparkPages", () => {
  it("links to the UI of each engine of the job's instance that has one open", async () => {
    vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
    const call = vi.spyOn(session, "call").mockResolvedValue({
      default: { state: "ready", ui: "http://127.0.0.1:40215" },
      stopped: { state: "stopped", ui: null },
      wrong: { state: "ready", ui: "javascript:alert(1)" },
      service: { state: "ready" },
    });
    render(<SparkPages via="/queue/flights.3f2a9c41" />);

    const links = await screen.findAllByRole("link");
    expect(links.map((link) => [link.textContent, link.getAttribute("href"), link.getAttribute("target")])).toEqual([
      ["Spark UI of engine default ↗", "http://127.0.0.1:40215", "_blank"],
    ]);
    expect(call).toHaveBeenCalledWith("/queue/flights.3f2a9c41", "engine.status", {}, expect.anything());
  });

  it("is not there without one", async () => {
    vi.spyOn(session, "isOpen", "get").mockReturnValue({ value: true } as never);
    const call = vi.spyOn(session, "call").mockResolvedValue({ default: { state: "ready", ui: null } });
    const { container } = render(<SparkPages via="/queue/flights.3f2a9c41" />);

    await vi.waitFor(() => expect(call).toHaveBeenCalled());
    await Promise.resolve();
    expect(container.innerHTML).toBe("");
  });
});

it("takes addresses of the web only", () => {
  expect(["https://spark.example", "http://h:1/jobs"].every(isWebAddress)).toBe(true);
  expect(["javascript:alert(1)", " http://h", "", null, 1].some(isWebAddress)).toBe(false);
});
