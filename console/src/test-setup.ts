// Preact runs effects after the next frame, with a timer beside it in case no frame comes. A timer that is still open
// when a test file ends fires after jsdom is gone, and fails the run. As a microtask an effect always runs in its test.
import { options, type Options } from "preact";

(options as Options & { requestAnimationFrame: (run: () => void) => void }).requestAnimationFrame = queueMicrotask;
