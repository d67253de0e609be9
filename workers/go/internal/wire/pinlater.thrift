// Made of thrift/pinlater.thrift by `python -m tests.kits.go_interface`: what the Go kit calls. Do not edit.

namespace go wire

/** 400-499 is the caller's fault: do not retry as it is, but for 429 and 430. No code is ever added. */
enum ErrorCode {
  CONTINUATION_INVALID = 400,
  PASSWORD_INVALID = 403,
  QUEUE_NAME_INVALID = 410,
  QUEUE_NAME_TOO_LONG = 411,
  QUEUE_NOT_FOUND = 413,
  PRIORITY_NOT_SUPPORTED = 416,
  DEQUEUE_RATE_LIMITED = 429,
  ENQUEUE_REJECTED = 430,
  UNKNOWN = 500,
  NO_HEALTHY_SHARDS = 501,
  SHARD_CONNECTION_FAILED = 502,
}

enum PinLaterJobState {
  PENDING = 0,
  IN_PROGRESS = 1,
  SUCCEEDED = 2,
  FAILED = 3,
}

enum CancelOutcome {
  CANCELLED = 0,
  IN_PROGRESS = 1,
  ENDED = 2,
  NOT_FOUND = 3,
  /** It runs, and its worker is asked to stop: only where the mode says so. */
  REQUESTED = 4,
}

/** Which jobs a cancel means. */
enum CancelMode {
  /** PENDING jobs are removed; others stay as they are. */
  ONLY_PENDING = 0,
  /** And the workers of those in progress are asked to stop. */
  ALSO_RUNNING = 1,
}

/** What an enqueue does where the job's dedupeKey is taken. */
enum OnDuplicate {
  /** Nothing is stored, and the answer names the job that stands. */
  KEEP = 0,
  /** A PENDING job gets the new body, run_after and attempts; of one IN_PROGRESS replaceRunning decides. */
  REPLACE = 1,
  /** ENQUEUE_REJECTED, reason DUPLICATE; only in a request of one job. */
  REJECT = 2,
}

/** What REPLACE does where the job that has the dedupeKey is IN_PROGRESS, and no newer one waits behind it yet. */
enum ReplaceRunning {
  /** The running job is kept, and nothing is stored. */
  KEEP = 0,
  /** The new job is stored as the successor: it waits until the running one has ended. */
  ENQUEUE = 1,
  /** The same, and the running job is asked to stop. */
  CANCEL = 2,
}

/** The outcome of one job of an enqueue. */
enum EnqueueOutcome {
  STORED = 0,
  KEPT = 1,
  REPLACED = 2,
}

/** The outcome of one heartbeat. */
enum HeartbeatOutcome {
  /** The claim stands, and its time-out begins anew. */
  OK = 0,
  /** The claim is gone: the job may run elsewhere. */
  LOST = 1,
  /** As OK, and the job is to stop: whatever it does but succeed ends it as cancelled. */
  CANCEL = 2,
  /** Its shard cannot be asked now. */
  UNREACHABLE = 3,
}

/** The outcome of one ack. */
enum AckOutcome {
  /** Nothing was changed: the job was not in progress, not under the claim given, or not there. */
  IGNORED = 0,
  SUCCEEDED = 1,
  /** Failed, and PENDING again. */
  RETRIED = 2,
  /** Failed for good. */
  FAILED = 3,
  /** It was carried out by a server that does not say. */
  UNKNOWN = 4,
  /** Failed for good, since it was to stop. */
  CANCELLED = 5,
}

exception PinLaterException {
  1: required ErrorCode errorCode,
  2: required string message,
  /** A stable word for programs, such as REQUEST_INVALID; where there is no finer one, the name of the code. */
  100: optional string reason,
  /** Whether the same call may be sent again. */
  101: optional bool retryable,
  102: optional i64 retryAfterMillis,
  /** Whether the acks of the call, also those that rode on a refused dequeue, were carried out, but for invalid ones. */
  103: optional bool acksApplied,
  /** What of the request is stored, in the order of its jobs ("" for one that is not), where it failed in part. */
  104: optional list<string> jobDescriptors,
}

struct RequestContext {
  /** Who calls; the last part of the claims made for this caller. */
  1: required string source,
  2: optional string requestId = "",
  /** Proves who calls, where no certificate does (docs/access.md). */
  100: optional string token,
  /** A gateway says for whom it calls, as it has identified that caller; its own token must allow that. */
  101: optional string onBehalfOf,
  /**
   * The address of a gateway's caller. Where the gateway proves itself, it counts as where the call comes from; else
   * what is granted by network is granted to both addresses.
   */
  102: optional string callerAddress,
  /** Proves the gateway, beside the token of its caller. */
  103: optional string gatewayToken,
  /** All names in the certificate of a gateway's caller; onBehalfOf has one of them. */
  104: optional list<string> certificateNames,
  /**
   * Callers share the connection by which this call comes, as those of a gateway do: no claim is bound to it. A
   * heartbeat or a checkpoint that says so leaves a bound claim to its time-out.
   */
  105: optional bool sharesConnection,
}

