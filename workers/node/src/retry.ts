/** Retry policies, with the delays of the Python framework (docs/workers-retries.md). Attempts count from 1. */

/** When a failed job is tried again. */
export interface RetryPolicy {
  /** How many retries there are, unless the job itself was enqueued with more attempts. */
  readonly retries: number;
  /** The milliseconds until the next attempt, after `attempt` failed with `error`; null: no attempt follows. */
  delayMs(attempt: number, error: unknown): number | null;
}

/** What all policies take. */
export interface RetryOptions {
  /** 10, unless given. */
  retries?: number;
  /** No delay is longer: an hour, unless given. */
  capMs?: number;
  /** A delay is drawn from this share below to this share above its value: 0.1, unless given. */
  jitter?: number;
}

function policy(baseMs: (attempt: number) => number, options: RetryOptions): RetryPolicy {
  const { retries = 10, capMs = 3_600_000, jitter = 0.1 } = options;
  return {
    retries,
    delayMs(attempt) {
      const delay = Math.min(baseMs(attempt), capMs);
      const low = delay * (1 - jitter);
      const high = Math.min(delay * (1 + jitter), capMs); // spread below the cap as well
      return Math.ceil(low + Math.random() * (high - low));
    },
  };
}

/** The default: five delays a step apart (10 s to 50 s), then twice as long each time, up to an hour. */
export function standard(options: RetryOptions & { stepMs?: number } = {}): RetryPolicy {
  const step = options.stepMs ?? 10_000;
  return policy((attempt) => step * (attempt <= 5 ? attempt : 5 * 2 ** (attempt - 5)), options);
}

/** `firstMs`, then `factor` times (2, unless given) as long each time, up to an hour. */
export function exponential(firstMs: number, options: RetryOptions & { factor?: number } = {}): RetryPolicy {
  return policy((attempt) => firstMs * (options.factor ?? 2) ** (attempt - 1), options);
}

/** The same delay each time; of a list, one after the other, as many retries as it is long. */
export function constant(delayMs: number | readonly number[], options: RetryOptions = {}): RetryPolicy {
  const delays = typeof delayMs === "number" ? [delayMs] : delayMs;
  const bounds = { retries: typeof delayMs === "number" ? 10 : delays.length, capMs: Infinity, ...options };
  return policy((attempt) => delays[Math.min(attempt, delays.length) - 1] ?? 0, bounds);
}

/** The first failure is final. */
export const never: RetryPolicy = { retries: 0, delayMs: () => null };
