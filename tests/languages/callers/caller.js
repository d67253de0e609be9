// One job, through Apache's `thrift` package for Node over TLS.
// node caller.js GENERATED HOST PORT CA CERT|- KEY|- QUEUE; prints the job's descriptor, or REFUSED and the reason.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const thrift = require('thrift');

const [generated, host, port, ca, cert, key, queue] = process.argv.slice(2);
const PinLater = require(path.resolve(generated, 'PinLater.js'));
const types = require(path.resolve(generated, 'pinlater_types.js'));

const shown = cert === '-' ? {} : { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
const connection = thrift.createSSLConnection(host, Number(port), {
  transport: thrift.TFramedTransport,
  protocol: thrift.TBinaryProtocol,
  ca: fs.readFileSync(ca),
  ...shown,
});
connection.on('error', (error) => { console.error(error.message); process.exit(1); });
const client = thrift.createClient(PinLater, connection);
const caller = new types.RequestContext({ source: 'node' });

async function enqueue() {
  await client.createQueue(caller, queue);
  const jobs = [new types.PinLaterJob({ body: Buffer.from('from node') })];
  const answer = await client.enqueueJobs(caller, new types.PinLaterEnqueueRequest({ queueName: queue, jobs }));
  return answer.jobDescriptors[0];
}

enqueue()
  .catch((error) => {
    if (!(error instanceof types.PinLaterException)) throw error;
    return `REFUSED ${error.reason}`;
  })
  .then((told) => { console.log(told); connection.end(); });
