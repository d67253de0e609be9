/** A worker: claims jobs for its free slots, runs their handlers, says what became of them, and ends in order. */

import { hostname } from "node:os";
import { basename } from "node:path";
import process from "node:process";
import { setImmediate } from "node:timers/promises";

import { Acks, type RidingAcks } from "./acks.ts";
import { wellFormed } from "./body.ts";
import { Claim, type DequeuedJob, type Job, type JobContext, type RawJob, type StopWord } from "./claim.ts";
import { backoffMs, Connection, type ConnectionOptions, sleep } from "./connection.ts";
import { PinLaterError } from "./errors.ts";
import { type Command, Heartbeats } from "./heartbeats.ts";
import { handedBack, type Outcome, type OutcomeWord, success, thrown } from "./outcome.ts";
import { type RetryPolicy, standard } from "./retry.ts";
import { UnknownJobs, type UnknownOptions } from "./unknown.ts";
import { VERSION } from "./version.ts";

/** Does a job of a type. What it returns is the job's result, where that is kept. */
export type Handler<Kwargs> = (job: Job<Kwargs>, context: JobContext) => unknown;

/** Does a job of a queue whose bodies are raw. */
export type RawHandler = (job: RawJob, context: JobContext) => unknown;

/** What counts for one type of job. */
export interface HandlerOptions {
  /** When a failed job is tried again; that of the worker, unless given. */
  retry?: RetryPolicy;
  /** Keep what the handler returns as the job's result: false, unless given. A producer may say otherwise for a job. */
  keepResult?: boolean;
  /**
   * How long an attempt may run: 3,600,000 (an hour), unless given; `Infinity`: for ever. Beyond it the attempt has
   * failed with an error named `TimeLimitExceeded`, its signal is aborted, and what the handler returns is dropped.
   */
  timeLimitMs?: number;
}

/** What a program is told of its worker, for metrics and logs. None may take long; what they throw is logged. */
export interface WorkerHooks {
  /** A server has answered a poll. */
  polled?(jobs: number, ms: number): void;
  /** A handler begins. */
  began?(job: Job): void;
  /** What became of an attempt is known here. `error`: what the handler threw. */
  ended?(job: Job, outcome: OutcomeWord, ms: number, error: unknown): void;
  /** A handler was told to stop. */
  stopping?(job: Job, why: StopWord): void;
  /** The worker takes no more jobs: it ends. */
  draining?(): void;
  /** A call failed; it is made again where that can help. */
  failed?(doing: string, error: unknown): void;
}

/** Options of a worker. Times are milliseconds. */
export interface WorkerOptions extends ConnectionOptions, UnknownOptions {
  /** The queues to take jobs from; as an object, with weights: one of 3 gives three jobs where one of 1 gives one. */
  queues: readonly string[] | Readonly<Record<string, number>>;
  /** How many jobs run at once: 8, unless given. */
  slots?: number;
  /** How long a claim holds without a heartbeat: 30,000, unless given. */
  leaseMs?: number;
  /** How long running jobs may go on when the worker is to end: 30,000, unless given. */
  drainMs?: number;
  /** How long a server may hold back its answer while there are no jobs: a third of the lease, 20,000 at most. */
  pollWaitMs?: number;
  /** When failed jobs are tried again: `standard()`, unless given. */
  retry?: RetryPolicy;
  /** The name in the list of workers: that of the program's file, unless given. */
  name?: string;
  /** The version of your program, for the list of workers. */
  version?: string;
  hooks?: WorkerHooks;
  /** Gets a line for what an operator should know: `console.error`, unless given. */
  log?: (line: string) => void;
}

