// Servers that restart, die or hang, answers that are lost, and workers that are told to end or stood still.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import dns from "node:dns";
import { createServer, request } from "node:http";
import { connect, createServer as createTcpServer } from "node:net";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Server, sleeping, Told, until, working } from "./server.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.close());

/** The worker of program.js, with what it printed. */
function program(queue, leaseMs = 30_000, drainMs = 60_000) {
  const file = fileURLToPath(new URL("program.js", import.meta.url));
  const child = spawn(process.execPath, [file, server.address, queue, leaseMs, drainMs], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const told = new Told();
  createInterface({ input: child.stdout }).on("line", (line) => told.note(JSON.parse(line)));
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  return { told, ended, kill: (signal) => child.kill(signal) };
}

/** Lets through what comes, until it is told to keep the answers back. */
async function proxy() {
  const sockets = new Set();
  const state = { keepsAnswers: false, kept: 0, drop: () => sockets.forEach((socket) => socket.destroy()) };
  const listener = createTcpServer((near) => {
    const far = connect(server.port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
    near.pipe(far);
    far.on("data", (data) => {
      if (state.keepsAnswers) state.kept += 1;
      else near.write(data);
    });
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  state.address = `http://127.0.0.1:${listener.address().port}`;
  state.close = () => {
    state.drop();
    listener.close();
  };
  return state;
}

const gated = (gate) => (worker) =>
  worker
    .handle("gated", () => new Promise((resolve) => gate.signal.addEventListener("abort", resolve)))
    .handle("noop", () => {});

for (const [how, down] of [
  ["is stopped", () => server.stop()],
  [
    "is killed",
    async () => {
      server.signal("SIGKILL");
      await server.ended;
    },
  ],
]) {
  test(`a job that ends while the server ${how} and away succeeds when it is back, and runs once`, async () => {
    const queue = await server.queue();
    const gate = new AbortController();
    await working(server, { queues: [queue], pollWaitMs: 500, handlers: gated(gate) }, async (told) => {
      const producer = server.producer();
      const { descriptor } = await producer.enqueue(queue, { name: "gated" });
      await told.until("began", { job: descriptor });
      await down();
      gate.abort();
      await told.until("ended", { job: descriptor });
      await told.until("failed");
      const later = producer.enqueue(queue, { name: "noop" }); // outlasts the restart as well
      await server.begin();
      assert.equal((await producer.wait(descriptor, { timeoutMs: 60_000 })).state, "succeeded");
      await told.until("ended", { job: (await later).descriptor });
      assert.equal(told.of("began", { job: descriptor }).length, 1);
    });
  });
}

test("calls to a server that hangs end in time, and acks are sent again until it goes on", async () => {
  const queue = await server.queue();
  const gate = new AbortController();
  await working(server, { queues: [queue], pollWaitMs: 500, handlers: gated(gate) }, async (told) => {
    const { descriptor } = await server.producer().enqueue(queue, { name: "gated" });
    await told.until("began", { job: descriptor });
    server.signal("SIGSTOP");
    try {
      gate.abort();
      const hurried = server.producer({ timeoutMs: 300 });
      await assert.rejects(hurried.enqueue(queue, { name: "noop" }), { reason: "OUTCOME_UNKNOWN", retryable: true });
      await told.until("failed", { doing: "a dequeue" }); // on which the ack rode
    } finally {
      server.signal("SIGCONT");
    }
    assert.equal((await server.producer().wait(descriptor, { timeoutMs: 60_000 })).state, "succeeded");
    assert.equal(told.of("began", { job: descriptor }).length, 1);
  });
});

test("a dead address of a name is passed over", async (context) => {
  const queue = await server.queue();
  const { lookup } = dns;
  context.mock.method(dns, "lookup", (host, options, found) => {
    if (host !== "localhost") return lookup(host, options, found);
    const all = ["127.0.0.2", "127.0.0.1"].map((address) => ({ address, family: 4 }));
    return options.all ? found(null, all) : found(null, all[0].address, 4);
  });
  const servers = `http://localhost:${server.port}`;
  const handlers = (worker) => worker.handle("noop", () => {});
  await working(server, { servers, queues: [queue], handlers }, async (told) => {
    const { descriptor } = await server.producer({ servers }).enqueue(queue, { name: "noop" });
    await told.until("ended", { job: descriptor, outcome: "succeeded" });
    assert.deepEqual(told.of("failed"), []);
  });
});

test("an enqueue whose answer is lost is sent again, and stored once, with keys and without", async () => {
  const queue = await server.queue();
  const between = await proxy();
  try {
    const producer = server.producer({ servers: between.address });
    await producer.enqueue(queue, { name: "a", delayMs: 600_000 });
    for (const dedupeKey of [undefined, "k"]) {
      between.keepsAnswers = true;
      between.kept = 0;
      const one = { name: "a", delayMs: 600_000, ...(dedupeKey ? { dedupeKey } : {}) };
      const enqueued = producer.enqueueMany(queue, dedupeKey ? [one] : [one, one]);
      await until(() => between.kept > 0);
      between.keepsAnswers = false;
      between.drop();
      const stored = await enqueued;
      assert.deepEqual(new Set(stored.map((each) => each.outcome)), new Set(["stored"]));
    }
    const { count } = await server.call("GET", `/v1/queues/${queue}/jobs/count?state=pending&future=true`);
    assert.equal(count, 4);
  } finally {
    between.close();
  }
});

test("a server of an earlier version, which knows fewer fields, is served all the same", async () => {
  const queue = await server.queue();
  const refused = [];
  const older = createServer(async (asked, answer) => {
    const parts = [];
    for await (const part of asked) parts.push(part);
    const body = Buffer.concat(parts);
    const field = ["send_id", "release_on_disconnect", "permanent"].find((each) => body.includes(`"${each}"`));
    if (field) {
      refused.push(field);
      const at = { send_id: "jobs[0].send_id", permanent: "acks[0].succeeded[0].permanent" }[field] ?? field;
      const problem = {
        reason: "REQUEST_INVALID",
        detail: `${at}: there is no such field`,
        retryable: false,
        field: at,
      };
      return answer.writeHead(400, { "Content-Type": "application/problem+json" }).end(JSON.stringify(problem));
    }
    const options = { method: asked.method, headers: { ...asked.headers, host: `127.0.0.1:${server.port}` } };
    const passed = request(server.address + asked.url, options, (found) => {
      answer.writeHead(found.statusCode, found.headers);
      found.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    passed.end(body);
  });
  await new Promise((resolve) => older.listen(0, "127.0.0.1", resolve));
  const servers = `http://127.0.0.1:${older.address().port}`;
  try {
    const handlers = (worker) => worker.handle("noop", () => 1, { keepResult: true });
    await working(server, { servers, queues: [queue], handlers }, async (told) => {
      const producer = server.producer({ servers });
      for (let at = 0; at < 3; at++) {
        const { descriptor } = await producer.enqueue(queue, { name: "noop" });
        await told.until("ended", { job: descriptor, outcome: "succeeded" });
        assert.equal((await producer.wait(descriptor)).result, 1);
        assert.equal((await server.job(descriptor)).dedupe_key.length, 38, "the send id in its stead");
      }
    });
    assert.deepEqual(refused.sort(), ["permanent", "release_on_disconnect", "send_id"], "each once");
  } finally {
    older.closeAllConnections();
    older.close();
  }
});

test("SIGTERM while a job runs: it ends, and the worker with 0", async () => {
  const queue = await server.queue();
  const { descriptor } = await server.producer().enqueue(queue, { name: "sleep", kwargs: { ms: 1_000 } });
  const worker = program(queue);
  await worker.told.until("began", { job: descriptor });
  worker.kill("SIGTERM");
  assert.equal(await worker.ended, 0);
  assert.deepEqual(
    worker.told.events.map((each) => each.what),
    ["began", "draining", "ended", "stopped"],
  );
  const job = await server.job(descriptor);
  assert.deepEqual([job.state, job.attempts.length], ["succeeded", 1]);
});

test("a second SIGTERM hands back what runs, at once and without an attempt spent", async () => {
  const queue = await server.queue();
  const jobs = ["sleep", "stubborn"].map((name) => ({ name, kwargs: { ms: 600_000 } }));
  const stored = await server.producer().enqueueMany(queue, jobs);
  const worker = program(queue);
  await worker.told.until("began", {}, 2);
  worker.kill("SIGTERM");
  await worker.told.until("draining");
  worker.kill("SIGTERM");
  assert.equal(await worker.ended, 0);
  for (const { descriptor } of stored) {
    const job = await server.job(descriptor);
    assert.deepEqual([job.state, job.attempts_remaining], ["pending", 11]);
    assert.deepEqual(
      worker.told.of("ended", { job: descriptor }).map((each) => each.outcome),
      ["handed_back"],
    );
  }
});

test("a worker that stood still for longer than its lease learns that its claims are lost", async () => {
  const queue = await server.queue();
  const { descriptor } = await server.producer().enqueue(queue, { name: "sleep", kwargs: { ms: 600_000 } });
  const stalled = program(queue, 2_000);
  await stalled.told.until("began", { job: descriptor });
  stalled.kill("SIGSTOP");
  const other = program(queue, 2_000);
  try {
    assert.equal((await other.told.until("began", { job: descriptor })).attempt, 2);
    stalled.kill("SIGCONT");
    await stalled.told.until("stopping", { job: descriptor, why: "lost" });
    assert.equal((await stalled.told.until("ended", { job: descriptor })).outcome, "lost");
    assert.equal((await server.job(descriptor)).state, "in_progress", "the other one's");
  } finally {
    stalled.kill("SIGKILL");
    other.kill("SIGKILL");
  }
});

test("a handler that heeds its signal stops what it waits for", async () => {
  const queue = await server.queue();
  const seen = [];
  const handlers = (worker) =>
    worker.handle("fetches", async (job, { signal }) => {
      await sleeping(600_000, signal).catch((error) => seen.push(error.why));
      signal.throwIfAborted();
    });
  const { descriptor } = await server.producer().enqueue(queue, { name: "fetches" });
  await working(server, { queues: [queue], drainMs: 0, handlers }, async (told, worker) => {
    await told.until("began", { job: descriptor });
    await worker.stop();
    assert.deepEqual([seen, told.of("ended")[0].outcome], [["stopping"], "handed_back"]);
  });
});
