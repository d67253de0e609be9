# The scenario of tests/languages/scenario.py, through Apache's library for Ruby.
# ruby caller.rb HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
# frozen_string_literal: true

$LOAD_PATH.unshift(__dir__)
require 'openssl'
require 'thrift'
require 'pin_later'
include PinLaterThrift

HOST, PORT, FRAMING, PROTOCOL, CA, CERT, KEY, TOKEN, QUEUE, PASSWORD = ARGV
CALLER = RequestContext.new(source: 'caller')
CALLER.token = TOKEN unless TOKEN == '-'
$stdout.sync = true

def open_client
  if CA == '-'
    socket = Thrift::Socket.new(HOST, PORT.to_i, 30)
  else
    context = OpenSSL::SSL::SSLContext.new
    context.set_params(ca_file: CA, verify_mode: OpenSSL::SSL::VERIFY_PEER)
    unless CERT == '-'
      context.cert = OpenSSL::X509::Certificate.new(File.read(CERT))
      context.key = OpenSSL::PKey.read(File.read(KEY))
    end
    socket = Thrift::SSLSocket.new(HOST, PORT.to_i, nil, context) # with a time-out its calls hang
  end
  $transport = FRAMING == 'framed' ? Thrift::FramedTransport.new(socket) : Thrift::BufferedTransport.new(socket)
  layer = PROTOCOL == 'compact' ? Thrift::CompactProtocol : Thrift::BinaryProtocol
  $transport.open
  $client = PinLater::Client.new(layer.new($transport))
end

def hex(bytes)
  bytes.unpack1('H*')
end

def bit(truth)
  truth ? 1 : 0
end

def enqueue(queue, **fields)
  $client.enqueueJobs(CALLER, PinLaterEnqueueRequest.new(queueName: queue, jobs: [PinLaterJob.new(fields)]))
end

def lookup(descriptor)
  asked = PinLaterLookupJobRequest.new(jobDescriptors: [descriptor], includeBody: true, includeResult: true)
  $client.lookupJobs(CALLER, asked)[descriptor]
end

def count(future)
  pending = PinLaterJobState::PENDING
  $client.getJobCount(CALLER, PinLaterGetJobCountRequest.new(queueName: QUEUE, jobState: pending, countFutureJobs: future))
end

def dequeue(limit)
  asked = { queueName: QUEUE, limit: limit, waitMillis: 1000, claimTimeoutMillis: 600_000 }
  $client.dequeueJobs(CALLER, PinLaterDequeueRequest.new(asked))
end

def ack(step, succeeded, failed)
  request = PinLaterJobAckRequest.new(queueName: QUEUE, jobsSucceeded: succeeded, jobsFailed: failed)
  puts [step, *$client.ackJobs(CALLER, request).outcomes].join(' ')
end

def ack_of(descriptor, taken, **more)
  claim = taken.jobMetadata[descriptor].claimDescriptor
  PinLaterJobAckInfo.new(jobDescriptor: descriptor, claimDescriptor: claim, **more)
end

def pause(step)
  puts "#{step}?"
  $stdin.gets
  begin
    puts "#{step} kept #{count(true)}"
  rescue Thrift::TransportException, IOError
    $transport.close
    open_client
    puts "#{step} broken #{count(true)}"
  end
end

def flow
  steps = "#{QUEUE}_steps"
  stages = [
    FlowStage.new(name: 'add', queueName: steps), FlowStage.new(name: 'total', queueName: steps, parentStage: 'add')
  ]
  made = $client.createFlow(CALLER, CreateFlowRequest.new(name: 'sums', stages: stages, metadata: { 'month' => '11' }))
  status = $client.getFlow(CALLER, GetFlowRequest.new(flowId: made.id))
  shown = status.stages.map { |each| "#{each.stage.name}<#{each.stage.parentStage}" }
  puts ['flow', bit(made.isNew), status.metadata['month'], *shown].join(' ')
end