const LONGEST_POLL_MS = 20_000; // these as in the Python framework
const TIME_LIMIT_MS = 3_600_000;
const LOOK_AGAIN_MS = 2_000;
const LAST_ACKS_MS = 5_000;
const HURRIED_ACKS_MS = 2_000;
const LAST_ANSWER_MS = 2_000; // what a poll that is ended may take for an answer that is on its way
const REFUSED_PAUSE_MS = 2_000;
const REFUSED_TIMEOUT_MS = 60_000; // servers hold back answers to wrong tokens
const MOST_NAMED = 100;
const MOST_NAME_CHARS = 100;
const MOST_UNACKED = 10_000; // beyond that no more jobs are taken until a server has confirmed some
const ANSWER_MS = 5_000; // beyond its wait, a poll without an answer has come to nobody
const LONGEST_TIMER_MS = 2 ** 31 - 1; // a longer one of JavaScript ends at once
const SETTLE_MS = 100; // what a handler that was told to stop may take to return

interface DequeueAnswer {
  jobs: DequeuedJob[];
  queue_errors?: Record<string, { reason: string; detail: string; retry_after_ms?: number | null }> | null;
  ack_outcomes?: string[][] | null;
}

interface Registered extends HandlerOptions {
  run: (claim: Claim) => unknown;
  timeLimitMs: number;
}

