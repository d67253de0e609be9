// A producer and a worker against a real server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { constant, Fail, never, PinLaterError, RetryAfter, Snooze } from "pinlater";

import { freePort, Server, sleeping, until, working } from "./server.js";

let server;
before(async () => (server = await Server.start()));
after(() => server?.close());

test("a job runs, and its caller gets the result", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const handlers = (worker) => worker.handle("add", ({ args, kwargs }) => ({ sum: args[0] + kwargs.b }));
  await working(server, { queues: [queue], handlers }, async (told) => {
    const job = { name: "add", args: [1], kwargs: { b: 2 }, keepResult: true };
    const { descriptor, outcome } = await producer.enqueue(queue, job);
    assert.equal(outcome, "stored");
    const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
    assert.deepEqual([ended.state, ended.result], ["succeeded", { sum: 3 }]);
    assert.equal((await told.until("ended", { job: descriptor })).outcome, "succeeded");
    const { attempts_allowed: allowed, priority } = await server.job(descriptor);
    assert.deepEqual([allowed, priority], [11, 1]);
  });
});

test("what handlers throw decides what becomes of their jobs", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const handlers = (worker) =>
    worker
      .handle("fails", () => Promise.reject(new Fail("no such customer")))
      .handle("never", () => Promise.reject(new TypeError("wrong")), { retry: never })
      .handle("soon", ({ attempt }) => {
        if (attempt === 1) throw new RetryAfter(1);
      })
      .handle(
        "often",
        ({ attempt }) => {
          if (attempt < 3) throw new Error(`attempt ${attempt}, password hunter22`);
        },
        { retry: constant(1) },
      )
      .handle(
        "snoozes",
        ({ snoozes, attempt }) => {
          if (snoozes < 2) throw new Snooze(1, "not yet");
          return [snoozes, attempt];
        },
        { keepResult: true },
      )
      .handle("large", () => "x".repeat(70_000), { keepResult: true })
      .handle("odd", () => 1n, { keepResult: true })
      .handle("raises nothing of ours", () => Promise.reject(undefined), { retry: never });
  await working(server, { queues: [queue], handlers }, async (told) => {
    const ends = async (job) => {
      const { descriptor } = await producer.enqueue(queue, job);
      const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
      return { ...ended, outcomes: told.of("ended", { job: descriptor }).map((each) => each.outcome) };
    };
    const fails = await ends({ name: "fails" });
    assert.deepEqual([fails.state, fails.outcomes], ["failed", ["failed"]]);
    assert.match(fails.status, /^attempt 1 of 11: Fail: no such customer \[20\d\d-.*Z, \d+\.\ds, .+:\d+\]\n/);
    const never_ = await ends({ name: "never" });
    assert.deepEqual(never_.outcomes, ["failed"]);
    assert.match(never_.status, /TypeError: wrong.*\n {2}at .*worker\.test\.js/);
    assert.deepEqual((await ends({ name: "soon" })).outcomes, ["retry", "succeeded"]);
    const often = await ends({
      name: "often",
      kwargs: { password: "hunter22" },
      headers: { "pinlater-secret": "password" },
    });
    assert.deepEqual([often.state, often.outcomes], ["succeeded", ["retry", "retry", "succeeded"]]);
    assert.match(often.status, /attempt 2, password \*\*\*/);
    const last = await ends({ name: "often", attempts: 2 });
    assert.deepEqual([last.state, last.outcomes], ["failed", ["retry", "failed"]]);
    const snoozes = await ends({ name: "snoozes" });
    assert.deepEqual(
      [snoozes.result, snoozes.outcomes],
      [
        [2, 1],
        ["snoozed", "snoozed", "succeeded"],
      ],
    );
    assert.match(snoozes.status, /snooze 2 of 100: not yet/);
    assert.match((await ends({ name: "odd" })).status, /ResultInvalid/);
    const large = await ends({ name: "large" });
    assert.deepEqual([large.state, large.outcomes], ["failed", ["succeeded"]], "and it ran once");
    assert.match(large.status, /RESULT_TOO_LARGE/);
    assert.equal((await ends({ name: "raises nothing of ours" })).state, "failed");
  });
});