struct PinLaterJob {
  1: required binary body,
  /** 1 is the highest. */
  2: optional byte priority = 1,
  /** Never executed earlier; now where it is not set. */
  3: optional i64 runAfterTimestampMillis,
  4: optional i32 numAttemptsAllowed = 2,
  5: optional string customStatus = "",
  /**
   * The job's name in its queue, 1 to 255 bytes: while a job of that name is PENDING or IN_PROGRESS, and for
   * dedupeForMillis after its end, no second one comes into being.
   */
  100: optional string dedupeKey,
  /** 1 to 255 bytes: jobs of one key, in whichever queues, are handed out one at a time, as they were enqueued. */
  101: optional string serializeKey,
  /** Of this job's claims, where the dequeue names none; cut to the queue's bound. */
  102: optional i32 claimTimeoutMillis,
  103: optional OnDuplicate onDuplicate,
  /** -1: as long as the job is kept. */
  104: optional i64 dedupeForMillis = 0,
  /** 1 to 64 bytes, random, the same on each resend of the request: a resend gets the first answer. */
  105: optional string sendId,
  /** Not handed out from then on: it ends as FAILED. */
  106: optional i64 expiresAtMillis,
  /** Up to 10 texts of 1 to 64 bytes, by which jobs are found; none twice, and no control characters. */
  107: optional list<string> tags,
  /** Only with onDuplicate REPLACE. */
  108: optional ReplaceRunning replaceRunning,
  /**
   * Only with onDuplicate REPLACE, 1 or more: so long after its first enqueue a job may be postponed by replacements;
   * a later runAfterTimestampMillis becomes that time.
   */
  109: optional i64 replaceWithinMillis,
  /** 1 to 255 bytes, no control characters: the groups of a queue, as its tenants, have fair shares of its hand-outs. */
  110: optional string group,
}

struct PinLaterEnqueueRequest {
  1: required string queueName,
  2: required list<PinLaterJob> jobs,
}

struct PinLaterEnqueueResponse {
  /** In the order of the jobs. */
  1: required list<string> jobDescriptors,
  /** In the order of the jobs; not set where all were stored. */
  100: optional list<EnqueueOutcome> outcomes,
}

/** The progress of a job, as its worker reported it last. */
struct JobProgress {
  /** 0.0 to 1.0. */
  1: optional double fraction,
  2: optional string text,
  3: optional i64 atMillis,
}

/** A line that the worker of a job logged, in the attempt of that number. */
struct PinLaterLogLine {
  1: optional i64 atMillis,
  2: optional i32 attempt,
  3: optional string text,
}

struct PinLaterJobAckInfo {
  1: required string jobDescriptor,
  2: optional string appendCustomStatus = "",
  /** For failures: how long to wait before the next attempt; below 0 is 0. */
  3: optional i64 retryDelayMillis = 0,
  /** Where given, only the holder of this claim can ack. */
  100: optional string claimDescriptor,
  /** With a failure: no retry, straight to FAILED; so too with a success whose result is refused. */
  101: optional bool permanent = false,
  /** With a success: kept for callers that ask for it, up to the queue's max_result. */
  102: optional binary result,
  /** The last progress of the job, with a claimDescriptor; its time is that of the ack. */
  103: optional JobProgress progress,
  /** With a claimDescriptor: added to the log of the job. Their attempt is the one that is acked. */
  104: optional list<PinLaterLogLine> logLines,
}

struct PinLaterJobAckRequest {
  1: required string queueName,
  2: optional list<PinLaterJobAckInfo> jobsSucceeded,
  3: optional list<PinLaterJobAckInfo> jobsFailed,
}

struct AckJobsResponse {
  /** The successes, then the failures, each in the order of the request. */
  1: required list<AckOutcome> outcomes,
}

/** A job that a worker runs. */
struct WorkerJob {
  1: required string jobDescriptor,
  /** The type of job, as the worker calls it. */
  2: optional string jobType,
  /** For how long it has run. */
  3: optional i64 runningMillis,
}

