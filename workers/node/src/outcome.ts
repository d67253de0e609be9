/** What becomes of a job: by what its handler returned or threw, and why it was told to stop. */

import { isItem, withSnoozes, writeResult } from "./body.ts";
import type { Claim } from "./claim.ts";
import { Fail, RetryAfter, Snooze } from "./errors.ts";
import type { Result } from "./acks.ts";
import { type RetryPolicy, standard } from "./retry.ts";

/** What became of an attempt. */
export type OutcomeWord = "succeeded" | "failed" | "retry" | "snoozed" | "cancelled" | "lost" | "handed_back";

/** The word, and what to say to a server; null: nothing. */
export interface Outcome {
  word: OutcomeWord;
  result: Result | null;
}

const MOST_SNOOZES = 100; // as of the Python framework, and so is the form of a status: execution/failure_text.py
const MOST_LINE = 500;
const LEAST_LINE = 160;
const ALL_LINES = 2_300;
const MOST_TRACE = 2_000;
const SHORTEST_SECRET = 4;
const LONGEST_MS = 315_360_000_000; // ten years
const OWN_FOLDER = new URL(".", import.meta.url).href;

/**
 * Of a handler that returned. A result that is too large fails the job: another attempt would make the same. Fail:
 * what it returned is to be kept, and cannot be.
 */
export function success(claim: Claim, value: unknown, keepsResult: boolean): Outcome {
  if (claim.stopped?.why === "lost") return { word: "lost", result: null };
  const written = writeResult(claim.call, value, keepsResult);
  const form = { ...claim.names, ...claim.report, ...(written === null ? {} : { result: written, permanent: true }) };
  return { word: "succeeded", result: { claim, kind: "succeeded", form, chars: written?.length ?? 0 } };
}

/** Of a handler that threw. `place`: host and process. What cannot even be looked at fails the attempt, no more. */
export function thrown(claim: Claim, error: unknown, policy: RetryPolicy, place: string): Outcome {
  try {
    return decided(claim, error, policy, place);
  } catch {
    return decided(claim, new Error("something was thrown that cannot be shown"), policy, place);
  }
}

function decided(claim: Claim, error: unknown, policy: RetryPolicy, place: string): Outcome {
  const why = claim.stopped?.why;
  if (why === "lost" || why === "time_limit") return { word: "lost", result: null }; // what the latter is, is said
  if (why === "stopping") return handedBack(claim);
  if (why === "cancelled") return failed(claim, claim.stopped, null, place, "cancelled");
  if (error instanceof Snooze && claim.call) {
    const count = claim.call.snoozes + 1;
    if (count <= MOST_SNOOZES) return snoozed(claim, error, count);
    return failed(claim, new Fail(`TooManySnoozes: put off ${MOST_SNOOZES} times`), null, place);
  }
  return failed(claim, error, delayOf(claim, error, policy), place);
}

/** Back to its place in the queue, with no attempt spent. */
export function handedBack(claim: Claim): Outcome {
  return { word: "handed_back", result: requeued(claim, { run_after_ms: claim.job.run_after_ms || undefined }) };
}

function snoozed(claim: Claim, error: Snooze, count: number): Outcome {
  const status = oneLine(`snooze ${count} of ${MOST_SNOOZES}${error.message && `: ${error.message}`}`, MOST_LINE);
  const body = withSnoozes(claim.job.body, count);
  const at = Date.now() + wholeMs(error.delayMs);
  return { word: "snoozed", result: requeued(claim, { body, run_after_ms: at, prepend_status: `${status}\n` }) };
}

/** Back into its queue, with no attempt spent. */
export function requeued(claim: Claim, more: object): Result {
  const form = { ...claim.names, move_to_pending: true, ...more };
  return { claim, kind: "checkpoints", form, chars: "body" in more ? claim.job.body.length : 0 };
}

/**
 * Milliseconds until the next attempt; null: none follows. A job has the fewer of the attempts that it was enqueued
 * with, which the server counts, and those of its type's policy; but more than these where its body says so.
 */