test("whatever a handler says or throws, its job ends and its neighbours keep their claims", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const bad = {
    retries: 1,
    delayMs: () => {
      throw new Error("no policy");
    },
  };
  const half = "\ud83d"; // of a character
  const handlers = (worker) =>
    worker
      .handle(
        "says",
        async (job, { progress, log }) => {
          progress(NaN, half.repeat(500));
          log(half.repeat(5_000));
          log(7);
          await until(async () => (await server.job(job.descriptor)).log_lines?.length === 2);
          return half;
        },
        { keepResult: true },
      )
      .handle(
        "throws",
        ({ kwargs }) => {
          throw [half, Object.create(null), Symbol("s"), new Error(half.repeat(9_000))][kwargs.at];
        },
        { retry: never },
      )
      .handle("policy", () => Promise.reject(new Error("again")), { retry: bad })
      .handle("soon", ({ attempt }) => {
        if (attempt === 1) throw new RetryAfter(NaN);
      });
  await working(server, { queues: [queue], leaseMs: 3_000, handlers }, async (told) => {
    const ends = async (job) => producer.wait((await producer.enqueue(queue, job)).descriptor, { timeoutMs: 60_000 });
    const said = await ends({ name: "says" });
    assert.deepEqual([said.state, said.result], ["succeeded", half]);
    for (const at of [0, 1, 2, 3]) {
      const { state, status } = await ends({ name: "throws", kwargs: { at } });
      assert.equal(state, "failed");
      assert.ok(status.startsWith("attempt 1 of 11: ") && status.length < 3_000, status);
    }
    assert.equal((await ends({ name: "soon" })).state, "succeeded");
    const { descriptor } = await producer.enqueue(queue, { name: "policy" });
    await told.until("ended", { job: descriptor, outcome: "retry" });
    const { run_after_ms: due, updated_at_ms: updated } = await until(async () => {
      const job = await server.job(descriptor);
      return job.state === "pending" && job;
    });
    assert.ok(due - updated > 8_000 && due - updated < 12_000, "as the default policy says");
    assert.deepEqual(told.of("failed"), []);
    for (const rest of ['"args": {}', '"kwargs": []', '"headers": "x"', '"snoozes": "1"']) {
      const body = `PINLATER/1 application/json\n{"job": "soon", ${rest}}`;
      assert.match((await ends({ body })).status, /BodyInvalid/);
    }
  });
});

test("texts, numbers and raw bytes arrive as they were sent", async () => {
  const [queue, raw] = [await server.queue(), await server.queue()];
  const producer = server.producer();
  const all = Uint8Array.from({ length: 256 }, (_, at) => at);
  const texts = [
    "",
    "ä ß 漢字 🦊",
    '"\\/ </script>',
    "\u0000\u001f\u007f\u2028\ufeff",
    "\ud7ff\ue000\u{10ffff}",
    "x".repeat(900_000),
  ];
  const seen = [];
  const handlers = (worker) =>
    worker
      .handle("text", ({ kwargs }) => kwargs.text, { keepResult: false })
      .handle("length", ({ kwargs }) => [kwargs.text.length, kwargs.text.slice(0, 20)], { keepResult: true })
      .handleRaw(raw, ({ body }) => void seen.push(body));
  await working(server, { queues: { [queue]: 3, [raw]: 1 }, handlers }, async () => {
    const stored = await producer.enqueueMany(
      queue,
      texts.map((text) => ({ name: "length", kwargs: { text } })),
    );
    const found = new Map();
    const descriptors = stored.map((each) => each.descriptor);
    for await (const { descriptor, result } of producer.ends(descriptors, { timeoutMs: 60_000 }))
      found.set(descriptor, result);
    const wanted = texts.map((text) => [text.length, text.slice(0, 20)]);
    assert.deepEqual(
      descriptors.map((each) => found.get(each)),
      wanted,
    );
    for (const body of [all, Uint8Array.of(0), new Uint8Array(900_000).fill(255), "plain ä"]) {
      const { descriptor } = await producer.enqueue(raw, { body });
      assert.equal((await producer.wait(descriptor, { timeoutMs: 60_000 })).state, "succeeded");
      assert.deepEqual(seen.pop(), typeof body === "string" ? new TextEncoder().encode(body) : body);
    }
  });
});