/** An outbox, as the relay that empties it reports. */
struct OutboxReport {
  /** The same for all relays of it; at most 200 characters. */
  1: required string name,
  /** How many jobs wait there, how long the oldest does, and how long one may; 0: not set. */
  2: optional i64 waiting,
  3: optional i64 oldestMillis,
  4: optional i64 goalMillis,
  /** What keeps them. */
  5: optional string problem,
}

/** Jobs that a worker could not run. */
struct UnknownType {
  1: required string queueName,
  /** As their bodies call it. Not set: the bodies name none that the worker can read. */
  2: optional string jobType,
  /** Those that it was the first to report. */
  3: optional i64 jobs,
  /** How long ago it met one last. */
  4: optional i64 lastMillis,
}

/**
 * What a worker reports of itself, on a dequeue or a checkpoint every ten seconds or so, and when it starts or stops. It
 * never fails the call that carries it: what is too long is cut.
 */
struct WorkerReport {
  /** Of this process and this run of it alone; at most 100 characters. */
  1: required string id,
  /** For people. */
  2: required string name,
  /** Since the worker began, by a clock that is never set: of two reports the one with more is the newer. */
  3: required i64 upMillis,
  4: optional string host,
  5: optional i32 pid,
  /** The queues it takes jobs from, with their weights. */
  6: optional map<string, i32> queues,
  /** How many jobs it can run at once, how many it runs, and how many slots are held by jobs that do not return. */
  7: optional i32 slots,
  8: optional i32 busySlots,
  9: optional i32 stuckSlots,
  /** Up to 100, those that run longest first. */
  10: optional list<WorkerJob> running,
  /** Such as "python": "3.11.2". */
  11: optional map<string, string> versions,
  /** It takes no new jobs. */
  12: optional bool isStopping = false,
  /** The last report of this id: it leaves the list of workers. */
  13: optional bool hasStopped = false,
  /** Its process has not moved for so long; another process reports for it. */
  14: optional i64 silentMillis,
  /** It takes no more jobs for now. Not set: it knows no commands. */
  15: optional bool isQuiet,
  /** The types of job that it can run, by the names that bodies have; the first 100 count. */
  16: optional list<string> jobTypes,
  /** It is the relay of an outbox: it takes no jobs, and the right to enqueue is enough to report it. */
  17: optional OutboxReport outbox,
  /** Up to 100, which it met in the last minutes. */
  18: optional list<UnknownType> unknownTypes,
}

struct PinLaterDequeueMetadata {
  1: optional i32 attemptsAllowed,
  2: optional i32 attemptsRemaining,
  /** Sent back with an ack or a checkpoint, it fences out all other claims of the job. */
  100: optional string claimDescriptor,
  101: optional i64 enqueuedAtMillis,
  102: optional i64 runAfterMillis,
  103: optional byte priority,
  104: optional i64 claimExpiresAtMillis,
}

/** One of the queues of a dequeueFromQueues. */
struct QueueShare {
  1: required string queueName,
  /** 1 to 1,000: of the queues that have jobs, each gets its share of the limit. */
  2: optional i32 weight = 1,
  /** As that of a PinLaterDequeueRequest, of this queue. */
  3: optional i32 prefetch = 0,
}

struct DequeueFromQueuesRequest {
  /** 1 to 1,000, none of them twice. */
  1: required list<QueueShare> queues,
  /** Of all queues together. */
  2: required i32 limit,
  /** Carried out before the dequeue; at most 1,000 of them. */
  3: optional list<PinLaterJobAckRequest> acks,
  /** Long poll: answer as soon as one of the queues has a job, at most so much later; cut at 60,000. */
  4: optional i32 waitMillis = 0,
  /** As those of a PinLaterDequeueRequest. */
  5: optional i32 claimTimeoutMillis,
  6: optional bool releaseOnDisconnect = false,
  7: optional bool confirmsReceipt = false,
  8: optional WorkerReport worker,
}

/** Why a queue gave no jobs, while the others could be read. The fields are those of a PinLaterException. */
struct QueueError {
  1: required string queueName,
  2: required ErrorCode errorCode,
  3: required string message,
  4: optional string reason,
  5: optional bool retryable,
  6: optional i64 retryAfterMillis,
}

struct DequeueFromQueuesResponse {
  /** Body by job descriptor, which names the queue. */
  1: optional map<string, binary> jobs,
  2: optional map<string, PinLaterDequeueMetadata> jobMetadata,
  3: optional list<QueueError> queueErrors,
  /** One list for each of the acks, as that of a PinLaterDequeueResponse. Not set where all had an effect. */
  4: optional list<list<AckOutcome>> ackOutcomes,
  /** The receipt of this answer is awaited: see confirmsReceipt. */
  5: optional bool awaitsReceipt,
}

