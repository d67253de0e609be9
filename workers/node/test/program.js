// A worker as a process of its own: program.js ADDRESS QUEUE LEASE_MS DRAIN_MS; prints what happens as lines of JSON.

import { Worker } from "pinlater";

import { sleeping } from "./server.js";

const [address, queue, leaseMs, drainMs] = process.argv.slice(2);
const note = (what, more) => process.stdout.write(`${JSON.stringify({ what, ...more })}\n`);
const worker = new Worker({
  servers: address,
  queues: [queue],
  leaseMs: Number(leaseMs),
  drainMs: Number(drainMs),
  hooks: {
    began: (job) => note("began", { job: job.descriptor, attempt: job.attempt }),
    ended: (job, outcome) => note("ended", { job: job.descriptor, outcome }),
    stopping: (job, why) => note("stopping", { job: job.descriptor, why }),
    draining: () => note("draining"),
  },
  log: (line) => note("logged", { line }),
});
worker.handle("sleep", ({ kwargs }, { signal }) => sleeping(kwargs.ms, signal));
worker.handle("stubborn", ({ kwargs }) => sleeping(kwargs.ms));
await worker.run();
note("stopped");
process.exit(0);
