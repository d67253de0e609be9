/** Calls to the HTTP interface of one of several servers: who is asked, how long, and what a failure was. */

import { failure, PinLaterError, type Problem } from "./errors.ts";

/** One request, and the whole text of its answer. Rejects where there is none. */
export type Send = (url: string, request: SendRequest) => Promise<{ status: number; text: string }>;

/** What `Send` is given. */
export interface SendRequest {
  method: string;
  headers: Record<string, string>;
  body: string | null;
  signal: AbortSignal;
  /** Aborted when no answer is wanted any more, but for one that is on its way. `fetch` knows no such thing. */
  ending: AbortSignal | undefined;
  /** The head of an answer is there: what was asked for is on its way. */
  onAnswer: () => void;
  /** It waits for jobs: what comes by the same connection would wait behind it, and claims hang on it. */
  isPoll: boolean;
}

/** Where the servers are, and who calls. */
export interface ConnectionOptions {
  /** Addresses of the HTTP interface, as in `http://127.0.0.1:9012`; calls stay with one of them until it fails. */
  servers?: string | readonly string[];
  /** The token of the caller, or a function that returns it, which is called again when a token was refused. */
  token?: string | (() => string | Promise<string>);
  /** Certificates in PEM: those who signed the servers' certificates, in place of those that the machine trusts. */
  ca?: string;
  /** Who calls, up to 200 printable characters of ASCII: it stands in claims and in the audit. */
  source?: string;
  /** In place of the global `fetch`, for proxies and for certificates of the caller. */
  fetch?: typeof fetch;
}

/** How one call is made. */
export interface CallOptions {
  method?: string;
  body?: object;
  /** No answer in this time is a failure, whatever the connection looks like: it may be half open. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  ending?: AbortSignal;
  onAnswer?: () => void;
  isPoll?: boolean;
}

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000; // as in the Python client: a server that failed is left out ever longer
const ASK_AGAIN_MS = 60_000;

interface Server {
  url: string;
  failures: number;
  pausedUntil: number;
}

/** Calls to one of several servers. */
export class Connection {
  readonly #servers: Server[];
  readonly #options: ConnectionOptions;
  readonly #onDisconnect: (() => void) | undefined;
  #current = 0;
  #send: Promise<Send> | undefined;
  #token: Promise<string> | undefined;
  readonly #refusedFields = new Map<string, number>();

  /** `onDisconnect`: of a worker, whose connections are to stay open; it is called when one that polls used closes. */
  constructor(options: ConnectionOptions, onDisconnect?: () => void) {
    const servers = [options.servers ?? "http://127.0.0.1:9012"].flat();
    if (servers.length === 0) throw new TypeError("servers: none is named");
    this.#servers = servers.map((url) => ({ url: new URL(url).href.replace(/\/$/, ""), failures: 0, pausedUntil: 0 }));
    this.#current = Math.floor(Math.random() * servers.length); // so that many programs do not all ask the first one
    this.#options = options;
    this.#onDisconnect = onDisconnect;
    // the agents of Deno and Bun are not known to keep one connection
    this.holdsConnections =
      onDisconnect !== undefined && !options.fetch && !("Deno" in globalThis || "Bun" in globalThis);
  }

  /** Claims may be bound to the connection of a poll, since that stays open. */
  readonly holdsConnections: boolean;

  /** One try. PinLaterError; the reason of `signal`, where that was aborted. */
  async call(path: string, options: CallOptions): Promise<unknown> {
    const server = this.#pick();
    try {
      const answer = await this.#ask(server, path, options);
      server.failures = 0;
      return answer;
    } catch (error) {
      if (error instanceof PinLaterError && (error.isUnanswered || [502, 503].includes(error.status))) {
        const pause = Math.min(FIRST_PAUSE_MS * 2 ** server.failures++, LONGEST_PAUSE_MS);
        server.pausedUntil = performance.now() + pause;
      }
      throw error;
    }
  }

  /**
   * The same again until it is answered: for calls that may be carried out twice. Gives up when the time is over, and
   * at once where the refusal would stay the same or is about a queue that takes nothing now.
   */
  async untilAnswered(path: string, options: CallOptions & { tryMs: number }): Promise<unknown> {
    const end = performance.now() + options.timeoutMs;
    for (let failures = 0; ; failures++) {
      const leftMs = end - performance.now();
      try {
        return await this.call(path, { ...options, timeoutMs: Math.max(1, Math.min(options.tryMs, leftMs)) });
      } catch (error) {
        if (!(error instanceof PinLaterError) || !error.retryable || error.status === 429) throw error;
        const pauseMs = this.#hasOther() ? 0 : Math.max(backoffMs(failures), error.retryAfterMs ?? 0);
        if (performance.now() + pauseMs >= end) throw error;
        await sleep(pauseMs, options.signal);
      }
    }
  }

