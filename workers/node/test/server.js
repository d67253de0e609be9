// A server with its HTTP interface for tests: `PINLATER_COMMAND serve`, in a folder of its own.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Producer, Worker } from "pinlater";

const COMMAND = (process.env.PINLATER_COMMAND ?? "pinlater").split(" ");

export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Server {
  #queues = 0;

  static async start() {
    const server = new Server();
    server.folder = await mkdtemp(join(tmpdir(), "pinlater-kit-"));
    server.port = await freePort();
    server.address = `http://127.0.0.1:${server.port}`;
    await server.begin();
    return server;
  }

  /** Again as well, with the same jobs. Returns when it answers. */
  async begin() {
    const [program, ...first] = COMMAND;
    const places = ["--data", this.folder, "--port", "0", "--http", "none", "--api", `127.0.0.1:${this.port}`];
    const more = ["--maintenance-interval", "200ms", "--log-format", "json"];
    this.process = spawn(program, [...first, "serve", ...places, ...more], { stdio: ["ignore", "ignore", "pipe"] });
    this.pids = [this.process.pid];
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    const lines = [];
    await new Promise((resolve, reject) => {
      this.process.once("error", reject);
      void this.ended.then(() => reject(new Error(`the server has ended:\n${lines.join("\n")}`)));
      createInterface({ input: this.process.stderr }).on("line", (line) => {
        lines.push(line);
        if (!line.startsWith("{")) return;
        const { event, workers = [], api } = JSON.parse(line);
        this.pids.push(...workers, ...(api ? [api] : []));
        if (event === "api_ready") resolve();
      });
    });
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  /** kill -9, or another signal, of all its processes. */
  signal(name) {
    for (const pid of new Set(this.pids)) process.kill(pid, name);
  }

  async close() {
    await this.stop();
    await rm(this.folder, { recursive: true });
  }

  async call(method, path, body) {
    const password = (await readFile(join(this.folder, "admin-password"), "utf8")).trim();
    const headers = { "Content-Type": "application/json", "X-Admin-Password": password };
    const init = body ? { body: JSON.stringify(body) } : {};
    const response = await fetch(this.address + path, { method, headers, ...init });
    if (!response.ok) throw new Error(`${method} ${path}: ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  /** A new one. */
  async queue() {
    const name = `kit_${this.#queues++}`;
    await this.call("PUT", `/v1/queues/${name}`);
    return name;
  }

  job(descriptor, more = "") {
    return this.call("GET", `/v1/jobs/${encodeURIComponent(descriptor)}?include_trail=true${more}`);
  }

  producer(options = {}) {
    return new Producer({ servers: this.address, ...options });
  }
}

/** What a worker of this process told its hooks, to be waited for. */
export class Told {
  events = [];
  #changed = [];

  note(event) {
    this.events.push(event);
    for (const look of this.#changed.splice(0)) look();
  }

  hooks() {
    return {
      began: (job) => this.note({ what: "began", job: job.descriptor, attempt: job.attempt }),
      ended: (job, outcome, ms, error) => this.note({ what: "ended", job: job.descriptor, outcome, error }),
      stopping: (job, why) => this.note({ what: "stopping", job: job.descriptor, why }),
      polled: (jobs) => this.note({ what: "polled", jobs }),
      failed: (doing, error) => this.note({ what: "failed", doing, error }),
    };
  }

  of(what, more = {}) {
    const fits = (event) => Object.entries(more).every(([key, value]) => event[key] === value);
    return this.events.filter((event) => event.what === what && fits(event));
  }

  /** The so-manieth such event, once it is there. */
  async until(what, more = {}, times = 1) {
    for (;;) {
      const found = this.of(what, more);
      if (found.length >= times) return found[times - 1];
      await new Promise((resolve) => this.#changed.push(resolve));
    }
  }
}

/** Runs a worker for as long as `use` takes. */
export async function working(server, options, use) {
  const told = new Told();
  const lines = [];
  const worker = new Worker({
    servers: server.address,
    hooks: told.hooks(),
    log: (line) => lines.push(line),
    ...options,
  });
  options.handlers?.(worker);
  const life = worker.start();
  try {
    return await use(told, worker, lines);
  } finally {
    void worker.stop().catch(() => {});
    await worker.stop().catch(() => {});
    await life.catch(() => {});
  }
}

/** Until it holds, asked again and again. */
export async function until(holds) {
  for (;;) {
    const found = await holds();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export function sleeping(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
