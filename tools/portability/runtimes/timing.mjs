// A time is the median of so many runs, of fewer where they take long.
const RUNS = 21;
const SECONDS = 3;

/** Seconds of a run. */
export async function median(run) {
  const times = [];
  const until = performance.now() + 1000 * SECONDS;
  while (times.length === 0 || (times.length < RUNS && performance.now() < until)) {
    const begin = performance.now();
    await run();
    times.push((performance.now() - begin) / 1000);
  }
  times.sort((a, b) => a - b);
  return times[times.length >> 1];
}
