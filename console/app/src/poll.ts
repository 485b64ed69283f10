// Live data: a page reads again and again while somebody looks at it.
import { useEffect, useState } from "preact/hooks";

const turnMs = 1000;
let next = 0;

/** turn waits until a page may repeat a request: all that is on it repeats at most one request a second. */
async function turn(): Promise<void> {
  const now = performance.now();
  const wait = Math.max(0, next - now);
  next = now + wait + turnMs;
  await new Promise((done) => setTimeout(done, wait));
}

/** seen waits until the page is in sight. */
function seen(): Promise<void> {
  return new Promise((done) => {
    if (!document.hidden) return done();
    document.addEventListener("visibilitychange", () => done(), { once: true });
  });
}

/** Live is the latest value that was read, and why the last try to read it failed. */
export interface Live<T> {
  value: T | undefined;
  fault: Error | undefined;
  /** again reads at once. */
  again(): void;
}

/**
 * useLive reads a value now and every so many milliseconds, in turn with whatever else the page reads. It begins anew
 * when what it depends on changes, and keeps the last value while a read fails. everyMs may depend on the latest value;
 * 0: it reads once. It also ends when a value is the last one: nothing changes it any more.
 */
export function useLive<T>(
  read: (signal: AbortSignal) => Promise<T>,
  everyMs: number | ((value: T | undefined) => number),
  on: unknown[] = [],
  last: (value: T) => boolean = () => false,
): Live<T> {
  const [held, hold] = useState<{ value: T; on: unknown[] }>();
  const [fault, setFault] = useState<Error>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let latest: T | undefined;
    const every = () => (typeof everyMs === "number" ? everyMs : everyMs(latest));
    void (async () => {
      for (let first = true; !stop.signal.aborted; first = false) {
        if (first) {
          next = Math.max(next, performance.now() + turnMs);
        } else {
          await new Promise((done) => setTimeout(done, Math.max(0, every() - turnMs)));
          await seen();
          await turn();
        }
        if (stop.signal.aborted) return;
        try {
          const read_ = await read(stop.signal);
          if (stop.signal.aborted) return;
          latest = read_;
          hold({ value: read_, on });
          setFault(undefined);
          if (last(read_)) return;
        } catch (failed) {
          if (!stop.signal.aborted) setFault(failed as Error);
        }
        if (every() === 0) return;
      }
    })();
    return () => stop.abort();
  }, [...on, round]);
  const value = held && held.on.every((v, i) => v === on[i]) ? held.value : undefined;
  return { value, fault, again: () => setRound((n) => n + 1) };
}
