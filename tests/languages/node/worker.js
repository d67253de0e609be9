// A worker in JavaScript: every call of PinLater, through Apache's `thrift` package for Node.
// node worker.js GENERATED PORT framed|buffered binary|compact QUEUE PASSWORD; prints the calls it made.
'use strict';

const assert = require('node:assert');
const crypto = require('node:crypto');
const path = require('node:path');
const thrift = require('thrift');

const [generated, port, transport, protocol, queue, password] = process.argv.slice(2);
const PinLater = require(path.resolve(generated, 'PinLater.js'));
const types = require(path.resolve(generated, 'pinlater_types.js'));

const SOURCE = 'node-worker';
const LATER_MS = 4_000_000_000_000;
const context = new types.RequestContext({ source: SOURCE });
const made = new Set();

const connection = thrift.createConnection('127.0.0.1', Number(port), {
  transport: transport === 'framed' ? thrift.TFramedTransport : thrift.TBufferedTransport,
  protocol: protocol === 'compact' ? thrift.TCompactProtocol : thrift.TBinaryProtocol,
});
connection.on('error', (error) => { throw error; });
const client = thrift.createClient(PinLater, connection);

function call(name, ...args) {
  made.add(name);
  return client[name](context, ...args);
}

async function refused(code, name, ...args) {
  await assert.rejects(call(name, ...args), (error) => error.errorCode === types.ErrorCode[code] && error.message !== '');
}

/** After others' wrong passwords at this address one is not even checked. */
async function refusesPassword(name, ...args) {
  await assert.rejects(call(name, ...args), (error) => error.errorCode === types.ErrorCode.PASSWORD_INVALID
    || error.reason === 'OVERLOADED');
}

const dequeue = (more) => call('dequeueJobs', new types.PinLaterDequeueRequest({ queueName: queue, limit: 10, ...more }));

const count = (state, more) => call('getJobCount', new types.PinLaterGetJobCountRequest({
  queueName: queue, jobState: types.PinLaterJobState[state], ...more,
}));

async function lookup(descriptor) {
  const found = await call('lookupJobs', new types.PinLaterLookupJobRequest({
    jobDescriptors: [descriptor, 'no descriptor'], includeBody: true,
  }));
  assert.deepStrictEqual(Object.keys(found), [descriptor]);
  return found[descriptor];
}

async function makeQueue() {
  await call('createQueue', queue);
  assert.ok((await call('getQueueNames')).includes(queue));
  await refused('QUEUE_NAME_INVALID', 'createQueue', 'no such name!');
}

async function enqueue() {
  const jobs = [
    new types.PinLaterJob({ body: Buffer.from('now'), priority: 1 }),
    new types.PinLaterJob({ body: Buffer.from([0, 255, 10]), priority: 2 }),
    new types.PinLaterJob({ body: Buffer.from('later'), priority: 3, runAfterTimestampMillis: LATER_MS }),
  ];
  const answer = await call('enqueueJobs', new types.PinLaterEnqueueRequest({ queueName: queue, jobs }));
  await refused('QUEUE_NOT_FOUND', 'enqueueJobs', new types.PinLaterEnqueueRequest({ queueName: 'nowhere', jobs }));
  assert.strictEqual(await count('PENDING'), 2);
  assert.strictEqual(await count('PENDING', { countFutureJobs: true }), 1);
  return answer.jobDescriptors;
}

