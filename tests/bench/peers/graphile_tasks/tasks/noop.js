// A job of graphile-worker: a line of the record (record.py), in one write.
const fs = require("node:fs");

const file = fs.openSync(process.env.BENCH_RECORD, "a");

module.exports = async ({ queue, sent_ns }) => {
  const line = Buffer.alloc(20);
  line.writeInt32LE(queue, 0);
  line.writeBigInt64LE(BigInt(sent_ns), 4);
  line.writeBigInt64LE(nowNs(), 12);
  fs.writeSync(file, line);
};

// The machine's clock, which Date.now() would cut to milliseconds.
const nowNs = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
module.exports.nowNs = nowNs;
