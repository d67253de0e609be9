// The jobs on BullMQ:
//   node on_bullmq.mjs work [--slots N]      works on the queues of BENCH_QUEUES, at its default of 1 job at a time
//   node on_bullmq.mjs produce --jobs N ...  as produce.py, with its options
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import noop from "./graphile_tasks/tasks/noop.js";

const BODY_LENGTH = 200;
const packages = createRequire(process.env.BENCH_NODE);
const { Queue, Worker } = packages("bullmq");
const { Redis } = packages("ioredis");
const connection = new Redis(process.env.BENCH_BROKER, { maxRetriesPerRequest: null });
const names = process.env.BENCH_QUEUES.split(",");

function bodyOf(name, sentNs) {
  const body = { queue: names.indexOf(name), sent_ns: String(sentNs), pad: "" };
  return { ...body, pad: "-".repeat(BODY_LENGTH - JSON.stringify(body).length) };
}

function* batches(queues, jobs, atOnce) {
  for (const queue of queues) {
    for (let left = Math.floor(jobs / queues.length); left > 0; left -= atOnce) {
      yield [queue, Array(Math.min(left, atOnce)).fill(noop.nowNs())];
    }
  }
}

async function* paced(queues, jobs, perS) {
  let next = performance.now();
  for (let number = 0; number < jobs; number++) {
    next += ((0.5 + Math.random()) / perS) * 1000;
    await new Promise((resolve) => setTimeout(resolve, next - performance.now()));
    yield [queues[Math.floor(Math.random() * queues.length)], [noop.nowNs()]];
  }
}

function begin() {
  console.log("ready");
  return new Promise((resolve) => process.stdin.once("data", resolve));
}

async function produce(given, only) {
  const [jobs, perS, atOnce, warmUp] = ["jobs", "per-s", "at-once", "warm-up"].map((name) => Number(given[name]));
  const chosen = only.length ? only : names;
  const queues = Object.fromEntries(chosen.map((name) => [name, new Queue(name, { connection })]));
  const send = (name, sent) =>
    sent.length === 1
      ? queues[name].add("noop", bodyOf(name, sent[0]))
      : queues[name].addBulk(sent.map((each) => ({ name: "noop", data: bodyOf(name, each) })));
  for (let number = 0; number < warmUp; number++) await send(chosen[0], [0n]);
  await begin();
  const [began, cpuBegan] = [performance.now(), process.cpuUsage()];
  for await (const call of perS ? paced(chosen, jobs, perS) : batches(chosen, jobs, atOnce)) await send(...call);
  const [seconds, cpu] = [(performance.now() - began) / 1000, process.cpuUsage(cpuBegan)];
  console.log(JSON.stringify({ jobs, seconds, cpu: (cpu.user + cpu.system) / 1e6 }));
  process.exit(0);
}

const options = Object.fromEntries(
  Object.entries({ slots: "1", jobs: "0", "per-s": "0", "at-once": "500", "warm-up": "0" }).map(([name, value]) => [
    name,
    { type: "string", default: value },
  ]),
);
const { values, positionals } = parseArgs({ options, allowPositionals: true });
if (positionals[0] === "work") {
  for (const name of names) {
    new Worker(name, (job) => noop(job.data), { connection, concurrency: Number(values.slots) });
  }
} else {
  await produce(values, positionals.slice(1));
}