function delayOf(claim: Claim, error: unknown, policy: RetryPolicy): number | null {
  if (error instanceof Fail) return null;
  if (isItem(claim.call)) return 0; // the stage of its flow says whether there is another attempt, and when
  const wanted = claim.call?.attempts ?? 0;
  const allowed = claim.job.attempts_allowed > policy.retries + 1 && wanted > 0 ? wanted : policy.retries + 1;
  if (error instanceof Snooze || error instanceof RetryAfter) {
    return error instanceof Snooze || claim.attempt < allowed ? wholeMs(error.delayMs) : null;
  }
  if (claim.attempt >= allowed) return null;
  try {
    const delayMs = policy.delayMs(claim.attempt, error);
    return delayMs === null ? null : wholeMs(delayMs);
  } catch {
    return standard().delayMs(claim.attempt, error); // a policy that fails decides nothing
  }
}

/** As a server takes it, never early. */
function wholeMs(ms: number): number {
  return ms > 0 ? Math.ceil(Math.min(ms, LONGEST_MS)) : 0;
}

/** `delayMs`: null where no attempt follows. */
export function failed(
  claim: Claim,
  error: unknown,
  delayMs: number | null,
  place: string,
  word?: "cancelled",
): Outcome & { result: Result } {
  const isLast = delayMs === null || claim.job.attempts_remaining <= 1;
  const allowed = Math.max(claim.job.attempts_allowed, claim.job.attempts_remaining);
  const seconds = ((performance.now() - claim.beganAt) / 1000).toFixed(1);
  const began = new Date(Date.now() - (performance.now() - claim.beganAt)).toISOString().replace(/\.\d+Z/, "Z");
  const end = ` [${began}, ${seconds}s, ${place}]`;
  const most = isLast ? MOST_LINE : Math.max(LEAST_LINE, Math.min(MOST_LINE, Math.floor(ALL_LINES / allowed)));
  const begin = `attempt ${claim.attempt} of ${allowed}: `;
  const secrets = secretsOf(claim);
  let status = `${begin}${oneLine(masked(textOf(error), secrets), most - begin.length - end.length)}${end}\n`;
  if (isLast && word === undefined) status += trace(error, secrets);
  const ends = delayMs === null ? { permanent: true } : { retry_delay_ms: delayMs };
  const form = { ...claim.names, ...claim.report, append_status: status, ...ends };
  return { word: word ?? (isLast ? "failed" : "retry"), result: { claim, kind: "failed", form, chars: status.length } };
}

/** Type and message, and those of its cause. Anything can be thrown, also what has no text. */
function textOf(error: unknown): string {
  try {
    if (!(error instanceof Error)) return `thrown: ${String(error)}`;
    const cause = error.cause instanceof Error ? `, from ${error.cause.name}: ${error.cause.message}` : "";
    return `${error.name}: ${error.message}${cause}`;
  } catch {
    return "thrown: something without a text";
  }
}

/** The frames of the stack but for those of the kit, each in a line of its own that stands in from the edge. */
function trace(error: unknown, secrets: string[]): string {
  const stack = error instanceof Error && typeof error.stack === "string" ? error.stack.split("\n") : [];
  const frames = stack.filter((line) => /^\s+at /.test(line) && !line.includes(OWN_FOLDER));
  const lines = frames.map((line) => `  ${oneLine(masked(line, secrets), 200)}\n`);
  while (lines.join("").length > MOST_TRACE) lines.pop();
  return lines.join("");
}

export function oneLine(text: string, most: number): string {
  const line = text
    .slice(0, 4 * most)
    .replace(/\s+/g, " ")
    .trim();
  const cut = line.length <= most ? line : `${line.slice(0, Math.max(0, most - 3))}...`;
  return cut.replace(/\p{C}/gu, "\ufffd");
}

/** The texts of arguments that no display shows: the header `pinlater-secret` names them. */
function secretsOf(claim: Claim): string[] {
  const { args = [], kwargs = {}, headers = {} } = claim.call ?? {};
  const named = (headers["pinlater-secret"] ?? "").split(" ").filter(Boolean);
  const values = named.map((name) => (name in kwargs ? kwargs[name] : args[Number(name)]));
  const texts = values.flatMap((value) => textsIn(value)).filter((text) => text.length >= SHORTEST_SECRET);
  return texts.sort((one, other) => other.length - one.length);
}

function textsIn(value: unknown): string[] {
  if (typeof value === "object" && value !== null) return Object.values(value).flatMap(textsIn);
  return typeof value === "string" ? [value] : typeof value === "number" ? [String(value)] : [];
}

function masked(text: string, secrets: string[]): string {
  return secrets.reduce((shown, secret) => shown.replaceAll(secret, "***"), text);
}
