/** Bodies and results as all languages of the project write them (docs/workers-bodies.md): a first line, then JSON. */

import { Fail } from "./errors.ts";

const FIRST_LINE = "PINLATER/1 application/json\n";
const ANY_FIRST_LINE = /^PINLATER\/([0-9]{1,9}) +([^\n]{1,100})\n/;
const ITEM_HEADER = "pinlater-item"; // of a flow, whose stage decides over attempts, and whose results are plain JSON
/** `1`: this job leaves a result, whatever its type says; `0`: it leaves none. */
export const RESULT_HEADER = "pinlater-result";

/** Which job, with what. */
export interface Call {
  /** The type of job. */
  name: string;
  /** Arguments by position. */
  args: unknown[];
  /** Arguments by name. */
  kwargs: Record<string, unknown>;
  /** What travels with the job, as a trace context does. */
  headers: Record<string, string>;
  /** How often it was snoozed. */
  snoozes: number;
  /** How many attempts its producer wanted; 0: those of its type. */
  attempts: number;
}

/** The body of a call. TypeError: an argument that JSON cannot say. */
export function writeBody(call: Partial<Call> & { name: string }): string {
  const { name, args = [], kwargs = {}, headers = {}, attempts = 0 } = call;
  const has = (value: object) => (Object.keys(value).length > 0 ? value : undefined);
  const map = {
    job: name,
    args: has(args),
    kwargs: has(kwargs),
    headers: has(headers),
    attempts: attempts || undefined,
  };
  return FIRST_LINE + JSON.stringify(map);
}

/**
 * The call that a body holds; null: it has no first line, and is raw. A body of a later version, or in MessagePack, is
 * a job of a type that no handler has, since other workers may read it. Fail: nobody can read it.
 */
export function readBody(sent: string, encoding: string | null): Call | null {
  const body = encoding === "base64" ? atob(sent) : sent; // what is no UTF-8 comes in base64
  const line = ANY_FIRST_LINE.exec(body);
  if (!line) return null;
  const contentType = (line[2] ?? "").split(";", 1)[0]?.trim().toLowerCase();
  const call: Call = { name: line[0].trim(), args: [], kwargs: {}, headers: {}, snoozes: 0, attempts: 0 };
  if (Number(line[1]) > 1 || contentType === "application/msgpack") return call;
  try {
    if (encoding === "base64") throw new TypeError("it is no UTF-8");
    const map = JSON.parse(body.slice(line[0].length)) as Record<string, unknown>;
    if (typeof map.job !== "string") throw new TypeError("it names no job");
    call.name = map.job;
    for (const key of FIELDS) {
      const value = map[key] ?? call[key];
      const isOfKind = typeof value === typeof call[key] && Array.isArray(value) === Array.isArray(call[key]);
      if (!isOfKind) throw new TypeError(`${key} is ${JSON.stringify(value).slice(0, 80)}`);
      Object.assign(call, { [key]: value });
    }
    for (const [name, value] of Object.entries(call.headers)) call.headers[name] = String(value);
  } catch (error) {
    throw new Fail(`BodyInvalid: a body that cannot be read: ${String(error)}`, { cause: error });
  }
  return call;
}

const FIELDS = ["args", "kwargs", "headers", "snoozes", "attempts"] as const;

/**
 * The body with that count of snoozes. The rest stays as it was sent, since JSON of this language would change numbers
 * beyond 2^53; a reader takes the last of two counts.
 */
export function withSnoozes(body: string, snoozes: number): string {
  return body.replace(/(?:,"snoozes":[0-9]+)?\}\s*$/, `,"snoozes":${snoozes}}`);
}

/** The job is an item of a flow. */
export function isItem(call: Call | null): boolean {
  return call !== null && ITEM_HEADER in call.headers;
}

/** The result that a job leaves; null: it leaves none. Fail: a value that JSON cannot say. */
export function writeResult(call: Call | null, value: unknown, keeps: boolean): string | null {
  const wanted = call?.headers[RESULT_HEADER];
  if (!isItem(call) && (wanted === "0" || (wanted !== "1" && !keeps))) return null;
  try {
    const written = (JSON.stringify(value ?? null) as string | undefined) ?? "null"; // of a function, say
    return isItem(call) ? written : FIRST_LINE + written;
  } catch (error) {
    throw new Fail(`ResultInvalid: ${String(error)}`, { cause: error });
  }
}

/** What a result says; one that no kit wrote is a string, or bytes where it is no text. */
export function readResult(result: string | null, encoding: string | null): unknown {
  if (result === null) return undefined;
  if (encoding === "base64") return bytesOf(result, encoding);
  return result.startsWith(FIRST_LINE) ? (JSON.parse(result.slice(FIRST_LINE.length)) as unknown) : result;
}

/** Without halves of characters, which no UTF-8 has: a server refuses a request with one. Cut at `most` of them. */
export function wellFormed(text: string, most: number): string {
  return text.slice(0, most).replace(/\p{Cs}/gu, "\ufffd");
}

/** The bytes that the text of an answer stands for. */
export function bytesOf(text: string, encoding: string | null): Uint8Array {
  if (encoding !== "base64") return new TextEncoder().encode(text);
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** A raw body as a request says it. */
export function rawBody(body: Uint8Array | string): { body: string; body_encoding: "text" | "base64" } {
  if (typeof body === "string") return { body, body_encoding: "text" };
  let text = "";
  for (let at = 0; at < body.length; at += 32_768) text += String.fromCharCode(...body.subarray(at, at + 32_768));
  return { body: btoa(text), body_encoding: "base64" };
}
