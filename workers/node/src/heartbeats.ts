/** Claims kept alive, what servers say of them, and the reports of the worker that travel along. */

import type { Claim } from "./claim.ts";
import type { Connection } from "./connection.ts";
import { PinLaterError } from "./errors.ts";

const PER_CALL = 1_000;
const LONGEST_INTERVAL_MS = 10_000; // these as in the Python framework: pinlater_workers/heartbeat/beats.py
const LONGEST_MARGIN_MS = 2_000;
const LONGEST_RETRY_MS = 1_000;
const NEWS_EVERY_MS = 1_000;
const REPORT_MS = 10_000; // and these: heartbeat/reports.py
const REPORT_RETRY_MS = 2_000;
const AFTER_A_BREAK_MS = [0, 400, 800, 1_200, 1_600];

/** What an operator wants a worker to do. */
export type Command = "quiet" | "resume" | "stop";

/** What the rest of a worker does for its heartbeats. */
export interface HeartbeatPeer {
  queues: string[];
  leaseMs: number;
  report(): object;
  commanded(command: Command): void;
  /** The job is to stop. */
  stop(claim: Claim, why: "lost" | "cancelled", message: string): void;
  failed(doing: string, error: unknown): void;
}

interface HeartbeatsAnswer {
  answers: { outcome: "ok" | "lost" | "cancel" | "unreachable"; cancelled_by?: string | null }[];
  command?: Command | null;
  command_number?: number | null;
}

/** The heartbeats of one worker. Times are of `performance.now()`. */
export class Heartbeats {
  readonly intervalMs: number;
  readonly #peer: HeartbeatPeer;
  readonly #connection: Connection;
  readonly #claims = new Set<Claim>();
  readonly #heldMs: number;
  readonly #retryMs: number;
  readonly #timeoutMs: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #newsAt = -Infinity;
  #reportAt = 0;
  #reportTo = 0;
  #commandNumber = 0;
  #isClosed = false;

