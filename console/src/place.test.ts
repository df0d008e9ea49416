import { expect, it } from "vitest";
import { placeOf } from "./place";

it("finds the broker next to the console that it serves", () => {
  expect(placeOf("http://localhost:8080/console/#/x", null)).toEqual({ url: "ws://localhost:8080", http: "http://localhost:8080" });
});

it("names the path of the WebSocket where it is not the usual one", () => {
  expect(placeOf("https://broker.example/a/console/index.html?x=1", null)).toEqual({
    url: "wss://broker.example/a/stomp",
    http: "https://broker.example/a",
  });
});

it("takes the broker's address from the page of `nebula console`", () => {
  const page = "http://127.0.0.1:40001/console/";

  expect(placeOf(page, "ws://127.0.0.1:8080/stomp")).toEqual({ url: "ws://127.0.0.1:8080", http: "http://127.0.0.1:8080" });
  expect(placeOf(page, "wss://[::1]:8443/b/stomp")).toEqual({ url: "wss://[::1]:8443/b/stomp", http: "https://[::1]:8443/b" });
});

it("knows no address for HTTP where the broker is reached by STOMP or by another path", () => {
  const page = "http://127.0.0.1:40001/console/";

  expect(placeOf(page, "stomps://broker.example:61614")).toEqual({ url: "stomps://broker.example:61614", http: null });
  expect(placeOf(page, "ws://rabbit.example:15674/ws")).toEqual({ url: "ws://rabbit.example:15674/ws", http: null });
});
