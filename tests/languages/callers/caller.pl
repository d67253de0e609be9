# The scenario of tests/languages/scenario.py, through Apache's library for Perl.
# perl caller.pl HOST PORT framed|buffered binary CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
use strict;
use warnings;
use utf8;
use FindBin;
use lib $FindBin::Bin;
use Thrift::BinaryProtocol;
use Thrift::BufferedTransport;
use Thrift::FramedTransport;
use Thrift::Socket;
use Thrift::SSLSocket;
use PinLaterThrift::PinLater;

$| = 1;
my ($host, $port, $framing, $protocol, $ca, $cert, $key, $token, $queue, $password) = @ARGV;
my $caller = PinLaterThrift::RequestContext->new({source => 'caller'});
$caller->token($token) if $token ne '-';
my ($transport, $client);

sub open_client {
    my $given = {host => $host, port => $port, recvTimeout => 30000, sendTimeout => 30000};
    my $socket;
    if ($ca eq '-') {
        $socket = Thrift::Socket->new($given);
    } else {
        @$given{'cert', 'key'} = ($cert, $key) if $cert ne '-';
        $socket = Thrift::SSLSocket->new({%$given, ca => $ca});
    }
    $transport = $framing eq 'framed' ? Thrift::FramedTransport->new($socket) : Thrift::BufferedTransport->new($socket);
    $transport->open();
    $client = PinLaterThrift::PinLaterClient->new(Thrift::BinaryProtocol->new($transport));
}

sub say_it { print join(' ', @_), "\n" }
sub bit { $_[0] ? 1 : 0 }
sub hex_of { unpack('H*', $_[0]) }

sub enqueue {
    my ($into, %fields) = @_;
    my $job = PinLaterThrift::PinLaterJob->new(\%fields);
    return $client->enqueueJobs($caller, PinLaterThrift::PinLaterEnqueueRequest->new({queueName => $into, jobs => [$job]}));
}

sub lookup {
    my ($descriptor) = @_;
    my $asked = {jobDescriptors => [$descriptor], includeBody => 1, includeResult => 1};
    return $client->lookupJobs($caller, PinLaterThrift::PinLaterLookupJobRequest->new($asked))->{$descriptor};
}

sub count {
    my ($future) = @_;
    my $asked = {queueName => $queue, jobState => PinLaterThrift::PinLaterJobState::PENDING, countFutureJobs => $future};
    return $client->getJobCount($caller, PinLaterThrift::PinLaterGetJobCountRequest->new($asked));
}

sub dequeue {
    my ($limit) = @_;
    my $asked = {queueName => $queue, limit => $limit, waitMillis => 1000, claimTimeoutMillis => 600000};
    return $client->dequeueJobs($caller, PinLaterThrift::PinLaterDequeueRequest->new($asked));
}

sub is_in_queues { bit(exists $client->getQueueNames($caller)->{$queue}) }

sub ack {
    my ($step, $succeeded, $failed) = @_;
    my $asked = {queueName => $queue, jobsSucceeded => $succeeded, jobsFailed => $failed};
    say_it($step, @{$client->ackJobs($caller, PinLaterThrift::PinLaterJobAckRequest->new($asked))->outcomes});
}

sub ack_of {
    my ($descriptor, $taken, %more) = @_;
    my $claim = $taken->jobMetadata->{$descriptor}->claimDescriptor;
    return PinLaterThrift::PinLaterJobAckInfo->new({jobDescriptor => $descriptor, claimDescriptor => $claim, %more});
}

sub stop {
    my ($step) = @_;
    say_it("$step?");
    <STDIN>;
    my $jobs = eval { count(1) };
    return say_it($step, 'kept', $jobs) if defined $jobs;
    die $@ if !ref $@ || !$@->isa('Thrift::TException');
    eval { $transport->close() };
    open_client();
    say_it($step, 'broken', count(1));
}