test("a job says how far it is, and its lines are in its log", async () => {
  const queue = await server.queue();
  const go = new AbortController();
  const handlers = (worker) =>
    worker.handle("long", async (job, { progress, log }) => {
      progress(0.5, "half");
      log("one\ntwo");
      await new Promise((resolve) => go.signal.addEventListener("abort", resolve));
      log("three");
    });
  await working(server, { queues: [queue], handlers }, async (told) => {
    const { descriptor } = await server.producer().enqueue(queue, { name: "long" });
    const running = await until(async () => {
      const job = await server.job(descriptor);
      return job.progress && job.log_lines.length === 2 && job;
    });
    assert.deepEqual([running.progress.fraction, running.progress.text], [0.5, "half"]);
    go.abort();
    await told.until("ended", { job: descriptor });
    const ended = await server
      .producer()
      .wait(descriptor)
      .then(() => server.job(descriptor));
    assert.deepEqual(
      ended.log_lines.map((line) => line.text),
      ["one", "two", "three"],
    );
  });
});

test("a running job is cancelled, and its handler learns by whom", async () => {
  const queue = await server.queue();
  const handlers = (worker) => worker.handle("sleep", (job, { signal }) => sleeping(600_000, signal));
  await working(server, { queues: [queue], leaseMs: 3_000, handlers }, async (told) => {
    const producer = server.producer();
    const { descriptor } = await producer.enqueue(queue, { name: "sleep" });
    await told.until("began", { job: descriptor });
    await server.call("POST", `/v1/queues/${queue}/jobs/cancel`, { descriptors: [descriptor], running: true });
    const { outcome, error } = await told.until("ended", { job: descriptor });
    assert.deepEqual([outcome, error.why], ["cancelled", "cancelled"]);
    const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
    assert.equal(ended.state, "cancelled");
    assert.match(ended.status, /cancelled by /);
  });
});

