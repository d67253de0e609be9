// A worker on the client that is generated from the OpenAPI document. Arguments: the address, and a queue that is there.
import { createClient } from './client/client';
import { ack, dequeue, enqueue, getJob, heartbeat } from './client';

declare const process: { argv: string[] };

async function main() {
  const [baseUrl, queue] = process.argv.slice(2);
  const client = createClient({ baseUrl });

  const stored = await enqueue({
    client,
    path: { queue },
    body: { body: { to: 'ada' }, body_encoding: 'json' },
    headers: { 'Idempotency-Key': 'typescript' },
    throwOnError: true,
  });
  const { jobs } = (
    await dequeue({ client, path: { queue }, body: { wait_ms: 5000, encoding: 'json' }, throwOnError: true })
  ).data;
  const [job] = jobs;
  if (job.descriptor !== stored.data.descriptor) throw new Error(`another job came: ${job.descriptor}`);
  const beats = (await heartbeat({ client, path: { queue }, body: { jobs }, throwOnError: true })).data;
  const result = { greeted: (job.body as { to: string }).to };
  const { descriptor } = job;
  const succeeded = [{ ...job, result, result_encoding: 'json' as const }]; // a claimed job goes into an ack as it came
  const acked = (await ack({ client, path: { queue }, body: { succeeded }, throwOnError: true })).data;
  const query = { include_result: true, encoding: 'json' as const };
  const ended = (await getJob({ client, path: { descriptor }, query, throwOnError: true })).data;
  const missing = await enqueue({ client, path: { queue: 'nowhere' }, body: { body: 'x' } });
  console.log(JSON.stringify([beats.answers[0].outcome, acked.outcomes, ended.state, ended.result, missing.error?.reason]));
}

main();
