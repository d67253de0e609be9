// The scenario of tests/languages/scenario.py, through Apache's `thrift` package for Node.
// node caller.js HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const thrift = require('thrift');
const PinLater = require('./PinLater.js');
const types = require('./pinlater_types.js');

const [host, port, framing, protocol, ca, cert, key, token, queue, password] = process.argv.slice(2);
const caller = new types.RequestContext({ source: 'caller', ...(token === '-' ? {} : { token }) });
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let connection, client, lost;

function open() {
  const options = {
    transport: framing === 'framed' ? thrift.TFramedTransport : thrift.TBufferedTransport,
    protocol: protocol === 'compact' ? thrift.TCompactProtocol : thrift.TBinaryProtocol,
  };
  if (ca === '-') {
    connection = thrift.createConnection(host, Number(port), options);
  } else {
    const shown = cert === '-' ? {} : { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
    connection = thrift.createSSLConnection(host, Number(port), { ...options, ca: fs.readFileSync(ca), ...shown });
  }
  // The library ends no call when its connection does: whoever waits has to hear of it here.
  lost = new Promise((_, reject) => {
    connection.on('error', reject);
    connection.on('close', () => reject(new Error('closed')));
  });
  lost.catch(() => {});
  client = thrift.createClient(PinLater, connection);
}

const call = (name, ...given) => Promise.race([client[name](caller, ...given), lost]);
const say = (...words) => console.log(words.map((word) => (typeof word === 'boolean' ? Number(word) : word)).join(' '));
const hex = (bytes) => Buffer.from(bytes).toString('hex');

function enqueue(into, fields) {
  const jobs = [new types.PinLaterJob(fields)];
  return call('enqueueJobs', new types.PinLaterEnqueueRequest({ queueName: into, jobs }));
}

const stored = async (fields) => (await enqueue(queue, fields)).jobDescriptors[0];

async function lookup(descriptor) {
  const asked = { jobDescriptors: [descriptor], includeBody: true, includeResult: true };
  return (await call('lookupJobs', new types.PinLaterLookupJobRequest(asked)))[descriptor];
}

function count(future) {
  const asked = { queueName: queue, jobState: types.PinLaterJobState.PENDING, countFutureJobs: future };
  return call('getJobCount', new types.PinLaterGetJobCountRequest(asked));
}

function dequeue(limit) {
  const asked = { queueName: queue, limit, waitMillis: 1000, claimTimeoutMillis: 600000 };
  return call('dequeueJobs', new types.PinLaterDequeueRequest(asked));
}

const isInQueues = async () => (await call('getQueueNames')).includes(queue);

async function ack(step, jobsSucceeded, jobsFailed) {
  const asked = new types.PinLaterJobAckRequest({ queueName: queue, jobsSucceeded, jobsFailed });
  say(step, ...(await call('ackJobs', asked)).outcomes);
}

function ackOf(jobDescriptor, taken, more) {
  const { claimDescriptor } = taken.jobMetadata[jobDescriptor];
  return new types.PinLaterJobAckInfo({ jobDescriptor, claimDescriptor, ...more });
}

async function pause(step) {
  say(`${step}?`);
  await answers.next();
  let jobs;
  try {
    jobs = await count(true);
  } catch {
    connection.end();
    open();
    return say(step, 'broken', await count(true));
  }
  say(step, 'kept', jobs);
}

async function flow() {
  const queueName = `${queue}_steps`;
  const stages = [{ name: 'add', queueName }, { name: 'total', queueName, parentStage: 'add' }];
  const asked = { name: 'sums', stages: stages.map((each) => new types.FlowStage(each)), metadata: { month: '11' } };
  const made = await call('createFlow', new types.CreateFlowRequest(asked));
  const status = await call('getFlow', new types.GetFlowRequest({ flowId: made.id }));
  say('flow', made.isNew, status.metadata.month, ...status.stages.map(({ stage }) => `${stage.name}<${stage.parentStage}`));
}

async function run() {
  await call('createQueue', queue);
  say('create');
  const plain = await stored({ body: Buffer.from('plain') });
  say('plain');
  const named = { body: Buffer.from('keyed'), dedupeKey: 'key', priority: 2 };
  const keyed = await stored(named);
  const again = await enqueue(queue, named);
  say('keyed', again.outcomes[0], again.jobDescriptors[0] === keyed);
  const grouped = await stored({
    body: Buffer.from(Array.from({ length: 256 }, (_, index) => index)),
    priority: 3,
    numAttemptsAllowed: 7,
    customStatus: 'grüße 日本 🚀',
    group: 'tenant-é',
    tags: ['red', 'grün'],
  });
  let info = await lookup(grouped);
  say('group', info.group, info.tags.join(','), info.customStatus, info.attemptsAllowed);
  const delayed = await stored({ body: Buffer.from('later'), runAfterTimestampMillis: new thrift.Int64(4000000000123) });
  say('delayed', (await lookup(delayed)).runAfterTimestampMillis.toNumber());
  say('count', await count(false), await count(true));
  say('names', await isInQueues());
  const taken = await dequeue(10);
  for (const each of [plain, keyed, grouped]) {
    const { priority, attemptsAllowed } = taken.jobMetadata[each];
    say('dequeued', priority, attemptsAllowed, hex(taken.jobs[each]));
  }
  const good = ackOf(plain, taken, {
    result: Buffer.from([0, 255, 128]),
    progress: new types.JobProgress({ fraction: 0.5 }),
  });
  const point = new types.PinLaterCheckpointJobRequest({
    jobDescriptor: plain,
    claimDescriptor: good.claimDescriptor,
    newBodyBytes: Buffer.from([0, 255]),
    prependCustomStatus: 'half',
  });
  await call('checkpointJobs', new types.PinLaterCheckpointJobsRequest({ queueName: queue, requests: [point] }));
  info = await lookup(plain);
  say('checkpoint', info.jobState, hex(info.body), info.customStatus);
  const bad = ackOf(keyed, taken, { permanent: true });
  await ack('ack', [good], [bad, ackOf(grouped, taken, { retryDelayMillis: new thrift.Int64(3600000) })]);
  await ack('stale', [good], []);
  info = await lookup(plain);
  say('result', info.jobState, hex(info.result), info.progress.fraction);
  const succeeded = { queueName: queue, jobState: types.PinLaterJobState.SUCCEEDED };
  const page = await call('scanJobs', new types.PinLaterScanJobsRequest(succeeded));
  say('scan', page.scannedJobs.length, page.scannedJobs[0].jobDescriptor === plain, page.continuation);
  try {
    await enqueue('nowhere', { body: Buffer.from('lost') });
  } catch (error) {
    if (!(error instanceof types.PinLaterException)) throw error;
    say('error', error.errorCode, error.reason, error.retryable);
  }
  await flow();
  const cancel = new types.CancelJobsRequest({ queueName: queue, jobDescriptors: [delayed] });
  say('cancel', (await call('cancelJobs', cancel)).outcomes[delayed]);
  const large = Buffer.from(Array.from({ length: 100000 }, (_, index) => index % 251));
  const largest = await stored({ body: large });
  const came = await dequeue(1);
  say('large', came.jobs[largest].length, large.equals(came.jobs[largest]));
  await ack('ended', [ackOf(largest, came)], []);
  say('identity', (await call('getAccess')).identity);
  await pause('idle');
  await pause('restart');
  await call('deleteQueue', queue, password);
  say('delete', await isInQueues());
}

open();
run()
  .catch((error) => {
    if (error instanceof types.PinLaterException) return say('REFUSED', error.reason);
    console.error(error.message);
    process.exitCode = 1;
  })
  .finally(() => { connection.end(); process.exit(); });