sub flow {
    my $steps = "${queue}_steps";
    my @stages = map { PinLaterThrift::FlowStage->new({queueName => $steps, %$_}) }
        ({name => 'add'}, {name => 'total', parentStage => 'add'});
    my $asked = {name => 'sums', stages => \@stages, metadata => {month => '11'}};
    my $made = $client->createFlow($caller, PinLaterThrift::CreateFlowRequest->new($asked));
    my $status = $client->getFlow($caller, PinLaterThrift::GetFlowRequest->new({flowId => $made->id}));
    my @shown = map { $_->stage->name . '<' . ($_->stage->parentStage // '') } @{$status->stages};
    say_it('flow', $made->isNew, $status->metadata->{month}, @shown);
}

sub run {
    $client->createQueue($caller, $queue);
    say_it('create');
    my $plain = enqueue($queue, body => 'plain')->jobDescriptors->[0];
    say_it('plain');
    my %named = (body => 'keyed', dedupeKey => 'key', priority => 2);
    my $keyed = enqueue($queue, %named)->jobDescriptors->[0];
    my $again = enqueue($queue, %named);
    say_it('keyed', $again->outcomes->[0], bit($again->jobDescriptors->[0] eq $keyed));
    my $grouped = enqueue($queue,
        body => pack('C*', 0 .. 255), priority => 3, numAttemptsAllowed => 7, customStatus => 'grüße 日本 🚀',
        group => 'tenant-é', tags => ['red', 'grün'])->jobDescriptors->[0];
    my $info = lookup($grouped);
    say_it('group', $info->group, join(',', map { $_ } @{$info->tags}), $info->customStatus, $info->attemptsAllowed);
    my $delayed = enqueue($queue, body => 'later', runAfterTimestampMillis => 4000000000123)->jobDescriptors->[0];
    say_it('delayed', lookup($delayed)->runAfterTimestampMillis);
    say_it('count', count(0), count(1));
    say_it('names', is_in_queues());
    my $taken = dequeue(10);
    for my $each ($plain, $keyed, $grouped) {
        my $metadata = $taken->jobMetadata->{$each};
        say_it('dequeued', $metadata->priority, $metadata->attemptsAllowed, hex_of($taken->jobs->{$each}));
    }
    my $point = PinLaterThrift::PinLaterCheckpointJobRequest->new({
        jobDescriptor => $plain, claimDescriptor => $taken->jobMetadata->{$plain}->claimDescriptor,
        newBodyBytes => "\x00\xff", prependCustomStatus => 'half'});
    $client->checkpointJobs($caller,
        PinLaterThrift::PinLaterCheckpointJobsRequest->new({queueName => $queue, requests => [$point]}));
    $info = lookup($plain);
    say_it('checkpoint', $info->jobState, hex_of($info->body), $info->customStatus);
    my $progress = PinLaterThrift::JobProgress->new({fraction => 0.5});
    my $good = ack_of($plain, $taken, result => "\x00\xff\x80", progress => $progress);
    my $bad = ack_of($keyed, $taken, permanent => 1);
    ack('ack', [$good], [$bad, ack_of($grouped, $taken, retryDelayMillis => 3600000)]);
    ack('stale', [$good], []);
    $info = lookup($plain);
    say_it('result', $info->jobState, hex_of($info->result), $info->progress->fraction);
    my $asked = {queueName => $queue, jobState => PinLaterThrift::PinLaterJobState::SUCCEEDED};
    my $page = $client->scanJobs($caller, PinLaterThrift::PinLaterScanJobsRequest->new($asked));
    my $jobs = $page->scannedJobs;
    say_it('scan', scalar(@$jobs), bit($jobs->[0]->jobDescriptor eq $plain), $page->continuation);
    eval { enqueue('nowhere', body => 'lost') };
    my $error = $@;
    die $error if !ref $error || !$error->isa('PinLaterThrift::PinLaterException');
    say_it('error', $error->errorCode, $error->reason, bit($error->retryable));
    flow();
    my $cancel = PinLaterThrift::CancelJobsRequest->new({queueName => $queue, jobDescriptors => [$delayed]});
    say_it('cancel', $client->cancelJobs($caller, $cancel)->outcomes->{$delayed});
    my $large = pack('C*', map { $_ % 251 } 0 .. 99999);
    my $largest = enqueue($queue, body => $large)->jobDescriptors->[0];
    my $came = dequeue(1);
    say_it('large', length($came->jobs->{$largest}), bit($came->jobs->{$largest} eq $large));
    ack('ended', [ack_of($largest, $came)], []);
    say_it('identity', $client->getAccess($caller)->identity);
    stop('idle');
    stop('restart');
    $client->deleteQueue($caller, $queue, $password);
    say_it('delete', is_in_queues());
}

eval { open_client(); run(); $transport->close(); 1 } or do {
    my $error = $@;
    if (ref $error && $error->isa('PinLaterThrift::PinLaterException')) {
        say_it('REFUSED', $error->reason);
    } else {
        print STDERR ref $error ? $error->{message} : $error, "\n";
        exit 1;
    }
};