test("an attempt over its time limit has failed at once, and its slot is taken until its handler returns", async () => {
  const queue = await server.queue();
  const gate = new AbortController();
  const seen = [];
  const limited = { timeLimitMs: 100, retry: never, keepResult: true };
  const handlers = (worker) =>
    worker
      .handle("heeds", (job, { signal }) => sleeping(600_000, signal).finally(() => seen.push(signal.reason.why)), limited)
      .handle("stubborn", () => new Promise((resolve) => gate.signal.addEventListener("abort", () => resolve(1))), limited)
      .handle("quick", () => sleeping(1), { timeLimitMs: Infinity });
  const options = { queues: [queue], slots: 1, name: "limited", drainMs: 600_000, handlers };
  await working(server, options, async (told, worker) => {
    const producer = server.producer();
    for (const name of ["heeds", "stubborn"]) {
      const { descriptor } = await producer.enqueue(queue, { name });
      const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
      assert.equal(ended.state, "failed");
      assert.match(ended.status, /^attempt 1 of 11: TimeLimitExceeded: it ran longer than 0.1 s \[[^\n]*\n$/);
      const { outcome, error } = await told.until("ended", { job: descriptor });
      assert.deepEqual([outcome, error.name], ["failed", "TimeLimitExceeded"]);
      assert.equal(told.of("stopping", { job: descriptor, why: "time_limit" }).length, 1);
    }
    assert.deepEqual(seen, ["time_limit"]);
    const { descriptor } = await producer.enqueue(queue, { name: "quick" });
    const counts = async () => (await server.call("GET", "/v1/workers?name=limited")).workers[0];
    await until(async () => (await counts())?.stuck_slots === 1);
    assert.equal((await counts()).busy_slots, 0);
    assert.deepEqual(told.of("began", { job: descriptor }), []);
    gate.abort();
    await told.until("ended", { job: descriptor, outcome: "succeeded" });
    assert.throws(() => worker.handle("long", () => {}, { timeLimitMs: 2 ** 31 }), TypeError);
    assert.equal(told.of("ended").length, 3, "what the stubborn one returned counts for nothing");
  });
});

test("a handler that is stuck over its time limit keeps no worker from its end", async () => {
  const queue = await server.queue();
  const handlers = (worker) => worker.handle("stubborn", () => new Promise(() => {}), { timeLimitMs: 100 });
  await working(server, { queues: [queue], drainMs: 600_000, handlers }, async (told, worker) => {
    const { descriptor } = await server.producer().enqueue(queue, { name: "stubborn" });
    await told.until("ended", { job: descriptor, outcome: "retry" });
    await worker.stop();
    assert.equal((await server.job(descriptor)).attempts_remaining, 10);
  });
});

test("a job whose queue is deleted is told that its claim is lost, and says nothing more", async () => {
  const [gone, other] = [await server.queue(), await server.queue()];
  const handlers = (worker) =>
    worker.handle("sleep", (job, { signal }) => sleeping(600_000, signal)).handle("noop", () => {});
  await working(server, { queues: [gone, other], leaseMs: 3_000, handlers }, async (told) => {
    const producer = server.producer();
    const { descriptor } = await producer.enqueue(gone, { name: "sleep" });
    await told.until("began", { job: descriptor });
    await server.call("DELETE", `/v1/queues/${gone}`);
    await told.until("stopping", { job: descriptor, why: "lost" });
    assert.equal((await told.until("ended", { job: descriptor })).outcome, "lost");
    const next = await producer.enqueue(other, { name: "noop" });
    assert.equal((await producer.wait(next.descriptor, { timeoutMs: 60_000 })).state, "succeeded");
  });
});

test("a queue that comes later holds up no other, and is served when it is there", async () => {
  const there = await server.queue();
  const handlers = (worker) => worker.handle("noop", () => {});
  await working(server, { queues: [there, "kit_later"], handlers }, async (told, worker, lines) => {
    const producer = server.producer();
    const first = await producer.enqueue(there, { name: "noop" });
    await told.until("ended", { job: first.descriptor });
    assert.match(lines[0], /no jobs from queue kit_later: .*does not exist/);
    await server.call("PUT", "/v1/queues/kit_later");
    const second = await producer.enqueue("kit_later", { name: "noop" });
    await told.until("ended", { job: second.descriptor });
    assert.match(lines.at(-1), /kit_later gives jobs again/);
  });
});

test("a job of an unknown type is requeued, and spends no attempt", async () => {
  const queue = await server.queue();
  await working(server, { queues: [queue] }, async (told, worker, lines) => {
    const producer = server.producer();
    const jobs = await producer.enqueueMany(queue, [{ name: "mystery" }, { body: "raw" }]);
    for (const { descriptor } of jobs) {
      await told.until("ended", { job: descriptor, outcome: "handed_back" });
      const job = await until(async () => {
        const found = await server.job(descriptor);
        return found.state === "pending" && found;
      });
      assert.ok(job.run_after_ms > job.created_at_ms);
      assert.equal(job.attempts_remaining, 11);
    }
    assert.equal(lines.length, 2);
    const listed = await until(async () => {
      const { workers } = await server.call("GET", `/v1/workers?queue=${queue}`);
      return workers[0]?.unknown_types?.length === 2 && workers[0];
    });
    assert.equal(listed.pid, process.pid);
  });
});

test("a job whose type stays unknown fails, and the log says so", async () => {
  const queue = await server.queue();
  await working(server, { queues: [queue], unknownDelayMs: 1, unknownLimitMs: 1 }, async (told, worker, lines) => {
    const producer = server.producer();
    const { descriptor } = await producer.enqueue(queue, { name: "mystery" });
    const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
    assert.equal(ended.state, "failed");
    assert.match(ended.status, /^attempt 1 of 11: UnknownType: type mystery, unknown to the workers of queue /m);
    assert.match(lines.at(-1), new RegExp(`job ${descriptor} has failed, no attempt follows: type mystery, unknown`));
  });
});

test("a worker ends where an operator says so", async () => {
  const queue = await server.queue();
  const gate = new AbortController();
  const handlers = (worker) =>
    worker.handle("gated", () => new Promise((resolve) => gate.signal.addEventListener("abort", resolve)));
  await working(server, { queues: [queue], name: "commanded", handlers }, async (told, worker) => {
    const listed = async () => (await server.call("GET", "/v1/workers?name=commanded")).workers;
    const { id } = await until(async () => (await listed())[0]);
    const [first] = await server.producer().enqueueMany(queue, [{ name: "gated" }]);
    await told.until("began", { job: first.descriptor });
    await server.call("POST", "/v1/workers/commands", { command: "stop", workers: [id] });
    await until(async () => (await listed())[0].is_stopping);
    const later = await server.producer().enqueue(queue, { name: "gated" });
    gate.abort();
    await worker.start();
    assert.equal(told.of("ended", { job: first.descriptor })[0].outcome, "succeeded");
    assert.equal((await server.job(later.descriptor)).state, "pending");
    assert.deepEqual((await server.call("GET", "/v1/workers?name=commanded")).workers, []);
  });
});

test("a worker that drains lets jobs end, hands back the rest, and takes no more", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const handlers = (worker) =>
    worker
      .handle("short", async (job, { draining }) => {
        await new Promise((resolve) => draining.addEventListener("abort", resolve));
      })
      .handle("long", (job, { signal }) => sleeping(600_000, signal))
      .handle("stubborn", () => new Promise(() => {}));
  const jobs = await producer.enqueueMany(
    queue,
    ["short", "long", "stubborn"].map((name) => ({ name })),
  );
  const [short, long, stubborn] = jobs.map((each) => each.descriptor);
  await working(server, { queues: [queue], drainMs: 300, handlers }, async (told, worker) => {
    await told.until("began", {}, 3);
    await worker.stop();
    const outcomes = [short, long, stubborn].map((job) => told.of("ended", { job })[0].outcome);
    assert.deepEqual(outcomes, ["succeeded", "handed_back", "handed_back"]);
  });
  for (const descriptor of [long, stubborn]) {
    const job = await server.job(descriptor);
    assert.deepEqual([job.state, job.attempts_remaining, job.run_after_ms <= Date.now()], ["pending", 11, true]);
  }
  assert.equal((await producer.wait(short)).state, "succeeded");
});