async function claim(now, failing) {
  const shown = await dequeue({ dryRun: true });
  assert.deepStrictEqual(Object.keys(shown.jobs).sort(), [now, failing].sort());
  const { jobs, jobMetadata } = await dequeue({ waitMillis: 1000 });
  assert.deepStrictEqual(jobs[now], Buffer.from('now'));
  assert.deepStrictEqual(jobs[failing], Buffer.from([0, 255, 10]));
  assert.strictEqual(jobMetadata[now].attemptsRemaining, 2);
  assert.ok(jobMetadata[now].claimDescriptor.endsWith(`:${SOURCE}`));
  assert.ok(jobMetadata[now].enqueuedAtMillis.toNumber() > 1_600_000_000_000);
  const none = await call('dequeueFromQueues', new types.DequeueFromQueuesRequest({
    queues: [new types.QueueShare({ queueName: queue, weight: 3 }), new types.QueueShare({ queueName: 'nowhere' })],
    limit: 5,
    worker: new types.WorkerReport({
      id: `${queue}/1`, name: queue, host: 'here', pid: 1, upMillis: 1, slots: 5, queues: { [queue]: 3 },
    }),
  }));
  assert.deepStrictEqual(Object.keys(none.jobs || {}), []);
  assert.deepStrictEqual(none.queueErrors.map((each) => each.queueName), ['nowhere']);
  return jobMetadata;
}

async function heartbeat(now, metadata) {
  await call('checkpointJobs', new types.PinLaterCheckpointJobsRequest({
    queueName: queue,
    requests: [new types.PinLaterCheckpointJobRequest({
      jobDescriptor: now, newBody: 'half', prependCustomStatus: 'ä half', claimDescriptor: metadata[now].claimDescriptor,
    })],
  }));
  const info = await lookup(now);
  assert.strictEqual(info.jobState, types.PinLaterJobState.IN_PROGRESS);
  assert.strictEqual(info.customStatus, 'ä half');
  assert.deepStrictEqual(info.body, Buffer.from('half'));
}

async function ack(now, failing, metadata) {
  await call('ackDequeuedJobs', new types.PinLaterJobAckRequest({
    queueName: queue,
    jobsSucceeded: [new types.PinLaterJobAckInfo({ jobDescriptor: now, appendCustomStatus: ' done' })],
    jobsFailed: [new types.PinLaterJobAckInfo({
      jobDescriptor: failing, permanent: true, claimDescriptor: metadata[failing].claimDescriptor,
    })],
  }));
  assert.strictEqual((await lookup(now)).customStatus, 'ä half done');
  assert.strictEqual((await lookup(failing)).jobState, types.PinLaterJobState.FAILED);
  const again = new types.PinLaterJobAckRequest({
    queueName: queue, jobsSucceeded: [new types.PinLaterJobAckInfo({ jobDescriptor: now })],
  });
  assert.deepStrictEqual((await call('ackJobs', again)).outcomes, [types.AckOutcome.IGNORED]);
  assert.deepStrictEqual((await dequeue({ jobAckRequest: again })).ackOutcomes, [types.AckOutcome.IGNORED]);
}

async function operate(now, failing, later) {
  const page = await call('scanJobs', new types.PinLaterScanJobsRequest({
    queueName: queue, jobState: types.PinLaterJobState.SUCCEEDED,
  }));
  assert.deepStrictEqual(page.scannedJobs.map((job) => job.jobDescriptor), [now]);
  assert.strictEqual(page.continuation, types.CONTINUATION_END);
  const retry = new types.PinLaterRetryFailedJobsRequest({ queueName: queue, priority: 2 });
  assert.strictEqual(await call('retryFailedJobs', retry), 1);
  assert.deepStrictEqual(Object.keys((await dequeue()).jobs), [failing]);
  const { holds } = await call('explainJobs', new types.ExplainJobsRequest({ jobDescriptors: [later, now] }));
  assert.deepStrictEqual(holds.map((each) => [each.jobDescriptor, each.reason]), [[later, types.HoldReason.NOT_DUE]]);
  const { outcomes } = await call('cancelJobs', new types.CancelJobsRequest({
    queueName: queue, jobDescriptors: [later, now],
  }));
  assert.strictEqual(outcomes[later], types.CancelOutcome.CANCELLED);
  assert.strictEqual(outcomes[now], types.CancelOutcome.ENDED);
}