struct PinLaterCheckpointJobRequest {
  1: required string jobDescriptor,
  2: optional string newBody,
  /** Gives the job back: the claim is cleared, no attempt is taken. */
  3: optional bool moveToPending = false,
  /** Now where it is not set. */
  4: optional i64 runAfterTimestampMillis,
  /** Sets both the attempts allowed and those remaining. */
  5: optional i32 numOfAttemptsAllowed,
  6: optional string prependCustomStatus,
  /** Where given, this very claim is meant, whatever the source. */
  100: optional string claimDescriptor,
  /** A new body that is not text. */
  101: optional binary newBodyBytes,
}

struct PinLaterCheckpointJobsRequest {
  1: required string queueName,
  2: required list<PinLaterCheckpointJobRequest> requests,
  100: optional WorkerReport worker,
}

/**
 * A job by its keys. With a dedupeKey: the live job of that name in the queue (of two the one that runs, and not its
 * successor), else the last one (with a serializeKey too, that of this serializeKey). With a serializeKey alone: the
 * job that is now the first of that key, in whichever queue.
 */
struct KeyRef {
  1: optional string dedupeKey,
  2: optional string serializeKey,
}

struct PinLaterLookupJobRequest {
  1: required list<string> jobDescriptors,
  2: optional bool includeBody = false,
  /** Jobs of queueName. */
  100: optional list<KeyRef> keys,
  101: optional string queueName,
  /** Answer when the first of the jobs named has ended or is not there, at most so much later; cut at 60,000. */
  102: optional i32 waitMillis = 0,
  103: optional bool includeResult = false,
  /** The attempts of each job, and its log lines. */
  104: optional bool includeTrail = false,
}

/** How an attempt ended. */
enum PinLaterAttemptOutcome {
  SUCCEEDED = 1,
  FAILED = 2,
  /** Its claim expired, or its worker's connection broke. */
  EXPIRED = 3,
  /** It ended otherwise than by a success, when the job was to stop. */
  CANCELLED = 4,
}

/** One of the attempts of a job, the first of which has the number 1. */
struct PinLaterJobAttempt {
  1: optional i32 number,
  /** The runAfter that the job had. */
  2: optional i64 eligibleAtMillis,
  3: optional i64 claimedAtMillis,
  /** Not set while it runs; nor is the outcome. */
  4: optional i64 endedAtMillis,
  5: optional PinLaterAttemptOutcome outcome,
  /** The source that its claim names. */
  6: optional string worker,
}

struct PinLaterJobInfo {
  1: required string jobDescriptor,
  2: required PinLaterJobState jobState,
  10: required i32 attemptsAllowed,
  3: required i32 attemptsRemaining,
  4: required string customStatus,
  5: required i64 createdAtTimestampMillis,
  6: optional i64 runAfterTimestampMillis,
  7: optional i64 updatedAtTimestampMillis,
  8: optional string claimDescriptor,
  9: optional binary body,
  /** The job that this is a copy of: a dead letter's original, or the dead letter that was sent back. */
  100: optional string origin,
  /** The copy of this job: its dead letter, or where it went from an overflow shard. */
  101: optional string movedTo,
  /** Claims that expired or were released; an operator's retry clears them. */
  102: optional i32 crashes,
  103: optional i64 claimedAtMillis,
  104: optional i64 claimExpiresAtMillis,
  105: optional i64 finishedAtMillis,
  /** Where it was asked for, and is still kept. */
  106: optional binary result,
  107: optional string dedupeKey,
  108: optional string serializeKey,
  /** FAILED because it was to stop. */
  109: optional bool cancelled,
  110: optional JobProgress progress,
  /**
   * The first job of its serializeKey, while it is not this one ("?" where the caller may not read its queue); or the
   * running job of its dedupeKey, whose successor it is.
   */
  111: optional string waitsFor,
  112: optional i64 expiresAtMillis,
  113: optional i32 claimTimeoutMillis,
  /** Who asked it to stop. */
  114: optional string cancelRequestedBy,
  /** In which tier the body lies, and why: TIER::QUEUE::TIME::ID (WHY). Not there: in the shard. */
  115: optional string bodyStoredAt,
  /** It was asked for, and the answer had no room for it: look the job up again, with fewer others. */
  116: optional bool bodyLeftOut,
  /** As bodyLeftOut. */
  117: optional bool resultLeftOut,
  /** FAILED, and its dead letter was sent back as this job. */
  118: optional string replayedTo,
  /** The last 20, where the trail was asked for. */
  119: optional list<PinLaterJobAttempt> attempts,
  /** The last 100 lines or 16 KiB, where the trail was asked for and the caller may see the job's body. */
  120: optional list<PinLaterLogLine> logLines,
  121: optional list<string> tags,
  122: optional string group,
  /** The newer job that waits until this one, which is IN_PROGRESS, has ended: it has the same dedupeKey. */
  123: optional string successor,
}