  /** Whether a field may be sent that servers of an earlier version do not know: one of them refused it just now. */
  mayHave(field: string): boolean {
    return performance.now() >= (this.#refusedFields.get(field) ?? -Infinity);
  }

  /** Whether a call failed because of that field alone. From then on it is left out for a minute. */
  refusedField(field: string, error: unknown): boolean {
    if (!(error instanceof PinLaterError) || error.status !== 400) return false;
    if (error.field !== field && !error.field.endsWith(`.${field}`)) return false;
    this.#refusedFields.set(field, performance.now() + ASK_AGAIN_MS);
    return true;
  }

  /** The current server while it answers, else the next that is not left out, else the one whose pause ends first. */
  #pick(): Server {
    const now = performance.now();
    const count = this.#servers.length;
    const inTurn = this.#servers.map((_, step) => (this.#current + step) % count);
    const until = (at: number) => this.#servers[at]?.pausedUntil ?? 0;
    this.#current = inTurn.find((at) => until(at) <= now) ?? inTurn.reduce((a, b) => (until(b) < until(a) ? b : a));
    return this.#servers[this.#current] as Server;
  }

  /** The server that was asked last is left out, and another one is not. */
  #hasOther(): boolean {
    const now = performance.now();
    const isOut = (server: Server | undefined) => server !== undefined && server.pausedUntil > now;
    return isOut(this.#servers[this.#current]) && !this.#servers.every(isOut);
  }

  async #ask(server: Server, path: string, options: CallOptions): Promise<unknown> {
    const { method = options.body ? "POST" : "GET", body, timeoutMs, signal } = options;
    const send = await (this.#send ??= this.#sender());
    const token = await (this.#token ??= this.#readToken());
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body) headers["Content-Type"] = "application/json";
    if (token) headers.Authorization = `Bearer ${token}`;
    if (this.#options.source) headers["X-PinLater-Source"] = this.#options.source;
    signal?.throwIfAborted();
    // AbortSignal.any and .timeout keep what they are given alive for long in Node 20: this ends with the call
    const ended = new AbortController();
    const cancel = () => ended.abort(signal?.reason);
    const late = failure("OUTCOME_UNKNOWN", `${server.url} did not answer in ${Math.ceil(timeoutMs)} ms`);
    const timer = setTimeout(() => ended.abort(late), timeoutMs);
    signal?.addEventListener("abort", cancel);
    try {
      const answer = await send(server.url + path, {
        method,
        headers,
        body: body ? JSON.stringify(body) : null,
        signal: ended.signal,
        ending: options.ending,
        onAnswer: options.onAnswer ?? (() => {}),
        isPoll: options.isPoll ?? false,
      });
      if (answer.status < 300) return answer.text ? parsed(answer.text, server) : null;
      throw this.#refusal(answer, server);
    } catch (error) {
      if (ended.signal.aborted) throw ended.signal.reason;
      if (error instanceof PinLaterError) throw error;
      const codes = codesOf(error);
      const isUntrusted = /CERT|UNABLE_TO_/.test(codes);
      const isUnsent = isUntrusted || /ECONNREFUSED|ENOTFOUND|EAI_AGAIN/.test(codes);
      const reason = isUnsent ? "SERVER_UNREACHABLE" : "OUTCOME_UNKNOWN";
      const problem = { reason, detail: `${server.url}: ${codes}`, retryable: !isUntrusted };
      throw new PinLaterError(problem, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  #refusal(answer: { status: number; text: string }, server: Server): PinLaterError {
    const { status } = answer;
    if (status === 401 || status === 403) this.#token = undefined; // it may have been replaced
    let problem: Partial<Problem> = {};
    try {
      problem = JSON.parse(answer.text) as Partial<Problem>;
    } catch {
      // of a proxy in between
    }
    const detail = problem.detail ?? `${server.url} answered with status ${status}`;
    const retryable = problem.retryable ?? (status >= 500 || status === 429);
    return new PinLaterError({ ...problem, reason: problem.reason ?? "PROTOCOL_ERROR", detail, retryable, status });
  }

  async #readToken(): Promise<string> {
    const { token = "" } = this.#options;
    return typeof token === "string" ? token : (await token()).trim();
  }

  async #sender(): Promise<Send> {
    const { ca, fetch: given } = this.#options;
    if (given || !(ca || this.holdsConnections)) return fetchSender(given ?? fetch);
    return (await import("./sockets.ts")).socketSender(ca, this.#onDisconnect ?? (() => {}));
  }
}

function fetchSender(fetcher: typeof fetch): Send {
  return async (url, { method, headers, body, signal, onAnswer }) => {
    const response = await fetcher(url, { method, headers, body, signal, redirect: "error" });
    onAnswer();
    return { status: response.status, text: await response.text() };
  };
}

function parsed(text: string, server: Server): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw failure("PROTOCOL_ERROR", `${server.url} answered with what is no JSON`, error);
  }
}

/** The texts and codes of an error and of what caused it: `fetch failed` alone says nothing. */
function codesOf(error: unknown): string {
  const found: string[] = [];
  for (let each = error; each instanceof Error && found.length < 4; each = each.cause) {
    const { code } = each as { code?: unknown };
    found.push(typeof code === "string" && !each.message.includes(code) ? `${each.message} (${code})` : each.message);
  }
  return found.filter(Boolean).join(": ") || String(error);
}

/** The pause after so many failures in a row: 0.1 s, then ever longer up to 2 s, drawn at random below that. */
export function backoffMs(failures: number): number {
  return Math.min(100 * 2 ** failures, 2_000) * (0.5 + Math.random() / 2);
}

/** Ends after that time. Rejects with the reason of the signal when that is aborted first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
