/** Enqueues jobs, and waits for their results. */

import { rawBody, readResult, RESULT_HEADER, writeBody } from "./body.ts";
import { Connection, type ConnectionOptions } from "./connection.ts";
import { failure } from "./errors.ts";

/** A job to enqueue: a type with its arguments, or a raw `body`. */
export interface NewJob {
  /** The type of job, as workers in any language name it. */
  name?: string;
  /** Arguments by name. */
  kwargs?: Record<string, unknown>;
  /** Arguments by position. */
  args?: unknown[];
  /** In place of all three: what a raw handler of the queue gets. */
  body?: Uint8Array | string;
  /** The job runs so much later. */
  delayMs?: number;
  /** Or not before this moment. */
  runAt?: Date;
  /** 1 is the highest, and the default. */
  priority?: number;
  /** How often it is tried in all: 11, unless given, which are the 10 retries of the default policy. */
  attempts?: number;
  /** Its name in the queue: while a job of that name lives, there is no second one. */
  dedupeKey?: string;
  /** For so long after its end there is no second one either. */
  dedupeForMs?: number;
  /** What becomes of the second one: the first is kept (the default), or replaced; or the call fails (`DUPLICATE`). */
  onDuplicate?: "keep" | "replace" | "reject";
  /** Jobs of one key run one at a time, in the order in which they were enqueued. */
  serializeKey?: string;
  /** Such as a tenant: groups have fair shares of the queue. */
  group?: string;
  /** Texts by which it is found. */
  tags?: string[];
  /** No worker gets it from this moment on. */
  expiresAt?: Date;
  /** Whether what its handler returns is kept for callers that wait; unless given, its type decides. */
  keepResult?: boolean;
  /** What travels with the job, as `traceparent`. */
  headers?: Record<string, string>;
}

/** A job that is stored. `kept`: the descriptor is that of the job which had the dedupe key before. */
export interface Enqueued {
  descriptor: string;
  outcome: "stored" | "kept" | "replaced";
}

/** A job that has ended. */
export interface EndedJob {
  descriptor: string;
  state: "succeeded" | "failed" | "cancelled";
  /** What its handler returned, where that was kept; undefined: no result is there. */
  result: unknown;
  /** What its workers said of its attempts: why it failed. */
  status: string;
}

/** Options of a producer. */
export interface ProducerOptions extends ConnectionOptions {
  /** How long a call goes on trying while no server answers: 30 s, unless given. */
  timeoutMs?: number;
}

/** How long to wait. */
export interface WaitOptions {
  /** PinLaterError `TIMED_OUT` when that is over; without it, the wait lasts until the job has ended. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

const ATTEMPTS = 11;
const TRY_MS = 10_000; // one try of a call: a server that hangs, or a connection that is half open, is left then
const WAIT_MS = 20_000; // below the `max-wait` of servers, and below what proxies allow
const MOST_JOBS = 1_000;
const MOST_CHARS = 4_000_000; // of bodies in one request: a server's `max-frame` is 16 MiB, a character up to 3 bytes
const NOT_SURE_FOR_MS = 600_000; // so long after a job's end its send id counts

interface JobState {
  descriptor: string;
  state: string;
  cancelled?: boolean | null;
  custom_status?: string;
  result?: string | null;
  result_encoding?: string | null;
  result_left_out?: boolean | null;
}

/** Enqueues jobs. One is enough for a program; it holds nothing that is to be closed. */
export class Producer {
  readonly #connection: Connection;
  readonly #timeoutMs: number;

  constructor(options: ProducerOptions = {}) {
    this.#connection = new Connection(options);
    this.#timeoutMs = options.timeoutMs ?? 30_000;
  }

  /**
   * Store a job. While no answer comes it is sent again, and is stored once all the same. PinLaterError; TypeError: an
   * argument that JSON cannot say.
   */
  async enqueue(queue: string, job: NewJob): Promise<Enqueued> {
    const [stored] = await this.enqueueMany(queue, [job]);
    return stored as Enqueued;
  }

