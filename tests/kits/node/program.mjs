// The trial's program with the kit for Node: `program.mjs worker CONFIG.json`, `program.mjs producer CONFIG.json`.

import { createHash } from "node:crypto";
import { openSync, readFileSync, writeSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import { Fail, PinLaterError, Producer, RetryAfter, Snooze, Worker } from "pinlater";

const [, , role, path] = process.argv;
const config = JSON.parse(readFileSync(path, "utf8"));
const connection = {
  servers: config.servers,
  ...(config.token_file ? { token: () => readFile(config.token_file, "utf8") } : {}),
  ...(config.ca_file ? { ca: readFileSync(config.ca_file, "utf8") } : {}),
};

const ledger = role === "worker" ? openSync(config.ledger, "a") : null;

/** One line, one write: several workers may share the file. */
function note(event, more = {}) {
  writeSync(ledger, `${JSON.stringify({ at_ms: Date.now(), worker: config.name, event, ...more })}\n`);
}

/** Until the time is over, or the job is to stop. */
function wait(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** A handler that has a time limit is about to end. */
function returned(descriptor, signal) {
  note("returned", { job: descriptor, why: signal.reason?.why ?? null });
}

// -- the types of job ------------------------------------------------------------------------------------------------

const TYPES = {
  "trial.noop": () => {},
  "trial.sleep": ({ kwargs }, { signal }) => wait(kwargs.ms, signal),
  "trial.stubborn": ({ kwargs }) => wait(kwargs.ms),
  "trial.limited": ({ descriptor, kwargs }, { signal }) =>
    wait(kwargs.ms, signal).finally(() => returned(descriptor, signal)),
  "trial.limited_stubborn": ({ descriptor, kwargs }, { signal }) =>
    wait(kwargs.ms).finally(() => returned(descriptor, signal)),
  "trial.fail_once": ({ attempt }) => {
    if (attempt === 1) throw new Error("the first attempt fails");
  },
  "trial.raise": ({ kwargs }) => {
    throw new Error(kwargs.message);
  },
  "trial.fail": ({ kwargs }) => {
    throw new Fail(kwargs.message);
  },
  "trial.retry_after": ({ kwargs, attempt }) => {
    if (attempt === 1) throw new RetryAfter(kwargs.ms);
  },
  "trial.snooze": ({ kwargs, snoozes }) => {
    if (snoozes === 0) throw new Snooze(kwargs.ms);
  },
  "trial.progress": ({ kwargs }, { progress, signal }) => {
    progress(kwargs.percent / 100, kwargs.message);
    return wait(kwargs.ms, signal);
  },
  "trial.log": ({ kwargs }, { log }) => kwargs.lines.forEach((line) => log(line)),
  "trial.result": ({ kwargs }) => kwargs.value,
  "trial.text": () => {},
};

function failWhereAsked() {
  if (config.failing_hooks) throw new Error("this hook fails");
}

async function work() {
  let isStarted = false;
  const worker = new Worker({
    ...connection,
    queues: { ...config.queues, ...Object.fromEntries((config.raw_queues ?? []).map((queue) => [queue, 1])) },
    slots: config.slots,
    drainMs: config.drain_ms,
    name: config.name,
    hooks: {
      polled: () => {
        if (!isStarted) note("started");
        isStarted = true;
        failWhereAsked();
      },
      began: failWhereAsked,
      ended: (job, outcome) => {
        note("end", { job: job.descriptor, outcome });
        failWhereAsked();
      },
      stopping: (job, why) => {
        if (why !== "stopping") note(why === "lost" ? "lost" : "cancel", { job: job.descriptor });
      },
      draining: () => note("draining"),
      failed: (doing, error) => console.error(new Date().toISOString(), doing, String(error)),
    },
  });
  for (const [name, handler] of Object.entries(TYPES)) {
    worker.handle(
      name,
      (job, context) => {
        note("begin", { job: job.descriptor, name, arguments: job.kwargs, attempt: job.attempt });
        return handler(job, context);
      },
      { keepResult: name === "trial.result", ...(name.startsWith("trial.limited") ? { timeLimitMs: 1_000 } : {}) },
    );
  }
  for (const queue of config.raw_queues ?? []) {
    worker.handleRaw(queue, ({ descriptor: job, body }) => {
      note("begin", { job, name: null, sha256: createHash("sha256").update(body).digest("hex"), length: body.length });
    });
  }
  await worker.run();
  note("stopped");
  process.exit(0);
}

// -- the producer ----------------------------------------------------------------------------------------------------

const producer = new Producer(connection);

function jobOf({ name, kwargs, body_base64: body, options }) {
  const given = Object.fromEntries(Object.entries(options ?? {}).filter(([, value]) => value !== null));
  const named = {
    delayMs: given.delay_ms,
    priority: given.priority,
    attempts: given.attempts,
    dedupeKey: given.dedupe_key,
    serializeKey: given.serialize_key,
    group: given.group,
    keepResult: given.keep_result_ms === undefined ? undefined : true,
  };
  return body === undefined ? { name, kwargs, ...named } : { body: Buffer.from(body, "base64"), ...named };
}

async function answer(command) {
  if (command.enqueue) {
    const { descriptor } = await producer.enqueue(command.enqueue.queue, jobOf(command.enqueue));
    return { descriptor };
  }
  if (command.enqueue_many) {
    const stored = await producer.enqueueMany(command.enqueue_many[0].queue, command.enqueue_many.map(jobOf));
    return { descriptors: stored.map((each) => each.descriptor) };
  }
  const ended = await producer.wait(command.wait.descriptor, { timeoutMs: command.wait.timeout_ms });
  return { state: ended.state, result: ended.result ?? null };
}

async function produce() {
  for await (const line of createInterface({ input: process.stdin })) {
    const made = await answer(JSON.parse(line)).catch((error) => {
      const isOurs = error instanceof PinLaterError;
      const told = { kind: isOurs ? error.reason : error.name, message: error.message };
      return { error: { ...told, retryable: isOurs && error.retryable } };
    });
    process.stdout.write(`${JSON.stringify(made)}\n`);
  }
}

await (role === "worker" ? work() : produce());
