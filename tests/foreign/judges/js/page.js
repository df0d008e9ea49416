// Judges our broker with @stomp/stompjs in a browser, all versions at once, and tells the server of the page.
//
// Usage: page.html?ports=PORT,PORT,PORT&namespace=NAMESPACE&silence=SECONDS&versions=1.0,1.1,1.2&stranger=URL
//
// Each version has a broker of its own, at the port of its place.
//
// POST /results/VERSION has {"check": ..., "ok": ..., "detail": ...}, and at the end {"check": null}. The page
// at `stranger` is this one at another host name: it only tries to connect, and tells of it as "stranger".

import { judge } from './judge.js';

const plan = Object.fromEntries(new URLSearchParams(location.search));
const ports = plan.ports.split(',');
const connectTo = (port) => (protocols) => new WebSocket(`ws://127.0.0.1:${port}/stomp`, protocols);

function tell(version, result) {
  return fetch(`/results/${version}`, { method: 'POST', body: JSON.stringify(result) });
}

async function judgeVersion(version, place) {
  const connect = connectTo(ports[place]);
  const namespace = `${plan.namespace}-${version}`;
  const silence = Number(plan.silence);
  await judge({ connect, version, namespace, silence }, (result) => tell(version, result));
  await tell(version, { check: null });
}

async function tryAsStranger() {
  const opened = await new Promise((resolve) => {
    const socket = connectTo(ports[0])(['v12.stomp']);
    socket.onopen = () => resolve(true);
    socket.onerror = () => resolve(false);
  });
  const detail = opened ? 'the WebSocket was opened' : '';
  await tell('stranger', { check: 'kept-out', ok: !opened, detail });
  await tell('stranger', { check: null });
}

if (plan.stranger) {
  const frame = document.createElement('iframe');
  frame.src = plan.stranger;
  document.body.append(frame);
}
await Promise.all(plan.versions ? plan.versions.split(',').map(judgeVersion) : [tryAsStranger()]);
