// Judges our broker with @stomp/stompjs over the WebSockets of Node's `ws`.
//
// Usage: node node.js PORT VERSION NAMESPACE SILENCE_SECONDS
//
// One line of JSON for each check: {"check": ..., "ok": ..., "detail": ...}.

import WebSocket from 'ws';

import { judge } from './judge.js';

const [port, version, namespace, silence] = process.argv.slice(2);
const connect = (protocols) => new WebSocket(`ws://127.0.0.1:${port}/stomp`, protocols);

await judge({ connect, version, namespace, silence: Number(silence) }, (result) => {
  console.log(JSON.stringify(result));
});
// A check that failed may have left a connection open.
process.exit();
