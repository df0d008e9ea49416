// Preact runs effects after the next frame, or after a timeout if no frame comes. A timeout that is still open
// when a test file ends fires after jsdom is gone, and fails the run. As a microtask an effect always runs in its test.
import { options, type Options } from "preact";

(options as Options & { requestAnimationFrame: (run: () => void) => void }).requestAnimationFrame = queueMicrotask;