test("a job that is enqueued twice under one dedupe key is one job", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const first = await producer.enqueue(queue, {
    name: "a",
    dedupeKey: "k",
    delayMs: 600_000,
    group: "g",
    tags: ["t"],
    priority: 2,
  });
  const second = await producer.enqueue(queue, { name: "a", dedupeKey: "k" });
  assert.deepEqual([second.descriptor, second.outcome], [first.descriptor, "kept"]);
  const job = await server.job(first.descriptor);
  assert.deepEqual([job.dedupe_key, job.group, job.tags, job.priority], ["k", "g", ["t"], 2]);
  assert.ok(job.run_after_ms >= job.created_at_ms + 590_000);
  const rejected = producer.enqueue(queue, { name: "a", dedupeKey: "k", onDuplicate: "reject" });
  await assert.rejects(rejected, { reason: "DUPLICATE", retryable: false, descriptors: [first.descriptor] });
});

test("errors have a reason, and say whether to try again", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const refused = (job, more) => assert.rejects(producer.enqueue(queue, job), { retryable: false, ...more });
  await assert.rejects(producer.enqueue("nowhere", { name: "a" }), { reason: "QUEUE_NOT_FOUND", retryable: false });
  await refused({ name: "a", kwargs: { text: "x".repeat(1_200_000) } }, { reason: "BODY_TOO_LARGE" });
  await refused({ name: "a", priority: 9 }, { reason: "PRIORITY_NOT_SUPPORTED" });
  await assert.rejects(producer.enqueue(queue, { name: "a", kwargs: { big: 1n } }), TypeError);
  await assert.rejects(producer.enqueue(queue, {}), TypeError);
  await assert.rejects(producer.wait(`${queue}:s1:p1:1`), { reason: "NOT_FOUND" });
  const { descriptor } = await producer.enqueue(queue, { name: "a" });
  await assert.rejects(producer.wait(descriptor, { timeoutMs: 10 }), { reason: "TIMED_OUT", retryable: true });
  const nobody = server.producer({ servers: `http://127.0.0.1:${await freePort()}`, timeoutMs: 500 });
  await assert.rejects(nobody.enqueue(queue, { name: "a" }), { reason: "SERVER_UNREACHABLE", retryable: true });
  await assert.rejects(nobody.enqueue(queue, { name: "a" }), PinLaterError);
  const wrong = server.producer({ token: () => "plt_wrong" });
  await assert.rejects(wrong.enqueue(queue, { name: "a" }), { reason: "FORBIDDEN", status: 403 });
});

