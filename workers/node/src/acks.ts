/** What became of jobs, on its way to a server: riding on the next dequeue, or by calls of its own, until answered. */

import type { Claim } from "./claim.ts";
import { backoffMs, type Connection, sleep } from "./connection.ts";
import { PinLaterError } from "./errors.ts";

/** An ack, or a checkpoint that puts the job back into its queue; `unknown`: its status decides which. */
export interface Result {
  claim: Claim;
  kind: "succeeded" | "failed" | "checkpoints" | "unknown";
  form: Record<string, unknown>;
  /** Of a result or a body in it. */
  chars: number;
}

/** What the rest of a worker does for its acks. */
export interface AckPeer {
  /** The claim of a result is over: it was answered, or given up. */
  over(claim: Claim): void;
  /** Of a job of an unknown type, by its status. */
  decide(claim: Claim, status: string): Result;
  holds(claim: Claim): boolean;
  failed(doing: string, error: unknown): void;
  log(text: string): void;
}

/** As acks ride on a dequeue. */
export interface RidingAcks {
  forms: object[];
  results: Result[][];
}

interface Status {
  descriptor: string;
  custom_status?: string;
}

const DELAY_MS = 50; // these as in the Python framework: worker/ack_sender.py and ack_batches.py
const TIMEOUT_MS = 5_000;
const MOST_RESULTS = 1_000;
const MOST_CHARS = 65_536;

/** The results of one worker. */
export class Acks {
  readonly #connection: Connection;
  readonly #peer: AckPeer;
  readonly #waiting = new Map<string, Result[]>();
  readonly #calls = new Set<Promise<void>>();
  readonly #hurry = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Results that no server has confirmed. */
  size = 0;