async function name() {
  const job = new types.PinLaterJob({ body: Buffer.from('1'), dedupeKey: 'näme', serializeKey: 'order', sendId: 'random' });
  const request = new types.PinLaterEnqueueRequest({ queueName: queue, jobs: [job] });
  const { jobDescriptors: [named], outcomes } = await call('enqueueJobs', request);
  assert.ok(!outcomes);
  assert.deepStrictEqual((await call('enqueueJobs', request)).jobDescriptors, [named]);
  request.jobs[0].sendId = null;
  assert.deepStrictEqual((await call('enqueueJobs', request)).outcomes, [types.EnqueueOutcome.KEPT]);
  const key = new types.KeyRef({ dedupeKey: 'näme', serializeKey: 'order' });
  const change = new types.RescheduleJob({ key, body: Buffer.from('2') });
  const changed = await call('rescheduleJobs', new types.RescheduleJobsRequest({ queueName: queue, jobs: [change] }));
  assert.deepStrictEqual(changed.outcomes, [types.RescheduleOutcome.RESCHEDULED]);
  const { jobMetadata } = await dequeue();
  const claimDescriptor = jobMetadata[named].claimDescriptor;
  const stop = await call('cancelJobs', new types.CancelJobsRequest({
    queueName: queue, jobDescriptors: [], keys: [key], mode: types.CancelMode.ALSO_RUNNING,
  }));
  assert.deepStrictEqual(stop.keyOutcomes, [types.CancelOutcome.REQUESTED]);
  const beat = new types.JobHeartbeat({ jobDescriptor: named, claimDescriptor, fraction: 0.25, text: 'a quarter' });
  const heard = await call('heartbeatJobs', new types.HeartbeatJobsRequest({ queueName: queue, heartbeats: [beat] }));
  assert.deepStrictEqual(heard.outcomes, [types.HeartbeatOutcome.CANCEL]);
  const done = new types.PinLaterJobAckInfo({ jobDescriptor: named, claimDescriptor, result: Buffer.from([0, 255]) });
  await call('ackJobs', new types.PinLaterJobAckRequest({ queueName: queue, jobsSucceeded: [done] }));
  const found = await call('lookupJobs', new types.PinLaterLookupJobRequest({
    jobDescriptors: [], keys: [key], queueName: queue, waitMillis: 1000, includeResult: true,
  }));
  assert.deepStrictEqual([...found[named].result], [0, 255]);
  assert.strictEqual(found[named].progress.fraction, 0.25);
  const gone = await call('changeJobs', new types.ChangeJobsRequest({
    queueName: queue, action: types.JobAction.DELETE, jobState: types.PinLaterJobState.SUCCEEDED, bodyRegexToMatch: '^2$',
  }));
  assert.strictEqual(gone.changed, 1);
}

async function plan() {
  const schedule = new types.Schedule({
    name: `${queue}.nightly`, queueName: queue, body: Buffer.from('nightly'), cron: '0 3 * * *', timezone: 'Europe/Berlin',
  });
  const { view } = await call('updateSchedule', new types.UpdateScheduleRequest({ schedule, password }));
  assert.strictEqual(view.nextMillis.length > 0, true);
  const { schedules } = await call('getSchedules', new types.GetSchedulesRequest({ names: [schedule.name] }));
  assert.deepStrictEqual(schedules.map((each) => each.schedule.cron), ['0 3 * * *']);
  await call('deleteSchedule', new types.DeleteScheduleRequest({ name: schedule.name, password }));
}

