/**
 * Jobs that no handler here knows: requeued without an attempt spent, ever less often, and failed after a time. The
 * first line of such a job's status says since when, and is all that is kept: it is read and written as by
 * workers/pinlater_workers/worker/unknown_jobs.py, so that it counts for all workers together.
 */

import type { Result } from "./acks.ts";
import { wellFormed } from "./body.ts";
import type { Claim } from "./claim.ts";
import { failed, oneLine, requeued } from "./outcome.ts";

/** How long a job of an unknown type stays away at first, and when it fails. Milliseconds. */
export interface UnknownOptions {
  /** How long it stays away at first: 10,000, unless given. */
  unknownDelayMs?: number;
  /** For how long no worker may know it: 86,400,000 (a day), unless given; `Infinity`: for ever. */
  unknownLimitMs?: number;
}

const LONGEST_ROUND_MS = 600_000;
const ROUNDS_PER_WAIT = 4; // a round is a quarter of the time before it
const MOST_NAMED = 100;
const MOST_NAME_CHARS = 100;
const REPORTED_MS = 900_000;
const LINE =
  /^not run: .* since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) \(.*; looked for again after (\S+), later less often/m;
const UNIT_MS: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

/** What a status says: since when nobody here could run the job, and the first round. */
export interface FirstSeen {
  sinceMs: number;
  firstMs: number;
}

/** The jobs of unknown types that one worker meets. */
export class UnknownJobs {
  readonly #firstMs: number;
  readonly #limitMs: number;
  readonly #place: string;
  readonly #onNews: (line: string) => void;
  readonly #met = new Map<string, { queue: string; job_type: string; jobs: number; at: number }>();

  /** `place`: host and process. `onNews`: gets a line for the log when a type is met for the first time, or a job fails. */
  constructor(options: UnknownOptions, place: string, onNews: (line: string) => void) {
    const { unknownDelayMs = 10_000, unknownLimitMs = 86_400_000 } = options;
    if (!(unknownDelayMs >= 1)) throw new TypeError(`unknownDelayMs is ${unknownDelayMs}; allowed: 1 or more`);
    [this.#firstMs, this.#limitMs, this.#place, this.#onNews] = [unknownDelayMs, unknownLimitMs, place, onNews];
  }

  /** What becomes of a job with this status: it comes back at its next round, or has failed. */
  decide(claim: Claim, status: string): Result {
    const now = Date.now();
    const { run_after_ms: runAfterMs } = claim.job;
    const seen = firstSeen(status);
    this.#meet(claim, seen === null);
    const isPlanned = seen && runAfterMs > seen.sinceMs && nextRound(seen, runAfterMs - 1) === runAfterMs;
    // somebody ran it or put it off meanwhile, and the end is near: the time counts from anew
    if (!seen || (!isPlanned && now - seen.sinceMs >= this.#limitMs / 2)) {
      const anew = { sinceMs: now, firstMs: this.#firstMs };
      return requeued(claim, { run_after_ms: nextRound(anew, now), prepend_status: this.#firstLine(claim, now) });
    }
    if (!isPlanned || now - seen.sinceMs < this.#limitMs) return requeued(claim, { run_after_ms: nextRound(seen, now) });
    const waited = durationText(Math.floor((now - seen.sinceMs) / 1000) * 1000);
    const text = `${nameOf(claim)}, unknown to the workers of queue ${claim.queue} for ${waited}`;
    const error = Object.assign(new Error(text), { name: "UnknownType", stack: "" });
    this.#onNews(`job ${claim.job.descriptor} has failed, no attempt follows: ${text}`);
    return failed(claim, error, null, this.#place).result;
  }

  /** What was met of late, for the list of workers. */
  report(): object[] {
    const now = performance.now();
    return [...this.#met.values()]
      .filter((each) => now - each.at < REPORTED_MS)
      .map(({ at, ...each }) => ({ ...each, last_ms: Math.round(now - at) }));
  }

  #meet(claim: Claim, isFirst: boolean): void {
    const { queue } = claim;
    const job_type = wellFormed(claim.name, MOST_NAME_CHARS);
    const key = `${queue} ${job_type}`;
    const known = this.#met.get(key);
    if (known) [known.jobs, known.at] = [known.jobs + Number(isFirst), performance.now()];
    else if (this.#met.size < MOST_NAMED) {
      this.#met.set(key, { queue, job_type, jobs: Number(isFirst), at: performance.now() });
      this.#onNews(`queue ${queue} has jobs that no handler here knows, ${nameOf(claim)}; they are requeued`);
    }
  }

  #firstLine(claim: Claim, now: number): string {
    const who = `${nameOf(claim)}, unknown to the workers of queue ${claim.queue}`;
    const since = `since ${new Date(now).toISOString()} (${this.#place})`;
    const ends = this.#limitMs === Infinity ? "" : `; FAILED after ${durationText(this.#limitMs)}`;
    return `not run: ${who} ${since}; looked for again after ${durationText(this.#firstMs)}, later less often${ends}\n`;
  }
}

function nameOf({ call, name }: Claim): string {
  return call === null ? "a body that is not the framework's" : `type ${oneLine(name, MOST_NAME_CHARS)}`;
}

/** Of the newest line that says so: it stands in front. */
export function firstSeen(status: string): FirstSeen | null {
  const [, since = "", after = ""] = LINE.exec(status) ?? [];
  const parts = [...after.matchAll(/(\d+)(d|h|ms|m|s)/g)];
  const firstMs = parts.reduce((sum, [, count, unit = "ms"]) => sum + Number(count) * (UNIT_MS[unit] ?? 1), 0);
  const sinceMs = Date.parse(since);
  return firstMs > 0 && !Number.isNaN(sinceMs) ? { sinceMs, firstMs } : null;
}

/** The first round after that moment. */
export function nextRound({ sinceMs, firstMs }: FirstSeen, afterMs: number): number {
  let at = sinceMs;
  while (at <= afterMs) {
    const quarter = Math.floor((at - sinceMs) / ROUNDS_PER_WAIT);
    const step = Math.max(firstMs, Math.min(quarter, LONGEST_ROUND_MS));
    const areAlike = firstMs >= LONGEST_ROUND_MS || quarter >= LONGEST_ROUND_MS; // from here on
    at += (areAlike ? Math.floor((afterMs - at) / step) + 1 : 1) * step;
  }
  return at;
}

/** As the project writes durations: 1d, 1h30m, 10s. */
export function durationText(ms: number): string {
  let left = Math.round(ms);
  let text = "";
  for (const [unit, unitMs] of Object.entries(UNIT_MS)) {
    const count = Math.floor(left / unitMs);
    if (count > 0) text += `${count}${unit}`;
    left -= count * unitMs;
  }
  return text || "0s";
}
