/**
 * The errors of the kit, and what a handler throws to say what becomes of its job.
 *
 *     PinLaterError             a call failed; `reason` is the word for programs
 *     Fail, RetryAfter, Snooze  thrown by handlers
 *     JobStopped                why the signal of a job is aborted
 */

/** What a server says of a request that failed (docs/http.md, "Errors"). */
export interface Problem {
  reason: string;
  detail: string;
  retryable: boolean;
  status?: number;
  field?: string | null;
  retry_after_ms?: number | null;
  acks_applied?: boolean | null;
  job_descriptors?: string[] | null;
}

/**
 * A call failed. `reason` is a word that stays the same, as in `QUEUE_NOT_FOUND`: those of docs/errors.md, and
 * `SERVER_UNREACHABLE` (no server answered, and none has the request), `OUTCOME_UNKNOWN` (the request may have been
 * carried out), `TIMED_OUT` (a wait was over first), `PROTOCOL_ERROR` (the answer is none of a PinLater server).
 */
export class PinLaterError extends Error {
  override readonly name = "PinLaterError";
  readonly reason: string;
  /** The same call may succeed later. */
  readonly retryable: boolean;
  /** Of the answer in HTTP; 0: there was none. */
  readonly status: number;
  /** When to come again, where the server says so. */
  readonly retryAfterMs: number | null;
  /** The field of the request that is wrong. */
  readonly field: string;
  /** The acks that rode on a dequeue were carried out. */
  readonly acksApplied: boolean;
  /** Of an enqueue: the jobs that are stored. */
  readonly descriptors: readonly string[];

  constructor(problem: Problem, options?: ErrorOptions) {
    super(`${problem.reason}: ${problem.detail}`, options);
    this.reason = problem.reason;
    this.retryable = problem.retryable;
    this.status = problem.status ?? 0;
    this.retryAfterMs = problem.retry_after_ms ?? null;
    this.field = problem.field ?? "";
    this.acksApplied = problem.acks_applied ?? false;
    this.descriptors = problem.job_descriptors ?? [];
  }

  /** No server said anything. */
  get isUnanswered(): boolean {
    return this.status === 0;
  }
}

/** The error of that reason which no server sent. */
export function failure(reason: string, detail: string, cause?: unknown): PinLaterError {
  return new PinLaterError({ reason, detail, retryable: reason !== "PROTOCOL_ERROR" }, { cause });
}

/** Thrown by a handler: the job has failed, whatever attempts are left. */
export class Fail extends Error {
  override readonly name = "Fail";
}

/** Thrown by a handler: this attempt failed, and the next one comes in so many milliseconds, exactly. */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  readonly delayMs: number;

  constructor(delayMs: number, message = "", options?: ErrorOptions) {
    super(message, options);
    this.delayMs = delayMs;
  }
}

/**
 * Thrown by a handler: not now, but in so many milliseconds, with no attempt spent. The 101st snooze of a job fails it.
 * The body of a raw job has no place for the count, so a raw job spends an attempt.
 */
export class Snooze extends Error {
  override readonly name = "Snooze";
  readonly delayMs: number;

  constructor(delayMs: number, message = "") {
    super(message);
    this.delayMs = delayMs;
  }
}

/**
 * Why a job is to stop: somebody cancelled it, its claim was lost, it is over its time limit, or the worker ends. It is
 * the reason of the job's `AbortSignal`, so a handler that passes the signal on rejects with it.
 */
export class JobStopped extends Error {
  override readonly name = "JobStopped";
  readonly why: "cancelled" | "lost" | "time_limit" | "stopping";

  constructor(why: JobStopped["why"], message: string) {
    super(message);
    this.why = why;
  }
}