async function flow() {
  const steps = `${queue}_steps`;
  const stage = new types.FlowStage({ name: 'add', queueName: steps });
  const { id, isNew } = await call('createFlow', new types.CreateFlowRequest({ name: 'sums', stages: [stage], metadata: { month: '11' } }));
  assert.strictEqual(isNew, true);
  const item = new types.NewFlowItem({ payload: Buffer.from('[1, 2]') });
  const { numbers } = await call('addFlowItems', new types.AddFlowItemsRequest({ flowId: id, stage: 'add', items: [item] }));
  const taken = await call('assignItem', new types.AssignItemRequest({ number: numbers[0] }));
  assert.deepStrictEqual([taken.outcome, `${taken.payload}`], [types.AssignOutcome.CLAIMED, '[1, 2]']);
  const result = new types.PinLaterJobAckInfo({
    jobDescriptor: taken.jobDescriptor, claimDescriptor: taken.claimDescriptor, result: Buffer.from('3'),
  });
  await call('ackJobs', new types.PinLaterJobAckRequest({ queueName: steps, jobsSucceeded: [result], jobsFailed: [] }));
  await call('sealStage', new types.SealStageRequest({ flowId: id }));
  const status = await call('getFlow', new types.GetFlowRequest({ flowId: id, waitMillis: 20_000 }));
  assert.deepStrictEqual([status.state, status.metadata.month], [types.FlowState.COMPLETE, '11']);
  const { items } = await call('getFlowItems', new types.GetFlowItemsRequest({ flowId: id, stage: 'add' }));
  assert.deepStrictEqual(items.map((each) => `${each.result}`), ['3']);
  await call('resumeFlow', new types.ResumeFlowRequest({ flowId: id }));
  await call('cancelFlow', new types.FlowIdRequest({ flowId: id }));
  const quiet = new types.CommandWorkersRequest({ command: types.WorkerCommand.QUIET, workers: ['nobody'] });
  const [nobody] = (await call('commandWorkers', quiet)).workers;
  assert.strictEqual(nobody.outcome, types.CommandOutcome.NOT_KNOWN);
  const failed = new types.RetryFlowItemsRequest({ flowId: id, failed: true });
  assert.strictEqual(Number((await call('retryFlowItems', failed)).retried), 0);
  await call('deleteFlow', new types.FlowIdRequest({ flowId: id }));
  const { flows } = await call('getFlows', new types.GetFlowsRequest({ name: 'sums' }));
  assert.deepStrictEqual(flows.filter((each) => each.id === id), []);
  await assert.rejects(call('getFlow', new types.GetFlowRequest({ flowId: id })), (error) => error.reason === 'FLOW_NOT_FOUND');
}

async function identify() {
  const token = `plt_${queue}`;
  const tokenHash = crypto.createHash('sha256').update(token).digest('hex');
  await call('updateToken', new types.UpdateTokenRequest({ name: queue, tokenHash, roles: ['viewer'], password }));
  const { tokens } = await call('getTokens');
  assert.deepStrictEqual(tokens.filter((each) => each.name === queue).map((each) => each.roles), [['viewer']]);
  assert.strictEqual((await call('getAccess')).identity, 'anonymous');
  assert.deepStrictEqual((await call('getUsage')).identities, []);
  const named = new types.RequestContext({ source: SOURCE, token });
  assert.strictEqual((await client.getAccess(named)).identity, `token:${queue}`);
  await call('deleteToken', new types.DeleteTokenRequest({ name: queue, password }));
  await assert.rejects(client.getAccess(named), (error) => error.reason === 'FORBIDDEN' && error.retryable === false);
}