  constructor(connection: Connection, peer: AckPeer) {
    [this.#connection, this.#peer] = [connection, peer];
  }

  /** Send it soon; what puts a job back leaves with what else comes in this moment. */
  put(result: Result): void {
    this.size += 1;
    const { claim, kind } = result;
    const isAck = kind === "succeeded" || kind === "failed";
    const key = `${isAck ? "ack" : kind} ${claim.queue}`;
    const waiting = this.#waiting.get(key);
    if (waiting) waiting.push(result);
    else this.#waiting.set(key, [result]);
    if (!isAck && !waiting) setTimeout(() => this.#sendAll(key), 0);
    this.#timer ??= setTimeout(() => this.#sendAll(), DELAY_MS);
  }

  /** Those that the next dequeue takes along; its caller says what became of them. */
  take(): RidingAcks {
    const riding: RidingAcks = { forms: [], results: [] };
    let room = MOST_RESULTS;
    for (const [key, waiting] of this.#waiting) {
      if (!key.startsWith("ack ") || room <= 0) continue;
      const part = waiting.splice(0, Math.min(room, fitting(waiting)));
      if (waiting.length === 0) this.#waiting.delete(key);
      room -= part.length;
      const [succeeded, failed] = [this.#formsOf(part, "succeeded"), this.#formsOf(part, "failed")];
      riding.forms.push({ queue: key.slice(4), succeeded, failed });
      riding.results.push(inOrder(part));
    }
    return riding;
  }

  /** The dequeue was answered. `outcomes`: null where all had an effect. */
  rode(riding: RidingAcks, outcomes: string[][] | null): void {
    riding.results.forEach((part, at) => this.#over(part, outcomes?.[at] ?? []));
  }

  /** The dequeue has failed, and may have carried them out or not. */
  fell(riding: RidingAcks): void {
    for (const part of riding.results) this.#start(part, true);
  }

  /** Send all at once, and again as often as that time allows. */
  async close(withinMs: number): Promise<void> {
    this.#sendAll();
    const late = setTimeout(() => this.#hurry.abort(new Error("the worker ends")), withinMs);
    while (this.#calls.size > 0) await Promise.all(this.#calls);
    clearTimeout(late);
    clearTimeout(this.#timer);
    if (this.size > 0) this.#peer.log(`${this.size} results reached no server: those jobs run again`);
  }

  #sendAll(only = ""): void {
    if (!only) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    }
    for (const [key, waiting] of this.#waiting) {
      if (only && key !== only) continue;
      this.#waiting.delete(key);
      while (waiting.length > 0) this.#start(waiting.splice(0, fitting(waiting)), false);
    }
  }

  #start(results: Result[], isAgain: boolean): void {
    const call = this.#send(results, isAgain).finally(() => this.#calls.delete(call));
    this.#calls.add(call);
  }

  /** Until they are answered. What failed once goes on shard by shard: one that is away holds up no others. */
  async #send(results: Result[], isAgain: boolean): Promise<void> {
    for (let failures = 0; results.length > 0; failures++) {
      try {
        if (results[0]?.kind === "unknown") return await this.#decide(results);
        const outcomes = await this.#call(results);
        return this.#over(inOrder(results), isAgain || failures > 0 ? [] : outcomes);
      } catch (error) {
        if (this.#hurry.signal.aborted) return;
        if (this.#connection.refusedField("permanent", error)) continue;
        if (isRefusal(error)) return this.#refused(results, error);
        this.#peer.failed(`an ack of ${results.length} jobs`, error);
        // its claim counts as lost as well when the ack was carried out and the answer was lost: that was tried again
        const useless = failures > 0 ? results.filter((each) => !this.#peer.holds(each.claim)) : [];
        if (useless.length > 0)
          this.#over(
            useless,
            useless.map(() => "ignored"),
          );
        const [first = [], ...others] = byShard(results.filter((each) => !useless.includes(each)));
        for (const part of others) this.#start(part, true);
        results = first;
        await sleep(backoffMs(failures), this.#hurry.signal).catch(() => {});
        if (this.#hurry.signal.aborted) return;
      }
    }
  }

  /** A dequeue brings no statuses, so they are asked for. */
  async #decide(results: Result[]): Promise<void> {
    const body = { descriptors: results.map((each) => each.claim.job.descriptor) };
    const options = { body, timeoutMs: TIMEOUT_MS, signal: this.#hurry.signal };
    const { jobs } = (await this.#connection.call("/v1/lookup", options)) as { jobs: Status[] };
    const statuses = new Map(jobs.map((job) => [job.descriptor, job.custom_status]));
    const decided = results.map(({ claim }) => this.#peer.decide(claim, statuses.get(claim.job.descriptor) ?? ""));
    for (const kind of ["checkpoints", "failed"]) {
      const part = decided.filter((each) => each.kind === kind);
      if (part.length > 0) this.#start(part, false);
    }
  }

  async #call(results: Result[]): Promise<string[]> {
    const [first] = results;
    const isBack = first?.kind === "checkpoints";
    const body = isBack
      ? { checkpoints: this.#formsOf(results, "checkpoints") }
      : { succeeded: this.#formsOf(results, "succeeded"), failed: this.#formsOf(results, "failed") };
    const path = `/v1/queues/${encodeURIComponent(first?.claim.queue ?? "")}/${isBack ? "checkpoint" : "ack"}`;
    const options = { body, timeoutMs: TIMEOUT_MS, signal: this.#hurry.signal };
    return ((await this.#connection.call(path, options)) as { outcomes: string[] } | null)?.outcomes ?? [];
  }

  /** A server of an earlier version does not know `permanent` of a success. */
  #formsOf(results: Result[], kind: Result["kind"]): object[] {
    const forms = results.filter((each) => each.kind === kind).map((each) => each.form);
    const isKnown = kind !== "succeeded" || this.#connection.mayHave("permanent");
    return isKnown ? forms : forms.map((form) => ({ ...form, permanent: undefined }));
  }

  /** The one that causes it is found by halving. A job whose new body or result is refused has failed for good. */
  #refused(results: Result[], error: PinLaterError): void {
    const [first] = results;
    const half = Math.ceil(results.length / 2);
    if (results.length > 1)
      return [results.slice(0, half), results.slice(half)].forEach((each) => this.#start(each, true));
    if (first && ("result" in first.form || "body" in first.form)) {
      const form = { ...first.claim.names, permanent: true, append_status: `${error.message.slice(0, 400)}\n` };
      return this.#start([{ claim: first.claim, kind: "failed", form, chars: 0 }], true);
    }
    this.#peer.failed(`the ack of job ${first?.claim.job.descriptor}, which was refused`, error);
    this.#over(results, []);
  }

  #over(results: Result[], outcomes: string[]): void {
    this.size -= results.length;
    for (const { claim } of results) this.#peer.over(claim);
    const ignored = results.filter((_, at) => outcomes[at] === "ignored");
    const [first] = ignored;
    if (!first) return;
    const text = `results had no effect, since their claims had ended; the first is of ${first.claim.job.descriptor}`;
    this.#peer.log(`${ignored.length} ${text}`);
  }
}

function isRefusal(error: unknown): error is PinLaterError {
  return error instanceof PinLaterError && !error.retryable && ![0, 401, 403, 429].includes(error.status);
}

/** How many of the first of these one call takes; 1 or more. */
function fitting(results: Result[]): number {
  let chars = 0;
  for (const [at, each] of results.slice(0, MOST_RESULTS).entries()) {
    chars += each.chars;
    if (chars > MOST_CHARS) return Math.max(1, at);
  }
  return MOST_RESULTS;
}

/** As answers list them. */
function inOrder(results: Result[]): Result[] {
  return [
    ...results.filter((each) => each.kind === "succeeded"),
    ...results.filter((each) => each.kind !== "succeeded"),
  ];
}

function byShard(results: Result[]): Result[][] {
  const parts = new Map<string, Result[]>();
  for (const each of results) parts.set(each.claim.shard, [...(parts.get(each.claim.shard) ?? []), each]);
  return [...parts.values()];
}
