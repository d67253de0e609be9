/** A job that this worker has claimed: what its handler is given, and what is to be said of it. */

import { bytesOf, type Call, readBody, wellFormed } from "./body.ts";
import { JobStopped } from "./errors.ts";

/** What a handler is given of its job. */
export interface Job<Kwargs = Record<string, unknown>> {
  /** Its name for servers, as in `mail:s1:p1:1790000000000000`. */
  readonly descriptor: string;
  readonly queue: string;
  /** The type of job; "" for a raw one. */
  readonly name: string;
  /** Arguments by name. */
  readonly kwargs: Kwargs;
  /** Arguments by position. */
  readonly args: readonly unknown[];
  /** What travels with it, such as `traceparent`. */
  readonly headers: Readonly<Record<string, string>>;
  /** How often it was snoozed. */
  readonly snoozes: number;
  /** 1 for the first. */
  readonly attempt: number;
  readonly attemptsAllowed: number;
  readonly priority: number;
  readonly enqueuedAt: Date;
}

/** What a raw handler is given: the body as it was enqueued, beside the rest. */
export interface RawJob extends Job {
  readonly body: Uint8Array;
}

/** What a handler can do beside its work. */
export interface JobContext {
  /** Aborted when the job is to stop; its reason is a JobStopped, which says why. */
  readonly signal: AbortSignal;
  /** Aborted when the worker is told to end: the job may go on for the time of the drain. */
  readonly draining: AbortSignal;
  /** Say how far the job is, from 0 to 1, and in up to 200 characters; sent within a second. */
  progress(fraction: number, text?: string): void;
  /** Add lines to the log of the job, which keeps the last 100; sent within a second. */
  log(text: string): void;
}

/** A job as a dequeue answers it. */
export interface DequeuedJob {
  descriptor: string;
  claim_descriptor: string;
  body: string;
  body_encoding: string | null;
  priority: number;
  attempts_allowed: number;
  attempts_remaining: number;
  run_after_ms: number;
  enqueued_at_ms: number;
}

/** Why a handler was told to stop. */
export type StopWord = JobStopped["why"];

interface LogLine {
  text: string;
  at_ms: number;
}

const LOG_LINES = 100; // a server keeps no more of these
const LOG_LINE_CHARS = 1_024;
const PROGRESS_CHARS = 200;

/** One claim, from the dequeue until its ack is answered. Times are of `performance.now()`. */
export class Claim implements JobContext {
  readonly job: DequeuedJob;
  readonly queue: string;
  readonly shard: string;
  readonly beganAt = performance.now();
  /** The type of its job, for people and for the list of workers. */
  name = "";
  call: Call | null = null;
  /** When it was surely held last. */
  goodAt: number;
  /** When its next heartbeat is due. */
  dueAt: number;
  /** What became of its job is known. */
  isSettled = false;
  /** Runs until its time limit is over. */
  limit: ReturnType<typeof setTimeout> | undefined;
  /** Why its job was told to stop; null: it was not. */
  stopped: JobStopped | null = null;
  readonly draining: AbortSignal;
  #progress: { fraction: number; text: string } | null = null;
  #isProgressNew = false;
  #lines: LogLine[] = [];
  #lineAt = 0;
  #sentLines = 0;
  readonly #stop = new AbortController();
  readonly #onNews: () => void;

  constructor(job: DequeuedJob, goodAt: number, dueAt: number, draining: AbortSignal, onNews: () => void) {
    const [queue = "", shard = ""] = job.descriptor.split(":");
    [this.job, this.queue, this.shard] = [job, queue, shard];
    [this.goodAt, this.dueAt, this.draining, this.#onNews] = [goodAt, dueAt, draining, onNews];
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  get attempt(): number {
    return this.job.attempts_allowed - this.job.attempts_remaining + 1;
  }

  /** What names the claim in acks and heartbeats. */
  get names(): { descriptor: string; claim_descriptor: string } {
    return { descriptor: this.job.descriptor, claim_descriptor: this.job.claim_descriptor };
  }

  /** Read the body, once. Fail: nobody can read it. */
  read(): void {
    this.call = readBody(this.job.body, this.job.body_encoding);
    this.name = this.call?.name ?? "";
  }

  /** As handlers are given it. */
  shown(): Job {
    const { job, call } = this;
    return {
      descriptor: job.descriptor,
      queue: this.queue,
      name: this.name,
      kwargs: call?.kwargs ?? {},
      args: call?.args ?? [],
      headers: call?.headers ?? {},
      snoozes: call?.snoozes ?? 0,
      attempt: this.attempt,
      attemptsAllowed: job.attempts_allowed,
      priority: job.priority,
      enqueuedAt: new Date(job.enqueued_at_ms),
    };
  }

  /** The same with the bytes of the body. */
  shownRaw(): RawJob {
    return { ...this.shown(), body: bytesOf(this.job.body, this.job.body_encoding) };
  }

  /** Tell the handler to stop. Once: the first reason stands. */
  stop(why: StopWord, message: string): boolean {
    if (this.stopped || this.isSettled) return false;
    this.stopped = new JobStopped(why, message);
    this.#stop.abort(this.stopped);
    return true;
  }

  // these two are fields, so that a handler may take them out of its context
  readonly progress = (fraction: number, text = ""): void => {
    this.#progress = {
      fraction: Number.isFinite(fraction) ? fraction : 0,
      text: wellFormed(String(text), PROGRESS_CHARS),
    };
    this.#isProgressNew = true;
    this.#onNews();
  };

  readonly log = (text: string): void => {
    for (const line of String(text).split(/\r?\n/).slice(-LOG_LINES)) {
      this.#lineAt = Math.max(Date.now(), this.#lineAt + 1); // two lines of one time and text count as one
      this.#lines.push({ text: wellFormed(line, LOG_LINE_CHARS), at_ms: this.#lineAt });
    }
    const surplus = Math.max(0, this.#lines.length - LOG_LINES);
    this.#lines.splice(0, surplus);
    this.#sentLines = Math.max(0, this.#sentLines - surplus);
    this.#onNews();
  };

  /** The handler has said something that no heartbeat has carried. */
  get hasNews(): boolean {
    return this.#isProgressNew || this.#lines.length > this.#sentLines;
  }

  /** Its heartbeat with the news; `undo` has them said again. */
  beat(): { form: object; undo: () => void } {
    const progress = this.#isProgressNew ? this.#progress : null;
    const lines = this.#lines.slice(this.#sentLines);
    this.#isProgressNew = false;
    this.#sentLines = this.#lines.length;
    const form = { ...this.names, ...progress, ...(lines.length > 0 ? { log_lines: lines } : {}) };
    const undo = () => {
      this.#isProgressNew ||= progress !== null;
      this.#sentLines = Math.max(0, this.#sentLines - lines.length);
    };
    return { form, undo };
  }

  /** For its ack, all of it: a heartbeat that is under way may not arrive, and no line is kept twice. */
  get report(): object {
    const lines = this.#lines.length > 0 ? { log_lines: this.#lines } : {};
    return { ...(this.#progress ? { progress: this.#progress } : {}), ...lines };
  }
}
