// The two steps on BullMQ: a job that has all payments as its children, each with its calculation as a child.
//   node on_bullmq.mjs worker PORT          until it is ended
//   node on_bullmq.mjs produce PORT ITEMS   says `ready`, begins at a line, and prints one JSON object
import { createRequire } from "node:module";

const packages = createRequire(process.env.BENCH_NODE);
const { FlowProducer, QueueEvents, Worker } = packages("bullmq");
const { Redis } = packages("ioredis");
const [what, port, items] = process.argv.slice(2);
const connection = new Redis({ host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null });

const STEPS = {
  calculate: async (job) => ({ amount: 7 * job.data.user }),
  pay: async (job) => {
    const [result] = Object.values(await job.getChildrenValues());
    return { paid: result.amount };
  },
  done: async () => null,
};

async function carriedOut(flows, events, amount) {
  const began = process.hrtime.bigint();
  const children = Array.from({ length: amount }, (_, user) => ({
    name: "pay",
    queueName: "pay",
    data: { user },
    children: [{ name: "calculate", queueName: "calculate", data: { user } }],
  }));
  const { job } = await flows.add({ name: "done", queueName: "done", children });
  await job.waitUntilFinished(events);
  return Number(process.hrtime.bigint() - began) / 1e9;
}

if (what === "worker") {
  for (const [queue, step] of Object.entries(STEPS)) new Worker(queue, step, { connection, concurrency: 50 });
} else {
  const flows = new FlowProducer({ connection });
  const events = new QueueEvents("done", { connection });
  await events.waitUntilReady();
  await carriedOut(flows, events, 200);
  console.log("ready");
  process.stdin.once("data", async () => {
    const seconds = await carriedOut(flows, events, Number(items));
    console.log(JSON.stringify({ jobs: Number(items), seconds }));
    process.exit(0);
  });
}
