// The time axis of a chart. All times are seconds since 1970.

// A row that has just begun is drawn at the end of this number of seconds.
const FEWEST_SECONDS = 30;

/**
 * Where the axis begins and ends.
 *
 * @param times of the values, in order; without any the axis ends now
 */
export function spanOf(times: ArrayLike<number>, now: number): [first: number, last: number] {
  const last = times[times.length - 1] ?? now;
  return [Math.min(times[0] ?? last, last - FEWEST_SECONDS), last];
}

export function clock(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

/** How the ticks of the axis are written: with seconds where they are close to each other. */
export function clocks(ticks: readonly number[]): string[] {
  const isFine = ticks.length > 1 && ticks[1]! - ticks[0]! < 60;
  return ticks.map((tick) => (isFine ? clock(tick) : clock(tick).slice(0, 5)));
}