def run
  $client.createQueue(CALLER, QUEUE)
  puts 'create'
  plain = enqueue(QUEUE, body: 'plain').jobDescriptors[0]
  puts 'plain'
  named = { body: 'keyed', dedupeKey: 'key', priority: 2 }
  keyed = enqueue(QUEUE, **named).jobDescriptors[0]
  again = enqueue(QUEUE, **named)
  puts "keyed #{again.outcomes[0]} #{bit(again.jobDescriptors[0] == keyed)}"
  grouped = enqueue(
    QUEUE, body: (0..255).to_a.pack('C*'), priority: 3, numAttemptsAllowed: 7, customStatus: 'grüße 日本 🚀',
           group: 'tenant-é', tags: %w[red grün]
  ).jobDescriptors[0]
  info = lookup(grouped)
  puts "group #{info.group} #{info.tags.join(',')} #{info.customStatus} #{info.attemptsAllowed}"
  delayed = enqueue(QUEUE, body: 'later', runAfterTimestampMillis: 4_000_000_000_123).jobDescriptors[0]
  puts "delayed #{lookup(delayed).runAfterTimestampMillis}"
  puts "count #{count(false)} #{count(true)}"
  puts "names #{bit($client.getQueueNames(CALLER).include?(QUEUE))}"
  taken = dequeue(10)
  [plain, keyed, grouped].each do |each|
    metadata = taken.jobMetadata[each]
    puts "dequeued #{metadata.priority} #{metadata.attemptsAllowed} #{hex(taken.jobs[each])}"
  end
  point = PinLaterCheckpointJobRequest.new(
    jobDescriptor: plain, claimDescriptor: taken.jobMetadata[plain].claimDescriptor,
    newBodyBytes: [0, 255].pack('C*'), prependCustomStatus: 'half'
  )
  $client.checkpointJobs(CALLER, PinLaterCheckpointJobsRequest.new(queueName: QUEUE, requests: [point]))
  info = lookup(plain)
  puts "checkpoint #{info.jobState} #{hex(info.body)} #{info.customStatus}"
  good = ack_of(plain, taken, result: [0, 255, 128].pack('C*'), progress: JobProgress.new(fraction: 0.5))
  bad = ack_of(keyed, taken, permanent: true)
  ack('ack', [good], [bad, ack_of(grouped, taken, retryDelayMillis: 3_600_000)])
  ack('stale', [good], [])
  info = lookup(plain)
  puts "result #{info.jobState} #{hex(info.result)} #{info.progress.fraction}"
  succeeded = PinLaterScanJobsRequest.new(queueName: QUEUE, jobState: PinLaterJobState::SUCCEEDED)
  page = $client.scanJobs(CALLER, succeeded)
  jobs = page.scannedJobs
  puts "scan #{jobs.length} #{bit(jobs[0].jobDescriptor == plain)} #{page.continuation}"
  begin
    enqueue('nowhere', body: 'lost')
  rescue PinLaterException => e
    puts "error #{e.errorCode} #{e.reason} #{bit(e.retryable)}"
  end
  flow
  cancelled = $client.cancelJobs(CALLER, CancelJobsRequest.new(queueName: QUEUE, jobDescriptors: [delayed]))
  puts "cancel #{cancelled.outcomes[delayed]}"
  large = Array.new(100_000) { |index| index % 251 }.pack('C*')
  largest = enqueue(QUEUE, body: large).jobDescriptors[0]
  came = dequeue(1)
  puts "large #{came.jobs[largest].bytesize} #{bit(came.jobs[largest] == large)}"
  ack('ended', [ack_of(largest, came)], [])
  puts "identity #{$client.getAccess(CALLER).identity}"
  pause('idle')
  pause('restart')
  $client.deleteQueue(CALLER, QUEUE, PASSWORD)
  puts "delete #{bit($client.getQueueNames(CALLER).include?(QUEUE))}"
end

begin
  open_client
  run
  $transport.close
rescue PinLaterException => e
  puts "REFUSED #{e.reason}"
end