struct CancelJobsRequest {
  1: required string queueName,
  2: required list<string> jobDescriptors,
  /** Each with a dedupeKey. A successor of the job that a key names is cancelled with it. */
  3: optional list<KeyRef> keys,
  4: optional CancelMode mode,
}

struct CancelJobsResponse {
  1: required map<string, CancelOutcome> outcomes,
  /** In the order of the keys. */
  2: optional list<CancelOutcome> keyOutcomes,
}

/** Restarts the time-out of a claim, and changes nothing else. */
struct JobHeartbeat {
  1: required string jobDescriptor,
  2: required string claimDescriptor,
  /** How far it is; not set: as it was reported last. */
  3: optional double fraction,
  /** Cut at 200 characters. */
  4: optional string text,
  /** Added to the log of the job; a line that is there already is not added again. Cut at 1,024 bytes each. */
  5: optional list<PinLaterLogLine> logLines,
}

enum WorkerCommand {
  /** It takes no more jobs; those it has it ends. */
  QUIET = 0,
  /** It takes jobs again. */
  RESUME = 1,
  /** It takes no more jobs, and ends when those it has have ended. */
  STOP = 2,
}

struct HeartbeatJobsRequest {
  1: required string queueName,
  2: required list<JobHeartbeat> heartbeats,
  3: optional WorkerReport worker,
}

struct HeartbeatJobsResponse {
  /** In the order of the request. */
  1: required list<HeartbeatOutcome> outcomes,
  /** By job descriptor, for those whose outcome is CANCEL: who asked. */
  2: optional map<string, string> cancelledBy,
  /** What the worker that sent a report is to do, until its report shows that it does. */
  3: optional WorkerCommand command,
  /** Of two commands the one with the greater number is the newer; a worker carries each out once. */
  4: optional i64 commandNumber,
}

struct AccessGrant {
  /** enqueue, consume, read, operate, admin, gateway */
  1: required list<string> actions,
  /** Patterns, in which * stands for any characters. */
  2: required list<string> queues,
  3: optional bool bodies = true,
  /** Patterns of the groups that jobs may get, "" for jobs without one. Absent: all. */
  4: optional list<string> groups,
}

/** How many of a kind an identity has made that are there. */
struct StoredCount {
  /** flows, flow-items, queues, schedules, tokens */
  1: required string kind,
  /** Absent: it is not known now. */
  2: optional i64 used,
  /** 0: any number. */
  3: required i64 limit,
}

/** Who a caller is, and what it may. */
struct AccessView {
  1: required string identity,
  2: required list<string> roles,
  3: required list<AccessGrant> grants,
  /** False: no rules are in force, so everybody may do all that needs no admin password. */
  4: optional bool hasRules,
  /** What it has made of each kind; absent where that is not counted. */
  100: optional list<StoredCount> stored,
}

service PinLater {
  void createQueue(1: RequestContext context, 2: string name) throws (1: PinLaterException e),

  PinLaterEnqueueResponse enqueueJobs(1: RequestContext context, 2: PinLaterEnqueueRequest request)
      throws (1: PinLaterException e),

  /** As dequeueJobs, from whichever of the queues has jobs; each queue's limits are those of a plain dequeue. */
  DequeueFromQueuesResponse dequeueFromQueues(1: RequestContext context, 2: DequeueFromQueuesRequest request)
      throws (1: PinLaterException e),

  /** As ackDequeuedJobs, and answers what became of each ack. */
  AckJobsResponse ackJobs(1: RequestContext context, 2: PinLaterJobAckRequest request)
      throws (1: PinLaterException e),

  void checkpointJobs(1: RequestContext context, 2: PinLaterCheckpointJobsRequest request)
      throws (1: PinLaterException e),

  map<string, PinLaterJobInfo> lookupJobs(1: RequestContext context, 2: PinLaterLookupJobRequest request)
      throws (1: PinLaterException e),

  CancelJobsResponse cancelJobs(1: RequestContext context, 2: CancelJobsRequest request)
      throws (1: PinLaterException e),

  /** Keeps claims alive, says which are lost and which jobs are to stop. */
  HeartbeatJobsResponse heartbeatJobs(1: RequestContext context, 2: HeartbeatJobsRequest request)
      throws (1: PinLaterException e),

  /** The caller's identity and rights. Needs nothing. */
  AccessView getAccess(1: RequestContext context) throws (1: PinLaterException e),
}