test("a worker whose token is refused twice ends with the error", async () => {
  const queue = await server.queue();
  let asked = 0;
  await working(server, { queues: [queue], token: () => `plt_wrong${asked++}` }, async (told, worker) => {
    await assert.rejects(worker.start(), { reason: "FORBIDDEN" });
    assert.ok(asked >= 2, "it was read again");
  });
});

test("a header that is no text, and what cannot be looked at, cost an attempt and not the worker", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const unseen = new Proxy(new Error("hidden"), {
    get: () => {
      throw new TypeError("no look");
    },
  });
  const handlers = (worker) =>
    worker
      .handle("plain", () => Promise.reject(new Error("wrong")), { retry: never })
      .handle("odd", () => Promise.reject(unseen), { retry: never });
  await working(server, { queues: [queue], handlers }, async () => {
    const body = (map) => `PINLATER/1 application/json\n${JSON.stringify(map)}`;
    for (const map of [{ job: "plain", headers: { "pinlater-secret": 5 } }, { job: "odd" }]) {
      const { descriptor } = await producer.enqueue(queue, { body: body(map) });
      const ended = await producer.wait(descriptor, { timeoutMs: 60_000 });
      assert.equal(ended.state, "failed");
      assert.match(ended.status, /attempt 1 of 11/);
    }
  });
});

test("a hook that fails, at once or later, is logged and changes nothing", async () => {
  const queue = await server.queue();
  const producer = server.producer();
  const hooks = {
    began: () => Promise.reject(new Error("later")),
    ended: () => {
      throw new Error("at once");
    },
  };
  const handlers = (worker) => worker.handle("noop", () => {});
  await working(server, { queues: [queue], handlers, hooks }, async (told, worker, lines) => {
    const { descriptor } = await producer.enqueue(queue, { name: "noop" });
    assert.equal((await producer.wait(descriptor, { timeoutMs: 60_000 })).state, "succeeded");
    const logged = (name, why) => lines.includes(`hook ${name} failed: Error: ${why}`);
    await until(() => logged("began", "later") && logged("ended", "at once"));
  });
});