  /**
   * Store many jobs of one queue, answered in order. Up to 1,000 jobs, or 4 million characters of bodies, go in one
   * request, of which all are stored or none, as far as they have no keys.
   */
  async enqueueMany(queue: string, jobs: Iterable<NewJob>): Promise<Enqueued[]> {
    const stored: Enqueued[] = [];
    let part: Record<string, unknown>[] = [];
    let size = 0;
    for (const form of Array.from(jobs, formOf)) {
      if (part.length === MOST_JOBS || (part.length > 0 && size + form.body.length > MOST_CHARS)) {
        stored.push(...(await this.#store(queue, part)));
        [part, size] = [[], 0];
      }
      part.push(form);
      size += form.body.length;
    }
    return part.length > 0 ? [...stored, ...(await this.#store(queue, part))] : stored;
  }

  /** Wait until a job has ended. PinLaterError: `NOT_FOUND`, there is no such job, or no longer; `TIMED_OUT`. */
  async wait(descriptor: string, options: WaitOptions = {}): Promise<EndedJob> {
    for await (const ended of this.ends([descriptor], options)) return ended;
    throw failure("NOT_FOUND", `there is no job ${descriptor}, or no longer`);
  }

  /** The jobs as they end, the first to end first; those that are not there are left out. PinLaterError `TIMED_OUT`. */
  async *ends(descriptors: Iterable<string>, options: WaitOptions = {}): AsyncGenerator<EndedJob, void, undefined> {
    const end = performance.now() + (options.timeoutMs ?? Infinity);
    let left = [...new Set(descriptors)];
    while (left.length > 0) {
      const leftMs = Math.max(0, end - performance.now());
      const waitMs = Math.round(Math.min(WAIT_MS, leftMs));
      const body = { descriptors: left.slice(0, MOST_JOBS), include_result: true, wait_ms: waitMs };
      const timeoutMs = Math.max(TRY_MS, Math.min(leftMs, this.#timeoutMs)) + waitMs;
      const call = { body, timeoutMs, tryMs: waitMs + TRY_MS, signal: options.signal };
      const { jobs } = (await this.#connection.untilAnswered("/v1/lookup", call)) as { jobs: JobState[] };
      const known = new Map(jobs.map((job) => [job.descriptor, job]));
      const asked = new Set(body.descriptors);
      left = left.filter((each) => !asked.has(each) || isAwaited(known.get(each)));
      for (const job of jobs) if (!left.includes(job.descriptor)) yield endedJob(job);
      if (left.length > 0 && performance.now() >= end) throw failure("TIMED_OUT", `job ${left[0]} has not ended yet`);
    }
  }

  /** A request that is sent again gets the first answer, by its send id. */
  async #store(queue: string, jobs: Record<string, unknown>[]): Promise<Enqueued[]> {
    const id = crypto.randomUUID();
    const path = `/v1/queues/${encodeURIComponent(queue)}/jobs/batch`;
    for (;;) {
      const hasIds = this.#connection.mayHave("send_id");
      const named = jobs.map((job, at) => ({ ...job, ...(hasIds ? { send_id: id } : standIn(job, `${id}/${at}`)) }));
      try {
        const call = { body: { jobs: named }, timeoutMs: this.#timeoutMs, tryMs: TRY_MS };
        return ((await this.#connection.untilAnswered(path, call)) as { jobs: Enqueued[] }).jobs;
      } catch (error) {
        if (!hasIds || !this.#connection.refusedField("send_id", error)) throw error;
      }
    }
  }
}

/** For servers that know no send ids over HTTP: a dedupe key, which says the same of a job that has none. */
function standIn(job: Record<string, unknown>, key: string): object {
  return job.dedupe_key ? {} : { dedupe_key: key, dedupe_for_ms: NOT_SURE_FOR_MS };
}

function isAwaited(job: JobState | undefined): boolean {
  return job !== undefined && (job.result_left_out === true || !["succeeded", "failed"].includes(job.state));
}

function endedJob(job: JobState): EndedJob {
  const { descriptor, cancelled, custom_status: status = "", result = null, result_encoding: encoding = null } = job;
  const state = cancelled ? "cancelled" : (job.state as "succeeded" | "failed");
  return { descriptor, state, result: readResult(result, encoding), status };
}

function formOf(job: NewJob): Record<string, unknown> & { body: string } {
  const { name, body, keepResult, delayMs, attempts } = job;
  if ((name === undefined) === (body === undefined)) throw new TypeError("a job has a name, or else a body");
  const headers = keepResult === undefined ? job.headers : { ...job.headers, [RESULT_HEADER]: keepResult ? "1" : "0" };
  const { args = [], kwargs = {} } = job;
  const written =
    body !== undefined
      ? rawBody(body)
      : { body: writeBody({ name: name as string, args, kwargs, headers: headers ?? {}, attempts: attempts ?? 0 }) };
  const runAt = delayMs === undefined ? job.runAt?.getTime() : Date.now() + delayMs;
  const form = {
    attempts_allowed: attempts ?? ATTEMPTS,
    priority: job.priority,
    run_after_ms: runAt === undefined ? undefined : Math.round(runAt),
    dedupe_key: job.dedupeKey,
    dedupe_for_ms: job.dedupeForMs,
    on_duplicate: job.onDuplicate,
    serialize_key: job.serializeKey,
    group: job.group,
    tags: job.tags,
    expires_at_ms: job.expiresAt?.getTime(),
  };
  return { ...form, ...written };
}