  constructor(peer: HeartbeatPeer, connection: Connection) {
    const { leaseMs } = peer;
    [this.#peer, this.#connection] = [peer, connection];
    this.intervalMs = Math.min(leaseMs / 3, LONGEST_INTERVAL_MS);
    this.#heldMs = leaseMs - Math.min(LONGEST_MARGIN_MS, leaseMs / 8); // so long after a good beat a claim surely holds
    this.#retryMs = Math.min(LONGEST_RETRY_MS, this.intervalMs / 4);
    this.#timeoutMs = Math.max(1_000, leaseMs / 6);
  }

  watch(claim: Claim): void {
    this.#claims.add(claim);
    this.#wakeAt(Math.min(claim.dueAt, claim.goodAt + this.#heldMs));
  }

  forget(claim: Claim): void {
    this.#claims.delete(claim);
  }

  /** It may still hold. */
  holds(claim: Claim): boolean {
    return this.#claims.has(claim);
  }

  /** A handler has said something. */
  hasNews(): void {
    this.#wakeAt(this.#newsAt + NEWS_EVERY_MS);
  }

  /** The worker has changed: a report is due at once. */
  reportSoon(): void {
    this.#reportAt = -Infinity;
    this.#wakeAt(performance.now());
  }

  /**
   * The connection of a poll is gone, or about to go: servers release the claims that hang on it after a grace of 2 s,
   * unless a heartbeat comes by another one. One that comes before they know of the break does not count.
   */
  connectionLost(): void {
    if (this.#claims.size === 0 || this.#isClosed) return;
    for (const pauseMs of AFTER_A_BREAK_MS) {
      setTimeout(() => {
        for (const claim of this.#claims) claim.dueAt = Math.min(claim.dueAt, performance.now());
        this.#wakeAt(performance.now());
      }, pauseMs).unref?.();
    }
  }

  /** The last report, that the worker has stopped. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const { queues } = this.#peer;
    await this.#call(queues[this.#reportTo % queues.length] ?? "", [], {
      ...this.#peer.report(),
      has_stopped: true,
    }).catch(() => {});
  }

  #wakeAt(at: number): void {
    if (this.#isClosed || at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    this.#timer = setTimeout(() => this.#tick(), Math.max(0, at - performance.now()));
  }

  #tick(): void {
    const now = performance.now();
    this.#timerAt = Infinity;
    for (const claim of this.#claims) {
      if (now < claim.goodAt + this.#heldMs) continue;
      this.#claims.delete(claim); // it may have expired: another worker may have the job
      this.#peer.stop(claim, "lost", "no server has renewed the claim of this job in time");
    }
    const saysNews = now >= this.#newsAt + NEWS_EVERY_MS;
    const isDue = (claim: Claim, at: number) => claim.dueAt <= at || (saysNews && claim.hasNews && !claim.isSettled);
    const claims = [...this.#claims];
    // those that are due soon go along
    const due = claims.some((claim) => isDue(claim, now))
      ? claims.filter((claim) => isDue(claim, now + this.intervalMs / 2))
      : [];
    if (due.some((claim) => claim.hasNews)) this.#newsAt = now;
    for (const claim of due) claim.dueAt = now + this.intervalMs;
    for (const part of partsOf(due)) void this.#beat(part);
    if (now >= this.#reportAt) {
      this.#reportAt = now + REPORT_MS;
      void this.#sendReport();
    }
    for (const claim of this.#claims) {
      this.#wakeAt(Math.min(claim.dueAt, claim.goodAt + this.#heldMs));
      if (claim.hasNews && !claim.isSettled) this.#wakeAt(this.#newsAt + NEWS_EVERY_MS);
    }
    this.#wakeAt(this.#reportAt);
  }

  async #beat(claims: Claim[]): Promise<void> {
    const queue = claims[0]?.queue ?? "";
    const beganAt = performance.now();
    const beats = claims.map((claim) => claim.beat());
    try {
      const { answers } = await this.#call(
        queue,
        beats.map((beat) => beat.form),
        null,
      );
      answers.forEach((each, at) => {
        const claim = claims[at];
        if (!claim) return;
        if (each.outcome === "unreachable") return this.#failed([claim], beats[at] ? [beats[at]] : []);
        if (each.outcome === "lost") return this.#lost(claim, "another worker may have this job, or it is gone");
        claim.goodAt = Math.max(claim.goodAt, beganAt);
        if (each.outcome === "cancel") this.#peer.stop(claim, "cancelled", `cancelled by ${each.cancelled_by ?? "?"}`);
      });
    } catch (error) {
      if (error instanceof PinLaterError && error.reason === "QUEUE_NOT_FOUND") {
        for (const claim of claims) this.#lost(claim, `queue ${queue} is gone`);
        return;
      }
      this.#peer.failed(`a heartbeat of ${claims.length} claims of queue ${queue}`, error);
      const isRefused = error instanceof PinLaterError && error.status === 400; // what handlers said is not said again
      this.#failed(claims, isRefused ? [] : beats);
    }
  }

  /** In a call of its own: whatever is wrong with it ends no claim. */
  async #sendReport(): Promise<void> {
    const { queues } = this.#peer;
    try {
      const answer = await this.#call(queues[this.#reportTo % queues.length] ?? "", [], this.#peer.report());
      const number = answer.command_number ?? 0;
      if (answer.command && number > this.#commandNumber) {
        this.#commandNumber = number;
        this.#peer.commanded(answer.command);
      }
    } catch (error) {
      this.#peer.failed("a report of this worker", error);
      this.#reportTo += 1; // the queue may be gone, or not ours
      this.#reportAt = Math.min(this.#reportAt, performance.now() + REPORT_RETRY_MS);
      this.#wakeAt(this.#reportAt);
    }
  }

  async #call(queue: string, heartbeats: object[], worker: object | null): Promise<HeartbeatsAnswer> {
    const body = worker ? { heartbeats, worker } : { heartbeats };
    const path = `/v1/queues/${encodeURIComponent(queue)}/heartbeat`;
    return (await this.#connection.call(path, { body, timeoutMs: this.#timeoutMs })) as HeartbeatsAnswer;
  }

  #failed(claims: Claim[], beats: { undo: () => void }[]): void {
    for (const beat of beats) beat.undo();
    for (const claim of claims) {
      claim.dueAt = Math.min(claim.dueAt, performance.now() + this.#retryMs);
      if (this.#claims.has(claim)) this.#wakeAt(claim.dueAt);
    }
  }

  /** The claim of a job that has ended is gone as well when its ack was carried out: the ack's answer says more. */
  #lost(claim: Claim, message: string): void {
    if (claim.isSettled) return;
    this.#claims.delete(claim);
    this.#peer.stop(claim, "lost", message);
  }
}

/** By queue, and no more than a call takes. */
function partsOf(claims: Claim[]): Claim[][] {
  const byQueue = new Map<string, Claim[]>();
  for (const claim of claims) {
    const known = byQueue.get(claim.queue);
    if (known) known.push(claim);
    else byQueue.set(claim.queue, [claim]);
  }
  const parts: Claim[][] = [];
  for (const all of byQueue.values()) {
    for (let at = 0; at < all.length; at += PER_CALL) parts.push(all.slice(at, at + PER_CALL));
  }
  return parts;
}
