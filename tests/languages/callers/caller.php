<?php
// The scenario of tests/languages/scenario.py, through Apache's library for PHP (of its source).
// php caller.php HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD

namespace PinLaterThrift;

use Thrift\ClassLoader\ThriftClassLoader;
use Thrift\Exception\TException;
use Thrift\Exception\TTransportException;
use Thrift\Protocol\TBinaryProtocol;
use Thrift\Protocol\TCompactProtocol;
use Thrift\Transport\TBufferedTransport;
use Thrift\Transport\TFramedTransport;
use Thrift\Transport\TSocket;
use Thrift\Transport\TSSLSocket;

require_once __DIR__ . '/Thrift/ClassLoader/ThriftClassLoader.php';

$loader = new ThriftClassLoader();
$loader->registerNamespace('Thrift', __DIR__); // a link to the library
$loader->registerNamespace('PinLaterThrift', __DIR__);
$loader->register();

[, $host, $port, $framing, $protocol, $ca, $cert, $key, $token, $queue, $password] = $argv;
$caller = new RequestContext(['source' => 'caller', 'token' => $token === '-' ? null : $token]);
$transport = $client = null;

function open(): void
{
    global $host, $port, $framing, $protocol, $ca, $cert, $key, $transport, $client;
    if ($ca === '-') {
        $socket = new TSocket($host, (int) $port);
    } else {
        $shown = $cert === '-' ? [] : ['local_cert' => $cert, 'local_pk' => $key];
        $context = stream_context_create(['ssl' => ['cafile' => $ca, 'verify_peer' => true] + $shown]);
        $socket = new TSSLSocket($host, (int) $port, $context);
    }
    $socket->setRecvTimeout(30000);
    $transport = $framing === 'framed' ? new TFramedTransport($socket) : new TBufferedTransport($socket);
    $client = new PinLaterClient($protocol === 'compact' ? new TCompactProtocol($transport) : new TBinaryProtocol($transport));
    $transport->open();
}

function say(...$words): void
{
    echo implode(' ', array_map(fn ($word) => is_bool($word) ? (int) $word : $word, $words)), "\n";
}

function enqueue(string $into, array $fields): PinLaterEnqueueResponse
{
    global $client, $caller;
    $request = new PinLaterEnqueueRequest(['queueName' => $into, 'jobs' => [new PinLaterJob($fields)]]);
    return $client->enqueueJobs($caller, $request);
}

function lookup(string $descriptor): PinLaterJobInfo
{
    global $client, $caller;
    $asked = ['jobDescriptors' => [$descriptor], 'includeBody' => true, 'includeResult' => true];
    return $client->lookupJobs($caller, new PinLaterLookupJobRequest($asked))[$descriptor];
}

function count_pending(bool $future): int
{
    global $client, $caller, $queue;
    $asked = ['queueName' => $queue, 'jobState' => PinLaterJobState::PENDING, 'countFutureJobs' => $future];
    return $client->getJobCount($caller, new PinLaterGetJobCountRequest($asked));
}

function dequeue(int $limit): PinLaterDequeueResponse
{
    global $client, $caller, $queue;
    $asked = ['queueName' => $queue, 'limit' => $limit, 'waitMillis' => 1000, 'claimTimeoutMillis' => 600000];
    return $client->dequeueJobs($caller, new PinLaterDequeueRequest($asked));
}

function is_in_queues(): bool
{
    global $client, $caller, $queue;
    return isset($client->getQueueNames($caller)[$queue]); // a set is an array whose keys are its elements
}

function ack(string $step, array $succeeded, array $failed): void
{
    global $client, $caller, $queue;
    $asked = ['queueName' => $queue, 'jobsSucceeded' => $succeeded, 'jobsFailed' => $failed];
    say($step, ...$client->ackJobs($caller, new PinLaterJobAckRequest($asked))->outcomes);
}

function ack_of(string $descriptor, PinLaterDequeueResponse $taken, array $more = []): PinLaterJobAckInfo
{
    $claim = $taken->jobMetadata[$descriptor]->claimDescriptor;
    return new PinLaterJobAckInfo(['jobDescriptor' => $descriptor, 'claimDescriptor' => $claim] + $more);
}

function pause(string $step): void
{
    global $transport;
    say("$step?");
    fgets(STDIN);
    try {
        say($step, 'kept', count_pending(true));
    } catch (TTransportException $error) {
        $transport->close();
        open();
        say($step, 'broken', count_pending(true));
    }
}