async function steer(now) {
  const pause = { queueName: queue, settings: { paused: 'true', paused_why: 'späne' } };
  await refusesPassword('updateQueue', new types.UpdateQueueRequest({ ...pause, password: 'wrong' }));
  const change = await call('updateQueue', new types.UpdateQueueRequest({ ...pause, password }));
  assert.deepStrictEqual(change.missedShards, []);
  await assert.rejects(dequeue(), (error) => error.errorCode === types.ErrorCode.DEQUEUE_RATE_LIMITED
    && error.reason === 'QUEUE_PAUSED');
  const { queues } = await call('getQueues', new types.GetQueuesRequest({ queueNames: [queue] }));
  assert.deepStrictEqual(queues[0].settings.paused_why, new types.QueueSettingValue({ value: 'späne', source: 'queue' }));
  await call('updateQueue', new types.UpdateQueueRequest({ queueName: queue, password, unset: ['paused'] }));
  const found = await call('changeJobs', new types.ChangeJobsRequest({
    queueName: queue, action: types.JobAction.DELETE, jobState: types.PinLaterJobState.SUCCEEDED, dryRun: true,
  }));
  assert.strictEqual(found.changed, 1);
  assert.strictEqual(found.samples[0].jobDescriptor, now);
  const selection = new types.JobSelection({ queueName: queue, phases: [types.JobPhase.SUCCEEDED] });
  const page = await call('searchJobs', new types.SearchJobsRequest({ selection, limit: 5, includeBody: true }));
  assert.deepStrictEqual(page.jobs.map((job) => job.jobDescriptor), [now]);
  selection.statusConditions = [new types.TextCondition({ regex: '^', isNot: true })];
  const none = await call('changeFoundJobs', new types.ChangeFoundJobsRequest({ selection, action: types.JobAction.DELETE }));
  assert.strictEqual(none.changed, 0);
  const weight = { queueName: queue, group: 'späne', settings: { weight: '3' } };
  await refusesPassword('updateGroup', new types.UpdateGroupRequest({ ...weight, password: 'wrong' }));
  await call('updateGroup', new types.UpdateGroupRequest({ ...weight, password }));
  const { groups } = await call('getGroups', new types.GetGroupsRequest({ queueName: queue }));
  assert.deepStrictEqual(groups.map((each) => [each.name, each.settings.weight.value]), [['späne', '3']]);
  const cleared = await call('clearGroups', new types.ClearGroupsRequest({ queueName: queue, password, dryRun: true }));
  assert.strictEqual(cleared.jobs.toNumber(), 0);
  await call('updateShard', new types.UpdateShardRequest({ shardId: '1', password, dequeueOnly: false }));
  const status = await call('getClusterStatus', new types.GetClusterStatusRequest({ queueNames: [queue] }));
  assert.deepStrictEqual(status.shards.map((shard) => [shard.id, shard.state]), [['1', 'in']]);
  assert.deepStrictEqual((await call('getBodyTiers')).tiers, []);
  await assert.rejects(
    call('changeBodies', new types.ChangeBodiesRequest({ action: types.BodiesAction.SWEEP })),
    (error) => error.reason === 'REQUEST_INVALID',
  );
  const { workers } = await call('getWorkers', new types.GetWorkersRequest({ queueName: queue }));
  assert.deepStrictEqual(workers.map((each) => each.name), [queue]);
  const mute = { name: 'no_worker', forMillis: 60000, reason: 'known', password };
  await call('muteAlarm', new types.MuteAlarmRequest(mute));
  assert.ok(Array.isArray((await call('getAlarms', new types.GetAlarmsRequest({}))).alarms));
  const { entries } = await call('getAudit', new types.GetAuditRequest({ limit: 1000 }));
  assert.ok(entries.some((entry) => entry.target === queue && entry.who === SOURCE));
}

async function clean() {
  const ended = new types.PinLaterDeleteJobsRequest({ queueName: queue, jobState: types.PinLaterJobState.SUCCEEDED });
  assert.strictEqual(await call('deleteJobs', ended), 1);
  await refusesPassword('deleteQueue', queue, 'wrong');
  await call('deleteQueue', queue, password);
  assert.ok(!(await call('getQueueNames')).includes(queue));
}

async function main() {
  await makeQueue();
  const [now, failing, later] = await enqueue();
  const metadata = await claim(now, failing);
  await heartbeat(now, metadata);
  await ack(now, failing, metadata);
  await operate(now, failing, later);
  await name();
  await plan();
  await flow();
  await identify();
  await steer(now);
  await clean();
  console.log([...made].sort().join(' '));
}

main().then(
  () => connection.end(),
  (error) => { console.error(error); process.exit(1); },
);
