// A job of graphile-worker: a line of the record (record.py), in one write.
const fs = require("node:fs");

const file = fs.openSync(process.env.BENCH_RECORD, "a");

module.exports = async ({ queue, sent_ns }) => {
  const line = Buffer.alloc(20);
  line.writeInt32LE(queue, 0);
  line.writeBigInt64LE(BigInt(sent_ns), 4);
  line.writeBigInt64LE(process.hrtime.bigint() + offset, 12);
  fs.writeSync(file, line);
};

// Between the steady clock, which has nanoseconds, and the machine's.
const offset = BigInt(Date.now()) * 1000000n - process.hrtime.bigint();