function flow(): void
{
    global $client, $caller, $queue;
    $steps = "{$queue}_steps";
    $stages = [
        new FlowStage(['name' => 'add', 'queueName' => $steps]),
        new FlowStage(['name' => 'total', 'queueName' => $steps, 'parentStage' => 'add']),
    ];
    $asked = ['name' => 'sums', 'stages' => $stages, 'metadata' => ['month' => '11']];
    $made = $client->createFlow($caller, new CreateFlowRequest($asked));
    $status = $client->getFlow($caller, new GetFlowRequest(['flowId' => $made->id]));
    $shown = array_map(fn ($each) => "{$each->stage->name}<{$each->stage->parentStage}", $status->stages);
    say('flow', $made->isNew, $status->metadata['month'], ...$shown);
}

function run(): void
{
    global $client, $caller, $queue, $password;
    $client->createQueue($caller, $queue);
    say('create');
    $plain = enqueue($queue, ['body' => 'plain'])->jobDescriptors[0];
    say('plain');
    $named = ['body' => 'keyed', 'dedupeKey' => 'key', 'priority' => 2];
    $keyed = enqueue($queue, $named)->jobDescriptors[0];
    $again = enqueue($queue, $named);
    say('keyed', $again->outcomes[0], $again->jobDescriptors[0] === $keyed);
    $grouped = enqueue($queue, [
        'body' => implode('', array_map('chr', range(0, 255))),
        'priority' => 3,
        'numAttemptsAllowed' => 7,
        'customStatus' => 'grüße 日本 🚀',
        'group' => 'tenant-é',
        'tags' => ['red', 'grün'],
    ])->jobDescriptors[0];
    $info = lookup($grouped);
    say('group', $info->group, implode(',', $info->tags), $info->customStatus, $info->attemptsAllowed);
    $delayed = enqueue($queue, ['body' => 'later', 'runAfterTimestampMillis' => 4000000000123])->jobDescriptors[0];
    say('delayed', lookup($delayed)->runAfterTimestampMillis);
    say('count', count_pending(false), count_pending(true));
    say('names', is_in_queues());
    $taken = dequeue(10);
    foreach ([$plain, $keyed, $grouped] as $each) {
        $metadata = $taken->jobMetadata[$each];
        say('dequeued', $metadata->priority, $metadata->attemptsAllowed, bin2hex($taken->jobs[$each]));
    }
    $point = new PinLaterCheckpointJobRequest([
        'jobDescriptor' => $plain,
        'claimDescriptor' => $taken->jobMetadata[$plain]->claimDescriptor,
        'newBodyBytes' => "\x00\xff",
        'prependCustomStatus' => 'half',
    ]);
    $points = new PinLaterCheckpointJobsRequest(['queueName' => $queue, 'requests' => [$point]]);
    $client->checkpointJobs($caller, $points);
    $info = lookup($plain);
    say('checkpoint', $info->jobState, bin2hex($info->body), $info->customStatus);
    $good = ack_of($plain, $taken, ['result' => "\x00\xff\x80", 'progress' => new JobProgress(['fraction' => 0.5])]);
    $bad = ack_of($keyed, $taken, ['permanent' => true]);
    ack('ack', [$good], [$bad, ack_of($grouped, $taken, ['retryDelayMillis' => 3600000])]);
    ack('stale', [$good], []);
    $info = lookup($plain);
    say('result', $info->jobState, bin2hex($info->result), $info->progress->fraction);
    $asked = new PinLaterScanJobsRequest(['queueName' => $queue, 'jobState' => PinLaterJobState::SUCCEEDED]);
    $page = $client->scanJobs($caller, $asked);
    say('scan', count($page->scannedJobs), $page->scannedJobs[0]->jobDescriptor === $plain, $page->continuation);
    try {
        enqueue('nowhere', ['body' => 'lost']);
    } catch (PinLaterException $error) {
        say('error', $error->errorCode, $error->reason, $error->retryable);
    }
    flow();
    $asked = new CancelJobsRequest(['queueName' => $queue, 'jobDescriptors' => [$delayed]]);
    say('cancel', $client->cancelJobs($caller, $asked)->outcomes[$delayed]);
    $large = implode('', array_map(fn ($index) => chr($index % 251), range(0, 99999)));
    $largest = enqueue($queue, ['body' => $large])->jobDescriptors[0];
    $came = dequeue(1);
    say('large', strlen($came->jobs[$largest]), $came->jobs[$largest] === $large);
    ack('ended', [ack_of($largest, $came)], []);
    say('identity', $client->getAccess($caller)->identity);
    pause('idle');
    pause('restart');
    $client->deleteQueue($caller, $queue, $password);
    say('delete', is_in_queues());
}

try {
    open();
    run();
    $transport->close();
} catch (PinLaterException $error) {
    say('REFUSED', $error->reason);
} catch (TException $error) {
    fwrite(STDERR, $error->getMessage() . "\n");
    exit(1);
}