/** Runs jobs of some queues. Give it handlers, then `run()` it, or `start()` and `stop()` it. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #weights: Record<string, number>;
  readonly #slots: number;
  readonly #leaseMs: number;
  readonly #retry: RetryPolicy;
  readonly #handlers = new Map<string, Registered>();
  readonly #rawHandlers = new Map<string, Registered>();
  readonly #connection: Connection;
  readonly #heartbeats: Heartbeats;
  readonly #acks: Acks;
  readonly #running = new Set<Claim>();
  readonly #stuck = new Set<Claim>(); // over their time limits, and their handlers have not returned: slots are taken
  readonly #unknown: UnknownJobs;
  readonly #id = crypto.randomUUID().replaceAll("-", "").slice(0, 16);
  readonly #place = `${hostname()}:${process.pid}`;
  readonly #startedAt = performance.now();
  readonly #drain = new AbortController();
  readonly #hurry = new AbortController();
  #poll: { ending: AbortController; abort: AbortController } | null = null;
  #waiters: (() => void)[] = [];
  #isQuiet = false;
  #isLeaving = false;
  #troubled = new Map<string, string>();
  #hasLooked = false;
  #failure: PinLaterError | undefined;
  #life: Promise<void> | undefined;

  constructor(options: WorkerOptions) {
    const { queues, slots = 8, leaseMs = 30_000 } = options;
    this.#options = options;
    this.#weights = Array.isArray(queues)
      ? Object.fromEntries((queues as string[]).map((queue) => [queue, 1]))
      : { ...(queues as Record<string, number>) };
    if (Object.keys(this.#weights).length === 0) throw new TypeError("queues: none is named");
    if (!(slots >= 1)) throw new TypeError(`slots is ${slots}; allowed: 1 or more`);
    if (!(leaseMs >= 1_000)) throw new TypeError(`leaseMs is ${leaseMs}; allowed: 1000 or more`);
    [this.#slots, this.#leaseMs, this.#retry] = [Math.floor(slots), leaseMs, options.retry ?? standard()];
    const connection = { source: this.#place, ...options };
    this.#connection = new Connection(connection, () => this.#heartbeats.connectionLost());
    const failed = (doing: string, error: unknown) => this.#hook("failed", doing, error);
    const peer = {
      queues: Object.keys(this.#weights),
      leaseMs,
      report: () => this.#report(),
      commanded: (command: Command) => this.#commanded(command),
      stop: (claim: Claim, why: StopWord, message: string) => this.#stopJob(claim, why, message),
      failed,
    };
    this.#heartbeats = new Heartbeats(peer, this.#connection);
    this.#unknown = new UnknownJobs(options, this.#place, (line) => {
      this.#log(line);
      this.#heartbeats.reportSoon();
    });
    this.#acks = new Acks(this.#connection, {
      over: (claim) => {
        this.#heartbeats.forget(claim);
        this.#wake(); // there may have been too many that no server had confirmed
      },
      decide: (claim, status) => this.#unknown.decide(claim, status),
      holds: (claim) => this.#heartbeats.holds(claim),
      log: (line) => this.#log(line),
      failed,
    });
  }

  /** The handler for jobs of that type, in all queues of this worker. */
  handle<Kwargs = Record<string, unknown>>(name: string, handler: Handler<Kwargs>, options: HandlerOptions = {}): this {
    this.#handlers.set(name, { run: (claim) => handler(claim.shown() as Job<Kwargs>, claim), ...checked(options) });
    return this;
  }

  /** The handler for bodies of that queue which no kit wrote. */
  handleRaw(queue: string, handler: RawHandler, options: HandlerOptions = {}): this {
    this.#rawHandlers.set(queue, { run: (claim) => handler(claim.shownRaw(), claim), ...checked(options) });
    return this;
  }

  /**
   * Work until SIGTERM or SIGINT, for a program that does nothing else. The first signal drains: no more jobs are
   * taken, those that run have `drainMs` to end, and the rest is handed back; a second one hands all back at once.
   * Rejects where the token is refused. A handler that heeds nothing may still run: exit when this resolves.
   */
  async run(): Promise<void> {
    const stop = () => void this.stop().catch(() => {}); // what is awaited below rejects as well
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, stop);
    try {
      await this.start();
    } finally {
      for (const signal of ["SIGTERM", "SIGINT"] as const) process.off(signal, stop);
    }
  }

  /** Begin, and resolve when the worker has ended. Rejects where the token is refused. */
  start(): Promise<void> {
    return (this.#life ??= this.#live());
  }

  /** Drain, as SIGTERM does; asked again: hand back what runs at once. Resolves when the worker has ended. */
  stop(): Promise<void> {
    (this.#drain.signal.aborted ? this.#hurry : this.#drain).abort(new Error("the worker is told to end"));
    this.#wake();
    return this.#life ?? Promise.resolve();
  }

  async #live(): Promise<void> {
    this.#heartbeats.reportSoon();
    const polls = this.#pollUntilDrained();
    await aborted(this.#drain.signal);
    this.#hook("draining");
    this.#heartbeats.reportSoon();
    this.#endPoll();
    await polls;
    await this.#untilIdle(this.#options.drainMs ?? 30_000, this.#hurry.signal);
    for (const claim of this.#running) this.#stopJob(claim, "stopping", "the worker ends");
    await this.#untilIdle(SETTLE_MS);
    for (const claim of this.#running) this.#settle(claim, handedBack(claim), undefined);
    await this.#acks.close(this.#hurry.signal.aborted ? HURRIED_ACKS_MS : LAST_ACKS_MS);
    await this.#heartbeats.close();
    if (this.#failure) throw this.#failure;
  }

  // -- polls: one at a time, for all queues ------------------------------------------------------------------------

  async #pollUntilDrained(): Promise<void> {
    let failures = 0;
    const isOver = () => this.#drain.signal.aborted;
    while (!isOver()) {
      const free = this.#slots - this.#running.size - this.#stuck.size;
      if (this.#isQuiet || free <= 0 || this.#acks.size > MOST_UNACKED) {
        await this.#change();
        continue;
      }
      // half of the slots at most where jobs run for longer: while these run, the next ones are on their way
      const limit = this.#running.size === 0 ? free : Math.min(free, Math.ceil(this.#slots / 2));
      const riding = this.#acks.take();
      let pauseMs = 0;
      try {
        const answer = await this.#dequeue(limit, riding);
        failures = 0;
        pauseMs = this.#trouble(answer);
        if (answer.jobs.length > 0) await setImmediate(); // those that end at once ride on the next poll
      } catch (error) {
        if (isOver() || this.#isQuiet) continue;
        this.#hook("failed", "a dequeue", error);
        pauseMs = backoffMs(failures++);
        if (error instanceof PinLaterError) {
          if (isForbidden(error) && (await this.#isTokenUnknown())) return this.#fail(error);
          const hintMs = isForbidden(error) ? REFUSED_PAUSE_MS : (error.retryAfterMs ?? 0);
          pauseMs = Math.max(pauseMs, Math.min(hintMs, LOOK_AGAIN_MS));
        }
      }
      if (pauseMs > 0) await sleep(pauseMs, this.#drain.signal).catch(() => {});
    }
  }

  /** The servers refuse the token twice, so that it could be replaced. Else rules forbid something, and may change. */
  async #isTokenUnknown(): Promise<boolean> {
    for (const pauseMs of [0, REFUSED_PAUSE_MS]) {
      try {
        await sleep(pauseMs, this.#drain.signal);
        await this.#connection.call("/v1/access", { timeoutMs: REFUSED_TIMEOUT_MS, signal: this.#drain.signal });
        return false;
      } catch (error) {
        if (!isForbidden(error)) return false; // the dequeues say what is wrong
      }
    }
    return true;
  }

  async #dequeue(limit: number, riding: RidingAcks): Promise<DequeueAnswer> {
    const waitMs = this.#waitMs();
    const beganAt = performance.now();
    const poll = (this.#poll = { ending: new AbortController(), abort: new AbortController() });
    const binds = this.#connection.holdsConnections && this.#connection.mayHave("release_on_disconnect");
    const body = {
      queues: Object.entries(this.#weights).map(([queue, weight]) => ({ queue, weight })),
      limit,
      wait_ms: waitMs,
      claim_timeout_ms: this.#leaseMs,
      acks: riding.forms,
      ...(binds ? { release_on_disconnect: true } : {}),
    };
    const onAnswer = () => (this.#poll = null); // jobs are on their way: they are not to be lost
    const ends = { timeoutMs: waitMs + ANSWER_MS, signal: poll.abort.signal, ending: poll.ending.signal };
    const options = { body, ...ends, onAnswer, isPoll: true };
    try {
      const answer = (await this.#connection.call("/v1/dequeue", options)) as DequeueAnswer;
      this.#acks.rode(riding, answer.ack_outcomes ?? null);
      this.#hook("polled", answer.jobs.length, performance.now() - beganAt);
      for (const job of answer.jobs) this.#begin(job, beganAt);
      this.#hasLooked = true;
      return answer;
    } catch (error) {
      const isOlder = ["release_on_disconnect", "permanent"].some((each) => this.#connection.refusedField(each, error));
      if (error instanceof PinLaterError && error.acksApplied) this.#acks.rode(riding, null);
      else this.#acks.fell(riding);
      if (isOlder) return { jobs: [] };
      throw error;
    } finally {
      this.#poll = null;
    }
  }

  /** News that the trouble of a queue is over is not kept waiting for, and the first poll says what is wrong. */
  #waitMs(): number {
    if (!this.#hasLooked || this.#troubled.size >= Object.keys(this.#weights).length) return 0;
    const waitMs = Math.min(this.#options.pollWaitMs ?? LONGEST_POLL_MS, this.#leaseMs / 3, LONGEST_POLL_MS);
    return Math.round(this.#troubled.size > 0 ? Math.min(waitMs, LOOK_AGAIN_MS) : waitMs);
  }

  /** Logs what is new of the queues' errors. The pause before the next poll, where no queue can be waited for. */
  #trouble({ jobs, queue_errors: errors }: DequeueAnswer): number {
    const before = this.#troubled;
    this.#troubled = new Map(Object.entries(errors ?? {}).map(([queue, error]) => [queue, error.reason]));
    for (const [queue, { reason, detail }] of Object.entries(errors ?? {})) {
      const isNews = before.get(queue) !== reason && reason !== "RATE_LIMITED";
      if (isNews) this.#log(`no jobs from queue ${queue}: ${detail}`);
    }
    for (const queue of before.keys()) if (!this.#troubled.has(queue)) this.#log(`queue ${queue} gives jobs again`);
    if (jobs.length > 0 || this.#troubled.size < Object.keys(this.#weights).length) return 0;
    const hints = Object.values(errors ?? {}).map((error) => error.retry_after_ms ?? LOOK_AGAIN_MS);
    return Math.max(20, Math.min(LOOK_AGAIN_MS, ...hints));
  }

  /** The poll that waits ends, and with its connection claims that hang on it, unless heartbeats keep them. */
  #endPoll(): void {
    const poll = this.#poll;
    const abort = () => this.#poll === poll && poll?.abort.abort(new Error("the worker takes no more jobs"));
    if (!this.#connection.holdsConnections) return void abort();
    poll?.ending.abort();
    setTimeout(abort, LAST_ANSWER_MS).unref?.();
  }

  // -- jobs --------------------------------------------------------------------------------------------------------

  #begin(job: DequeuedJob, goodAt: number): void {
    const dueAt = performance.now() + this.#heartbeats.intervalMs;
    const claim = new Claim(job, goodAt, dueAt, this.#drain.signal, () => this.#heartbeats.hasNews());
    this.#heartbeats.watch(claim);
    this.#running.add(claim);
    if (this.#drain.signal.aborted) return this.#settle(claim, handedBack(claim), undefined); // it came too late
    let registered: Registered | undefined;
    try {
      claim.read();
      registered = claim.call ? this.#handlers.get(claim.name) : this.#rawHandlers.get(claim.queue);
    } catch (error) {
      return this.#settle(claim, thrown(claim, error, this.#retry, this.#place), error);
    }
    if (!registered) {
      const result = { claim, kind: "unknown", form: {}, chars: 0 } as const;
      return this.#settle(claim, { word: "handed_back", result }, undefined);
    }
    void this.#attempt(claim, registered);
  }

  /** Nothing that a handler throws leaves this. */
  async #attempt(claim: Claim, registered: Registered): Promise<void> {
    const { run, timeLimitMs, keepResult = false, retry = this.#retry } = registered;
    this.#hook("began", claim.shown());
    const late = () => this.#overLimit(claim, timeLimitMs, retry);
    claim.limit = timeLimitMs === Infinity ? undefined : setTimeout(late, timeLimitMs);
    let outcome: Outcome;
    let error: unknown;
    try {
      const value = await run(claim);
      outcome = success(claim, value, keepResult);
    } catch (raised) {
      error = raised;
      outcome = thrown(claim, raised, retry, this.#place);
    }
    if (this.#stuck.delete(claim)) this.#wake();
    this.#settle(claim, outcome, error);
  }

  /** The attempt has failed, whatever its handler does. */
  #overLimit(claim: Claim, limitMs: number, retry: RetryPolicy): void {
    if (claim.isSettled) return;
    const text = `it ran longer than ${limitMs / 1000} s`;
    const error = Object.assign(new Error(text), { name: "TimeLimitExceeded", stack: "" });
    const outcome = thrown(claim, error, retry, this.#place); // of one that was cancelled before, it is that
    this.#stuck.add(claim);
    this.#stopJob(claim, "time_limit", text);
    this.#settle(claim, outcome, error);
  }

  /** Once: a job that was handed back or is over its time limit may still run, and has nothing more to say. */
  #settle(claim: Claim, { word, result }: Outcome, error: unknown): void {
    if (claim.isSettled) return;
    claim.isSettled = true;
    clearTimeout(claim.limit); // else it would keep the program from its end
    this.#running.delete(claim);
    if (result) this.#acks.put(result);
    else this.#heartbeats.forget(claim);
    this.#hook("ended", claim.shown(), word, performance.now() - claim.beganAt, error);
    this.#wake();
  }

  #stopJob(claim: Claim, why: StopWord, message: string): void {
    if (claim.stop(why, message)) this.#hook("stopping", claim.shown(), why);
  }

  /** No job runs, or that time is over, or there is a hurry. */
  async #untilIdle(withinMs?: number, hurry?: AbortSignal): Promise<void> {
    let isLate = false;
    const late = () => {
      isLate = true;
      this.#wake();
    };
    const timer = withinMs === undefined ? undefined : setTimeout(late, withinMs);
    while (this.#running.size > 0 && !isLate && !hurry?.aborted) await this.#change();
    clearTimeout(timer);
  }

  /** A job has ended, or an operator or the program wants something. */
  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiters.splice(0)) resolve();
  }

  // -- the list of workers -----------------------------------------------------------------------------------------

  #report(): object {
    const now = performance.now();
    const running = [...this.#stuck, ...this.#running];
    const { name = basename(process.argv[1] ?? "node").replace(/\.[cm]?[jt]s$/, ""), version } = this.#options;
    return {
      id: this.#id,
      name,
      up_ms: Math.round(now - this.#startedAt),
      host: hostname(),
      pid: process.pid,
      queues: Object.fromEntries(Object.entries(this.#weights).slice(0, MOST_NAMED)),
      slots: this.#slots,
      busy_slots: this.#running.size,
      stuck_slots: running.filter((claim) => claim.stopped).length,
      running: running.slice(0, MOST_NAMED).map((claim) => ({
        job_descriptor: claim.job.descriptor,
        job_type: wellFormed(claim.name, MOST_NAME_CHARS),
        running_ms: Math.round(now - claim.beganAt),
      })),
      versions: { node: process.versions.node, pinlater: VERSION, ...(version ? { app: version } : {}) },
      is_stopping: this.#drain.signal.aborted || this.#isLeaving,
      is_quiet: this.#isQuiet,
      job_types: [...this.#handlers.keys()].sort().slice(0, MOST_NAMED),
      unknown_types: this.#unknown.report(),
    };
  }

  #commanded(command: Command): void {
    this.#log(`an operator says ${command}`);
    this.#isQuiet = command !== "resume";
    this.#isLeaving = command === "stop";
    if (this.#isQuiet) this.#endPoll();
    else this.#wake();
    this.#heartbeats.reportSoon();
    if (command === "stop") void this.#untilIdle().then(() => this.#isLeaving && this.#leave());
  }

  /** All jobs have ended, however long they took. */
  #leave(): void {
    if (!this.#drain.signal.aborted) void this.stop().catch(() => {});
  }

  #fail(error: PinLaterError): void {
    this.#failure = error;
    this.#log(`the worker ends: ${String(error)}`);
    if (!this.#drain.signal.aborted) void this.stop().catch(() => {});
  }

  #log(line: string): void {
    (this.#options.log ?? ((text) => console.error(`pinlater: ${text}`)))(line);
  }

  #hook<Name extends keyof WorkerHooks>(name: Name, ...given: Parameters<Required<WorkerHooks>[Name]>): void {
    const failed = (error: unknown) => this.#log(`hook ${name} failed: ${String(error)}`);
    try {
      const made = (this.#options.hooks?.[name] as ((...all: unknown[]) => unknown) | undefined)?.(...given);
      if (made instanceof Promise) made.catch(failed); // a rejection that nobody sees would end the process
    } catch (error) {
      failed(error);
    }
  }
}

function checked(options: HandlerOptions): HandlerOptions & { timeLimitMs: number } {
  const { timeLimitMs = TIME_LIMIT_MS } = options;
  if (timeLimitMs !== Infinity && !(timeLimitMs >= 1 && timeLimitMs <= LONGEST_TIMER_MS))
    throw new TypeError(`timeLimitMs is ${timeLimitMs}; allowed: 1 to ${LONGEST_TIMER_MS}, or Infinity`);
  return { ...options, timeLimitMs };
}

function isForbidden(error: unknown): boolean {
  return error instanceof PinLaterError && (error.status === 401 || error.status === 403);
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
}
