// The jobs on the kit for Node: node on_kit.mjs [--slots N] works on the queues of BENCH_QUEUES
import { parseArgs } from "node:util";
import noop from "./graphile_tasks/tasks/noop.js";

const { Worker } = await import(process.env.BENCH_NODE_KIT);
const { values } = parseArgs({ options: { slots: { type: "string", default: "8" } } });
const queues = process.env.BENCH_QUEUES.split(",");
const worker = new Worker({ servers: process.env.BENCH_HTTP, queues, slots: Number(values.slots) });
queues.forEach((name, number) => worker.handle(`noop_${name}`, (job) => noop({ queue: number, sent_ns: job.args[0] })));
await worker.run();
process.exit(0);
