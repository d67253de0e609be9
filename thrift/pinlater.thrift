/**
 * The wire contract of PinLater.
 *
 * Fields with ids below 100 are the classic interface: their names, ids, types and defaults never change. What this
 * server adds has ids from 100 on and is always optional, so that an older client never sees a difference.
 * docs/wire.md says what each call does. Times are milliseconds since the Unix epoch.
 */

/* Java and C++ as in the file of the original PinLater. Go and JavaScript have none: the name of this file is theirs. */
namespace java com.pinterest.pinlater.thrift
namespace cpp pinterest.pinlater
namespace py pinlater_thrift
namespace rb PinLaterThrift
namespace php PinLaterThrift
namespace perl PinLaterThrift

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

/** The outcome of one job of a rescheduleJobs. */
enum RescheduleOutcome {
  RESCHEDULED = 0,
  IN_PROGRESS = 1,
  ENDED = 2,
  NOT_FOUND = 3,
  /** It was updated at another time than the one named. */
  CHANGED = 4,
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

/** What changeJobs does to the jobs that it finds. */
enum JobAction {
  /** FAILED jobs go back to PENDING. */
  RETRY = 0,
  /** Jobs of the state named are removed. */
  DELETE = 1,
  /** PENDING jobs are removed. */
  CANCEL = 2,
  /** Dead letters go back to the queue that they came from. */
  REPLAY = 3,
}

/** Continuations are strings; these two mark the first page and the end. */
const string CONTINUATION_START = "0"
const string CONTINUATION_END = "-1"

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

struct PinLaterDequeueRequest {
  1: required string queueName,
  2: required i32 limit,
  /** Carried out before the dequeue. */
  3: optional PinLaterJobAckRequest jobAckRequest,
  /** Hands out jobs without claiming them. */
  4: optional bool dryRun = false,
  /** The share of the shards to read, 0.0 to 1.0; at least one shard. */
  5: optional double coverage = 1.0,
  /** Long poll: answer as soon as there is a job, at most so much later; cut at 60,000. */
  100: optional i32 waitMillis = 0,
  /** This claim's own time-out; cut to the queue's bound. */
  101: optional i32 claimTimeoutMillis,
  /** Release the claims when this connection breaks and no checkpoint comes within a grace. */
  102: optional bool releaseOnDisconnect = false,
  /**
   * The caller sends nothing on this connection before it has the answer, and then, before it begins a job of it, sends
   * something: its next call, or a checkpoint of nothing. A claim of which no such receipt came costs no attempt.
   */
  103: optional bool confirmsReceipt = false,
  /**
   * So many jobs more than the limit, if they are there at once and the queue has neither a rate nor a maximum in
   * progress; a dequeue that had to wait gets none of them.
   */
  104: optional i32 prefetch = 0,
  105: optional WorkerReport worker,
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

struct PinLaterDequeueResponse {
  /** Body by job descriptor; a map has no order, so sort by priority and runAfterMillis. */
  1: optional map<string, binary> jobs,
  2: optional map<string, PinLaterDequeueMetadata> jobMetadata,
  /** Of the acks that rode on it: the successes, then the failures, each in order. Not set where all had an effect. */
  100: optional list<AckOutcome> ackOutcomes,
  /** The receipt of this answer is awaited: see confirmsReceipt. */
  101: optional bool awaitsReceipt,
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

struct PinLaterGetJobCountRequest {
  1: required string queueName,
  2: required PinLaterJobState jobState,
  3: optional byte priority,
  /** False counts what may run now, true what may run only later. */
  4: optional bool countFutureJobs = false,
  /** RE2, searched in the bytes of the body. */
  5: optional string bodyRegexToMatch,
  /** Count what is there although a shard is missing. */
  100: optional bool allowPartial = false,
}

struct PinLaterScanJobsRequest {
  1: required string queueName,
  2: required PinLaterJobState jobState,
  3: optional byte priority,
  4: optional bool scanFutureJobs = false,
  5: optional string continuation = CONTINUATION_START,
  6: optional i32 limit = 100,
  7: optional string bodyRegexToMatch,
}

struct PinLaterScanJobsResponse {
  1: required list<PinLaterJobInfo> scannedJobs,
  2: optional string continuation = CONTINUATION_END,
  /** Shards that could not be read. */
  100: optional list<string> missingShards,
}

struct PinLaterRetryFailedJobsRequest {
  1: required string queueName,
  2: optional byte priority = 1,
  3: optional i32 attemptsToAllow = 1,
  4: optional i64 runAfterTimestampMillis,
  5: optional i32 limit = 1000,
}

struct PinLaterDeleteJobsRequest {
  1: required string queueName,
  2: required PinLaterJobState jobState,
  3: optional byte priority = 1,
  4: optional string bodyRegexToMatch,
  5: optional i32 limit = 1000,
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

/** A change of one PENDING job; what is not set stays. */
struct RescheduleJob {
  /** Or a key. */
  1: optional string jobDescriptor,
  /** With a dedupeKey. Where the job that it names has a successor, that is changed. */
  2: optional KeyRef key,
  3: optional i64 runAfterTimestampMillis,
  4: optional binary body,
  /** Sets both the attempts allowed and those remaining. */
  5: optional i32 numAttemptsAllowed,
  /** Only if this is its updatedAtTimestampMillis. */
  6: optional i64 onlyIfUpdatedAtMillis,
}

struct RescheduleJobsRequest {
  1: required string queueName,
  2: required list<RescheduleJob> jobs,
  /** An operator does it: the audit has an entry that names the jobs. Programs leave it out. */
  3: optional bool audited = false,
}

struct RescheduleJobsResponse {
  /** In the order of the request. */
  1: required list<RescheduleOutcome> outcomes,
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

struct GetQueuesRequest {
  /** Not set: all queues. "@defaults" stands for what is set for all queues. */
  1: optional list<string> queueNames,
}

struct QueueSettingValue {
  /** As people write it: 5m, 100/s, none, true. */
  1: required string value,
  /** breaker, queue, file, default, file default, or server. */
  2: required string source,
}

struct QueueView {
  1: required string name,
  2: required string version,
  3: required map<string, QueueSettingValue> settings,
  /** Others name it as their dead-letter queue. */
  4: optional bool holdsDeadLetters,
}

struct GetQueuesResponse {
  1: required list<QueueView> queues,
}

struct UpdateQueueRequest {
  /** Or "@defaults". */
  1: required string queueName,
  2: required string password,
  /** By key, as people write them; docs/queues.md has the table. */
  3: optional map<string, string> settings,
  /** Keys whose value comes from elsewhere again. */
  4: optional list<string> unset,
  /** Make the queue where it is not there. */
  5: optional bool create = false,
}

struct GetGroupsRequest {
  1: required string queueName,
  /** These alone; not set: all that have ready jobs, or settings of their own. */
  2: optional list<string> groups,
  3: optional string continuation = CONTINUATION_START,
  4: optional i32 limit = 100,
}

/** A group of a queue; "" is the group of jobs without one. */
struct GroupView {
  1: required string name,
  2: required map<string, QueueSettingValue> settings,
  /** No further than 10,000 for a shard and a priority. Jobs that came due with no dequeue since are not counted yet. */
  3: required i64 ready,
  /** Not set: none is ready. */
  4: optional i64 oldestRunAfterMillis,
  /** In progress, over all shards. Not set: the group has no maximum, or that cannot be counted now. */
  5: optional i64 running,
  /** Those of the ready jobs that its pause or its limits hold back. */
  6: optional i64 limited,
  /**
   * The part of the hand-outs of the queue that the group had in the last minute, from 0 to 1, over all servers and at
   * most 30 s old. Not set: there were none, or they cannot be read.
   */
  7: optional double lastMinuteShare,
}

struct GetGroupsResponse {
  /** By the bytes of their names. */
  1: required list<GroupView> groups,
  2: optional string continuation = CONTINUATION_END,
  /** Shards whose jobs are not counted. */
  3: optional list<string> missingShards,
}

struct UpdateGroupRequest {
  1: required string queueName,
  /** Or a pattern, in which * stands for any text. */
  2: required string group,
  3: required string password,
  /** By key, as people write them; docs/fairness.md has the table. */
  4: optional map<string, string> settings,
  5: optional list<string> unset,
}

struct ClearGroupsRequest {
  1: required string queueName,
  2: required string password,
  3: optional string continuation = CONTINUATION_START,
  /** About so many jobs are looked at. */
  4: optional i32 limit = 500,
  /** Only count them. */
  5: optional bool dryRun = false,
}

struct ClearGroupsResponse {
  /** So many jobs had a group. */
  1: required i64 jobs,
  2: optional string continuation = CONTINUATION_END,
  /** Shards that are out: their jobs keep their groups. */
  3: optional list<string> missingShards,
}

struct UpdateShardRequest {
  1: required string shardId,
  2: required string password,
  /** True: the shard takes no new jobs, and is emptied by its workers. */
  3: required bool dequeueOnly,
  /** It takes no new jobs, and the keys that live there count as lost: it is gone, and not waited for. */
  4: optional bool giveUp,
}

struct ChangeResponse {
  1: required string version,
  /** Shards that missed the change; they get it before they serve again. */
  2: required list<string> missedShards,
}

struct GetClusterStatusRequest {
  /** Not set: all queues; empty: none. */
  1: optional list<string> queueNames,
  /** Answer also with what the server processes have counted of queues where that changed since then; 0: of all. */
  2: optional i64 countersSinceMillis,
}

struct LevelView {
  1: required byte priority,
  /** PENDING, and may run now. */
  2: required i64 ready,
  /** PENDING, and may run only later. */
  3: required i64 scheduled,
  4: required i64 inProgress,
  5: required i64 succeeded,
  6: required i64 failed,
  /** The smallest run_after among those ready. */
  7: optional i64 oldestReadyMillis,
  /** PENDING behind another job of its serializeKey; neither ready nor scheduled. */
  8: optional i64 waiting,
  /** FAILED because they were to stop; not among those failed. */
  9: optional i64 cancelled,
  /** FAILED, and their dead letters were sent back as new jobs; not among those failed. */
  10: optional i64 replayed,
  /** Of those ready: their groups are paused or at their limits, as claims found them. */
  11: optional i64 readyLimited,
}

/** Of a queue that hands out no jobs: who paused it, why, since when, and when it ends by itself. */
struct PauseView {
  1: optional string by,
  2: optional string why,
  3: optional i64 atMillis,
  4: optional i64 untilMillis,
}

struct QueueStatus {
  1: required string name,
  /** When the oldest of these numbers was counted, but for field 7. */
  2: required i64 countedAtMillis,
  3: required list<LevelView> levels,
  /** Per second over the whole cluster: enqueued, dequeued, succeeded, failed, retried. Claims that expired are in the last two. */
  4: optional map<string, double> rates,
  /** Words such as "paused", "draining", "rate 100/s". */
  5: optional list<string> flags,
  /** Set where it is paused. */
  6: optional PauseView pause,
  /** Set where the jobs that ended were counted before the others: when the oldest of them were. */
  7: optional i64 endedCountedAtMillis,
}

/** A serializeKey whose first job keeps too many others waiting, or for too long, by the settings of its server. */
struct BlockedChain {
  1: required string serializeKey,
  /** The descriptor of that job. */
  2: required string first,
  3: required i64 waiting,
  /** Since when it is the first. */
  4: required i64 sinceMillis,
}

struct ShardView {
  1: required string id,
  /** Its address, without a password. */
  2: required string store,
  /** in, out, probing or unopened: as the process sees it that answers. */
  3: required string state,
  4: required bool dequeueOnly,
  5: optional string trouble,
  /** Of the last `samples` calls, so many were good. */
  6: optional i32 good,
  7: optional i32 samples,
  /** How far the store's clock is ahead of the server's. */
  8: optional i64 skewMillis,
  9: optional i64 nextTryMillis,
  /** The server process that maintains it. */
  10: optional string maintainedBy,
  /** PENDING and IN_PROGRESS, as last counted, of the queues that the caller may read; not set: they never were. */
  11: optional i64 jobs,
  12: optional i64 countedAtMillis,
  /** Of a shard that takes no new jobs: the queues whose jobs these are, up to 20 that have the most of them. */
  13: optional map<string, i64> jobsByQueue,
  /** It is in, but has no room for new jobs, as one process of the cluster has found at least. `trouble` gives the reason. */
  14: optional bool isFull,
  /** Up to five, those with the most waiting. */
  15: optional list<BlockedChain> blockedChains,
  /** Whether jobs with new keys come there; not set: no job with a key was ever enqueued. */
  16: optional bool isHome,
  /** Of 4,096 parts of all keys, those that have something here although their home is another shard now. */
  17: optional i32 leftSlots,
  /** So many serialize keys wait here for their jobs on the shard where they lived before. */
  18: optional i32 barriers,
  /** By an operator: the keys that lived there count as lost. */
  19: optional bool isGivenUp,
  /** It is no home any more, and windows of keys are still on their way from here. */
  20: optional bool hasWindowsLeft,
}

struct ServerView {
  1: required string server,
  2: required string process,
  3: required string address,
  4: required i64 startedMillis,
  5: required i64 seenMillis,
  6: required bool isReady,
  7: optional string trouble,
  8: optional list<string> maintains,
  9: optional list<string> shardsOut,
  /** Jobs in its overflow shard that wait to be moved; not set: it has none. */
  10: optional i64 overflowJobs,
  /** The shards in use that have no room for new jobs, as this process sees them. */
  11: optional list<string> shardsFull,
  /** Why callers may do more there than an operator may want. */
  12: optional string exposed,
}

/** What one server process has counted since it began. One that has ended is listed for two minutes more. */
struct ProcessCounters {
  /** SERVER/PROCESS. */
  1: required string process,
  2: required i64 startedMillis,
  3: required i64 countedAtMillis,
  /** By queue, the numbers of jobs that were enqueued, dequeued, succeeded, failed (for good), retried. */
  4: required map<string, list<i64>> queues,
  /** It has more queues than fit into one report: some that have not changed are not there. */
  5: optional bool isCut,
}

struct ClusterStatus {
  1: required i64 nowMillis,
  2: required list<ServerView> servers,
  3: required list<ShardView> shards,
  4: required list<QueueStatus> queues,
  /** Why keys cannot go to other shards now, although they are to. */
  5: optional string homesTrouble,
  /** Where they were asked for. */
  6: optional list<ProcessCounters> counters,
}

struct ChangeJobsRequest {
  1: required string queueName,
  2: required JobAction action,
  /** Not set: the states that the action takes. */
  3: optional PinLaterJobState jobState,
  4: optional byte priority,
  5: optional i64 createdBeforeMillis,
  6: optional i64 createdAfterMillis,
  /** RE2, searched in the bytes of the body. */
  7: optional string bodyRegexToMatch,
  /** Of this one call. */
  8: optional i32 limit = 1000,
  /** Changes nothing: counts what matches, with up to ten samples. */
  9: optional bool dryRun = false,
  /** For RETRY and REPLAY; not set: as many as the job was allowed before. */
  10: optional i32 attempts,
  /** For RETRY; not set: now. */
  11: optional i64 runAfterMillis,
  12: optional string continuation = CONTINUATION_START,
}

struct ChangeJobsResponse {
  /** Jobs changed, or matched in a dry run. */
  1: required i32 changed,
  2: required i32 lookedAt,
  3: optional list<PinLaterJobInfo> samples,
  /** Other than CONTINUATION_END: call again with it, there may be more. */
  4: optional string continuation = CONTINUATION_END,
  5: optional list<string> missingShards,
  /**
   * By descriptor, why a job was left alone: it would have made a second live job of a dedupeKey, or its dead letter
   * runs, has succeeded or lies elsewhere.
   */
  6: optional map<string, string> refusals,
  /** Jobs in progress whose workers were asked to stop: of changeFoundJobs alone, and not among those changed. */
  7: optional i32 askedToStop,
}

/** A state of jobs, as finely as getClusterStatus counts them. */
enum JobPhase {
  /** PENDING, and may run now. */
  READY = 0,
  /** PENDING, and may run only later. */
  SCHEDULED = 1,
  /** PENDING behind another job of its serializeKey. */
  WAITING = 2,
  IN_PROGRESS = 3,
  SUCCEEDED = 4,
  FAILED = 5,
  /** FAILED because it was to stop. */
  CANCELLED = 6,
  /** FAILED, and its dead letter was sent back as a new job. */
  REPLAYED = 7,
}

struct TextCondition {
  /** RE2, searched in the bytes of the text. */
  1: required string regex,
  /** It must not be found. */
  2: optional bool isNot = false,
}

/** The jobs of a queue that meet all that is set here. An empty list or key that is set means no job. */
struct JobSelection {
  1: required string queueName,
  /** One of these. Not set: all, or those that an action takes. */
  2: optional list<JobPhase> phases,
  /** One of these. */
  3: optional list<byte> priorities,
  4: optional list<TextCondition> bodyConditions,
  5: optional list<TextCondition> statusConditions,
  6: optional i64 createdBeforeMillis,
  7: optional i64 createdAfterMillis,
  8: optional i64 updatedBeforeMillis,
  9: optional i64 updatedAfterMillis,
  /** A job that has not ended meets no condition on its end. */
  10: optional i64 endedBeforeMillis,
  11: optional i64 endedAfterMillis,
  /** Attempts that were taken: those allowed less those remaining. */
  12: optional i32 minAttempts,
  13: optional i32 maxAttempts,
  14: optional string dedupeKey,
  15: optional string serializeKey,
  /** Only these, at most 1,000. */
  16: optional list<string> jobDescriptors,
  /**
   * Jobs that have all of these; at most 10. Older servers see neither this nor originQueue: add the statusCondition of
   * an empty regex with isNot, which no job meets there, and which counts for nothing beside them here.
   */
  17: optional list<string> tags,
  /** Copies of jobs of this queue, as its dead letters are. */
  18: optional string originQueue,
  /**
   * Jobs of this group. Older servers do not see it: add the statusCondition of (?:group)? with isNot, which no job
   * meets there, beside tags and originQueue too, and which counts for nothing here.
   */
  19: optional string group,
}

struct SearchJobsRequest {
  1: required JobSelection selection,
  2: optional i32 limit = 100,
  /** The bodies of the jobs found, as far as they fit into 4 MiB. */
  3: optional bool includeBody = false,
  /** Answer after so long with what was found; cut at the server's own bound. */
  4: optional i32 maxMillis,
  5: optional string continuation = CONTINUATION_START,
}

struct SearchJobsResponse {
  /** Those whose time has come, newest run_after first, then the others. Maybe none, although others follow. */
  1: required list<PinLaterJobInfo> jobs,
  /** How many jobs this call read. */
  2: required i64 lookedAt,
  3: optional string continuation = CONTINUATION_END,
  4: optional list<string> missingShards,
}

/** One slice of a run over all jobs of a selection. */
struct ChangeFoundJobsRequest {
  1: required JobSelection selection,
  2: required JobAction action,
  /** Of this one call. Jobs named by descriptors are all changed by it, whatever the limit. */
  3: optional i32 limit = 1000,
  /** Changes nothing: counts what matches, with up to ten samples. */
  4: optional bool dryRun = false,
  /** For RETRY and REPLAY; not set: as many as the job was allowed before. */
  5: optional i32 attempts,
  /** For RETRY; not set: now. */
  6: optional i64 runAfterMillis,
  /** For CANCEL. */
  7: optional CancelMode mode,
  /** As of a SearchJobsRequest. */
  8: optional i32 maxMillis,
  /** No call of this run follows, whatever is left: the audit gets its sum. With a limit of 0 nothing more is done. */
  9: optional bool isLast = false,
  /** For the audit, at most 500 characters. */
  10: optional string note,
  11: optional string continuation = CONTINUATION_START,
}

struct GetAuditRequest {
  1: optional i32 limit = 100,
  2: optional i64 beforeMillis,
}

struct AuditEntry {
  1: required i64 atMillis,
  2: required string who,
  3: required string action,
  4: required string target,
  5: optional string detail,
  6: optional string server,
}

struct GetAuditResponse {
  /** The latest first. */
  1: required list<AuditEntry> entries,
}

/** What changeBodies does. */
enum BodiesAction {
  /** Delete objects that no job refers to. */
  SWEEP = 0,
  /** Read each body, and check it. */
  VERIFY = 1,
  /** Put each body of a pending job where the rules of now would put it. */
  MOVE = 2,
}

struct BodyTier {
  1: required string name,
  /** Without secrets. */
  2: required string url,
  /** Why it is not used now. */
  3: optional string trouble,
  /** As of countedAtMillis, over all shards. */
  4: optional i64 bodies,
  5: optional i64 bytes,
  6: optional i64 orphans,
  7: optional i64 countedAtMillis,
  /** Of this server process, since it began. */
  8: optional double putP50Millis,
  9: optional double putP99Millis,
  10: optional double getP50Millis,
  11: optional double getP99Millis,
  12: optional i64 fallbacks,
  13: optional i64 readFailures,
}

struct BodyTiers {
  1: required list<BodyTier> tiers,
  2: required list<string> rules,
  /** Live server processes that do not have all of these tiers, as SERVER/PROCESS: until they do, or are gone, no body goes there. */
  3: optional list<string> lacking,
  /** Objects whose jobs are gone. */
  4: optional i64 toDelete,
  /** Store ids of objects that belong to no shard of this cluster. */
  5: optional list<string> strangers,
}

struct ChangeBodiesRequest {
  1: required BodiesAction action,
  /** Not for SWEEP. */
  2: optional string queueName,
  3: optional string tier,
  4: optional bool dryRun = false,
  /** For SWEEP: of BodyTiers.strangers; all its objects go. */
  5: optional string store,
  6: optional string continuation = CONTINUATION_START,
  7: optional i32 limit = 500,
}

struct ChangeBodiesResponse {
  1: required string continuation,
  /** Objects (SWEEP) or jobs. */
  2: required i64 lookedAt,
  /** Orphans, bodies that cannot be read, or bodies that belong elsewhere. */
  3: required i64 found,
  /** Deleted, or moved. */
  4: required i64 done,
  /** Of what was found. */
  5: required i64 bytes,
  6: optional list<string> troubles,
}

struct GetWorkersRequest {
  /** Those that take jobs from this queue. */
  1: optional string queueName,
  /** Those of this name. */
  2: optional string name,
  3: optional bool includeRunning = false,
  4: optional i32 limit = 100,
  5: optional string continuation = CONTINUATION_START,
}

struct WorkerJobInfo {
  1: required string jobDescriptor,
  2: required string jobType,
  3: required i64 sinceMillis,
}

/** A worker by its last report, of `seenMillis`. */
struct WorkerInfo {
  1: required string id,
  2: required string name,
  3: required string host,
  4: required i32 pid,
  5: required map<string, i32> queues,
  6: required i32 slots,
  7: required i32 busySlots,
  8: required i32 stuckSlots,
  /** Where they were asked for: up to 100, those that run longest first. */
  9: required list<WorkerJobInfo> running,
  /** Since when the job runs that has run longest. */
  10: optional i64 longestSinceMillis,
  11: required map<string, string> versions,
  12: required bool isStopping,
  13: required i64 startedMillis,
  14: required i64 seenMillis,
  /** Its process has not moved since then. */
  15: optional i64 silentSinceMillis,
  /** Who reported it: an entry of another identity is another worker, whatever its id. */
  100: optional string identity,
  /** It takes no more jobs for now. Not set: it knows no commands. */
  101: optional bool isQuiet,
  /** With those that run, where they were asked for: the types of job that it can run. */
  102: optional list<string> jobTypes,
  /** It is the relay of an outbox, as that was at `seenMillis`. */
  103: optional OutboxReport outbox,
  104: optional list<UnknownType> unknownTypes,
}

struct GetWorkersResponse {
  1: required i64 nowMillis,
  /** By name, host and pid. */
  2: required list<WorkerInfo> workers,
  /** How many match, on all pages, and the sums over these. */
  3: required i32 total,
  4: required i64 slots,
  5: required i64 busySlots,
  6: required i64 stuckSlots,
  7: optional string continuation = CONTINUATION_END,
  /** Shards that could not be read: workers that reported only to other servers may be missing. */
  8: optional list<string> missingShards,
}

struct CommandWorkersRequest {
  1: required WorkerCommand command,
  /** By their ids, or as HOST:PID. */
  2: optional list<string> workers,
  /** All on this host. */
  3: optional string host = "",
  /** All of this name. */
  4: optional string name = "",
  5: optional bool allWorkers = false,
}

enum CommandOutcome {
  /** The worker gets it with its next report. */
  TAKEN = 0,
  NOT_KNOWN = 1,
  /** It is of a version that knows no commands. */
  TOO_OLD = 2,
  /** The caller may not operate all of its queues. */
  FORBIDDEN = 3,
}

struct CommandedWorker {
  /** Its own, or the text by which one that is not known was named. */
  1: required string id,
  2: required CommandOutcome outcome,
  3: optional string name = "",
  4: optional string host = "",
  5: optional i32 pid = 0,
}

struct CommandWorkersResponse {
  1: required list<CommandedWorker> workers,
  /** They could not be read: more workers may be meant. */
  2: optional list<string> missingShards,
}

/** What becomes of the times of a schedule at which no server was there. */
enum Misfire {
  SKIP = 0,
  /** One job, for the last of them. */
  RUN_ONCE = 1,
  /** A job for each, the last maxCatchUp. */
  RUN_ALL = 2,
}

/**
 * A job that is enqueued again and again. In a change, what is not set stays as it is, or as a new schedule has it: a
 * new one needs queueName, and cron or everyMillis, which take each other's place.
 */
struct Schedule {
  /** 1 to 64 letters, digits, _ - . and :, with none of - . : in front. */
  1: required string name,
  2: optional string queueName,
  3: optional binary body,
  /** Five fields: minute, hour, day of the month, month, day of the week. */
  4: optional string cron,
  /** Of cron, as in Europe/Berlin. */
  5: optional string timezone = "UTC",
  /** 1,000 or more, counted from startMillis, else from when it was made. */
  6: optional i64 everyMillis,
  7: optional i32 priority = 1,
  8: optional i32 numAttemptsAllowed = 2,
  /** "": none. */
  9: optional string serializeKey = "",
  10: optional Misfire misfire = Misfire.RUN_ONCE,
  11: optional i32 maxCatchUp = 10,
  /** Each job is handed out so much after its time at most. */
  12: optional i64 jitterMillis = 0,
  /** No time before it counts; 0: none. */
  13: optional i64 startMillis = 0,
  /** No time from it on counts; 0: none. */
  14: optional i64 endMillis = 0,
  15: optional bool paused = false,
  /** The program that made it and keeps it; "" for people. */
  16: optional string madeBy = "",
  /** Of each of its jobs, as PinLaterJob.tags; an empty list: none. */
  17: optional list<string> tags,
  /** Of each of its jobs, as PinLaterJob.group; "": none. */
  18: optional string group,
}

struct ScheduleView {
  /** Whole, but for the body where it was not asked for. */
  1: required Schedule schedule,
  2: optional string version,
  3: optional i64 createdAtMillis,
  4: optional i64 updatedAtMillis,
  5: optional string updatedBy,
  6: optional i64 lastFiredMillis,
  /** The next firings; of a paused one, those that it would have. */
  7: optional list<i64> nextMillis,
  /** Why it does not fire as it should. */
  8: optional string trouble,
  9: optional i32 bodySize,
}

struct UpdateScheduleRequest {
  1: required Schedule schedule,
  2: required string password,
  /** Check it and answer with what it would be, its next firings too; change nothing. */
  3: optional bool dryRun = false,
  /** Only where this is its version; "": only where it is not there. Else an error whose reason is CHANGED. */
  4: optional string onlyIfVersion,
}

struct UpdateScheduleResponse {
  1: required ScheduleView view,
  /** False: it was as it is to be already. */
  2: optional bool isChanged,
  3: optional list<string> missedShards,
}

struct GetSchedulesRequest {
  /** Those that are there of these; not set: all that match. */
  1: optional list<string> names,
  2: optional string queueName,
  /** Those that this program made. */
  3: optional string madeBy,
  4: optional bool includeBody = false,
  /** How many of the next firings of each, at most 100. */
  5: optional i32 nextLimit = 1,
  /** At most 1,000. */
  6: optional i32 limit = 100,
  7: optional string continuation = CONTINUATION_START,
}

struct GetSchedulesResponse {
  /** By name. */
  1: required list<ScheduleView> schedules,
  2: optional string continuation = CONTINUATION_END,
}

struct DeleteScheduleRequest {
  1: required string name,
  2: required string password,
  /** As in UpdateScheduleRequest. */
  3: optional string onlyIfVersion,
}

/** What makes the items of a stage out of an item of its parent that has succeeded. */
enum AppletKind {
  /** One, whose payload is {"payload": ..., "result": ...} of the parent. */
  PASS = 0,
  /** Those that a JMESPath expression makes of that. */
  MAP = 1,
  /** Those that the result is, which is a list. */
  LIST = 2,
  /** Those that a job of the workers returns. */
  JOB = 3,
}

enum OnFailure {
  GO_ON = 0,
  STOP_STAGE = 1,
  STOP_FLOW = 2,
}

enum FlowState {
  RUNNING = 0,
  COMPLETE = 1,
  CANCELLED = 2,
}

enum ItemState {
  PENDING = 0,
  SUCCEEDED = 1,
  FAILED = 2,
}

/** What became of a claim of one item. */
enum AssignOutcome {
  CLAIMED = 0,
  /** Its retry is yet to come. */
  NOT_DUE = 1,
  /** An older item of its serializeKey has not ended, or older ones fill the queue. */
  BEHIND = 2,
  IN_PROGRESS = 3,
  ENDED = 4,
  NOT_FOUND = 5,
  /** Its queue is paused, or at its rate. */
  LIMITED = 6,
  /** Its group is at its maximum in progress, or at its rate. */
  GROUP_LIMITED = 7,
}

struct FlowApplet {
  1: optional AppletKind kind = AppletKind.PASS,
  /** Of MAP. */
  2: optional string expression = "",
  /** Of JOB: a type of job, and its queue. */
  3: optional string job = "",
  4: optional string queueName = "",
}

/** One kind of work of a flow. */
struct FlowStage {
  /** 1 to 200 letters, digits, ., _ and -. */
  1: required string name,
  /** The type of job that workers know; "": the body is the payload itself. */
  2: optional string job = "",
  3: required string queueName,
  /** The name of the stage before; "": it begins the flow. */
  4: optional string parentStage = "",
  5: optional FlowApplet applet,
  /** 0 to 99. An item may fail so often and is tried again. */
  6: optional i32 maxFailures = 0,
  /** Before the first retry; twice as long each time, up to maxBackoffMillis. */
  7: optional i64 backoffMillis = 1000,
  8: optional i64 maxBackoffMillis = 3600000,
  /** Its results are those of the flow. */
  9: optional bool isFinal = false,
  /** It is sealed by a call, and not when its parent is complete. */
  10: optional bool keepsOpen = false,
  11: optional i32 priority = 1,
  /** Of the jobs of its items: up to 10, by which jobs are found. */
  12: optional list<string> tags,
  /** Makes the groups of the jobs of its items: a text with fields of the payload, as in {tenant}; "": none. */
  13: optional string group = "",
}

/** What is called when a flow is over: a job of this type on a queue, or a POST to a URL. */
struct CompletionCallback {
  1: optional string queueName = "",
  2: optional string job = "",
  3: optional string url = "",
}

struct NewFlowItem {
  /** JSON, up to 64 KiB. */
  1: required binary payload,
  /** No second item of this key comes into the stage; "": none. */
  2: optional string dedupeKey = "",
  /** Items of one key, of all flows, are handed out one at a time, in order; "": none. */
  3: optional string serializeKey = "",
}

struct NewStageItems {
  1: required string stage,
  2: required list<NewFlowItem> items,
}

struct CreateFlowRequest {
  1: required string name,
  2: required list<FlowStage> stages,
  /** While a flow of this name and key is kept, no second one is made; "": none. */
  3: optional string dedupeKey = "",
  4: optional map<string, string> metadata,
  5: optional CompletionCallback onComplete,
  6: optional OnFailure onFailure = OnFailure.GO_ON,
  /** So long it is kept after its end. */
  7: optional i64 ttlMillis = 604800000,
  8: optional list<NewStageItems> items,
  /** The stages that are sealed behind these items. */
  9: optional list<string> sealed,
}

struct CreateFlowResponse {
  1: required string id,
  /** False: one that the caller may fill was there already, and nothing has changed. */
  2: required bool isNew,
}

struct AddFlowItemsRequest {
  1: required string flowId,
  2: required string stage,
  /** At most 1,000. */
  3: required list<NewFlowItem> items,
  /** No more come after these. */
  4: optional bool seal = false,
}

struct AddFlowItemsResponse {
  /** Of each item, in order. */
  1: required list<i64> numbers,
}

struct SealStageRequest {
  1: required string flowId,
  /** "": all that have no parent. */
  2: optional string stage = "",
}

struct FlowIdRequest {
  1: required string flowId,
}

struct GetFlowRequest {
  1: required string flowId,
  /** Answer when it is over, or after this time. */
  2: optional i64 waitMillis = 0,
}

struct StageStatus {
  1: required FlowStage stage,
  2: required i64 items,
  3: required i64 pending,
  /** Of the pending ones: in their queue, or with a worker. */
  4: required i64 queued,
  5: required i64 succeeded,
  6: required i64 failed,
  /** Items whose children could not be made. */
  7: required i64 appletErrors,
  8: required bool isSealed,
}

struct CallbackStatus {
  1: required string id,
  2: required i32 tries,
  3: optional string error = "",
  4: optional i64 nextMillis,
  /** When it was made, or given up. */
  5: optional i64 doneMillis,
}

struct FlowStatus {
  1: required string id,
  2: required string name,
  3: required FlowState state,
  4: optional string dedupeKey = "",
  5: optional map<string, string> metadata,
  /** Parents first. */
  6: required list<StageStatus> stages,
  7: required i64 createdMillis,
  8: optional i64 completedMillis,
  9: optional OnFailure onFailure = OnFailure.GO_ON,
  10: optional CompletionCallback onComplete,
  11: optional CallbackStatus callback,
  /** What keeps it from going on, and what to do. */
  12: optional list<string> troubles,
  /** How often it was over: the number of its latest end. */
  13: optional i32 ends = 0,
  /** Nothing of it is pending, and children that could not be made keep it open. */
  14: optional bool isStuck = false,
}

struct GetFlowsRequest {
  1: optional string name = "",
  2: optional string dedupeKey = "",
  3: optional FlowState state,
  4: optional string continuation = CONTINUATION_START,
  /** At most 1,000. */
  5: optional i32 limit = 100,
}

struct GetFlowsResponse {
  /** The newest first. */
  1: required list<FlowStatus> flows,
  2: optional string continuation = CONTINUATION_END,
}

struct GetFlowItemsRequest {
  1: required string flowId,
  2: optional string stage = "",
  3: optional ItemState state,
  4: optional string dedupeKey = "",
  5: optional list<i64> numbers,
  /** Else payloads, results and reasons are empty. */
  6: optional bool includeBody = true,
  7: optional string continuation = CONTINUATION_START,
  /** At most 1,000. */
  8: optional i32 limit = 100,
}

struct ItemFailure {
  1: required i32 attempt,
  2: required i64 atMillis,
  3: required string worker,
  4: required string reason,
}

struct FlowItem {
  /** Names it in the whole cluster. */
  1: required i64 number,
  2: required string flowId,
  3: required string stage,
  4: required ItemState state,
  5: required binary payload,
  6: optional binary result,
  7: required list<ItemFailure> failures,
  8: optional string dedupeKey = "",
  9: optional string serializeKey = "",
  10: optional i64 retryAtMillis,
  11: required i64 addedMillis,
  12: optional i64 endedMillis,
  /** The descriptor of its job; "" while it waits in the database. */
  13: optional string job = "",
  14: optional string appletError = "",
}

struct GetFlowItemsResponse {
  /** By number. */
  1: required list<FlowItem> items,
  2: optional string continuation = CONTINUATION_END,
}

struct ResumeFlowRequest {
  1: required string flowId,
  2: optional string stage = "",
  /** In place of the one of this stage; "": as it is. */
  3: optional string expression = "",
}

struct RetryFlowItemsRequest {
  1: required string flowId,
  /** At most 1,000. */
  2: optional list<i64> numbers,
  /** With failed: of this stage alone. */
  3: optional string stage = "",
  /** In place of numbers: all that have failed. */
  4: optional bool failed = false,
  /** What had followed from them is removed first, and stages that were stopped go on. */
  5: optional bool andFollows = false,
}

struct RefusedItems {
  1: required string reason,
  2: required i64 count,
  /** Of the first ones, where they are known. */
  3: optional list<i64> numbers,
}

struct RetryFlowItemsResponse {
  1: required FlowStatus flow,
  2: required i64 retried,
  3: required i64 removed,
  4: optional list<RefusedItems> refused,
}

struct AssignItemRequest {
  1: required i64 number,
  2: optional i64 claimTimeoutMillis,
}

struct AssignItemResponse {
  1: required AssignOutcome outcome,
  /** Of the job, with CLAIMED alone: it ends as any claim does. */
  2: optional string jobDescriptor = "",
  3: optional string claimDescriptor = "",
  4: optional binary payload,
  /** When the claim expires, if it is not renewed. */
  5: optional i64 expiresAtMillis,
}

struct UpdateTokenRequest {
  /** 1 to 100 characters of a-z A-Z 0-9 . _ - */
  1: required string name,
  /** The SHA-256 of the token, as 64 hexadecimal digits: the token itself stays with who made it. */
  2: required string tokenHash,
  3: required list<string> roles,
  4: required string password,
  /** After that it is refused; not set: it has no end. */
  5: optional i64 expiresAtMillis,
  /** Also where a token of this name is there, which is refused from then on. */
  6: optional bool replace = false,
}

struct TokenView {
  1: required string name,
  2: required list<string> roles,
  3: optional string madeBy,
  4: optional i64 madeAtMillis,
  5: optional i64 expiresAtMillis,
  /** To within ten minutes; not set: it was not used yet. */
  6: optional i64 lastUsedAtMillis,
}

struct GetTokensResponse {
  1: required list<TokenView> tokens,
}

struct DeleteTokenRequest {
  1: required string name,
  2: required string password,
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

struct IdentityUsage {
  1: required string identity,
  2: required list<StoredCount> stored,
}

struct GetUsageResponse {
  1: required list<IdentityUsage> identities,
}

enum HoldReason {
  UNKNOWN = 0,
  SHARD_OUT = 1,
  /** Its time is still to come. */
  NOT_DUE = 2,
  /** Another job of its serialize key is before it, or one of its dedupe key runs. */
  BEHIND_JOB = 3,
  PAUSED = 4,
  MAX_IN_PROGRESS = 5,
  NO_WORKER = 6,
  RATE_LIMITED = 7,
  /** Nothing holds it back: workers take jobs, and its turn comes. */
  IN_LINE = 8,
}

/** Why a job does not run, with a sentence for people. */
struct JobHold {
  1: required string jobDescriptor,
  2: required HoldReason reason,
  3: required string text,
  /** When that ends, where it is known. */
  4: optional i64 untilMillis,
  /** The job that is to end first. */
  5: optional string behind,
  /** About how many jobs of its queue run before it. */
  6: optional i64 jobsBefore,
}

struct ExplainJobsRequest {
  /** At most 100. */
  1: required list<string> jobDescriptors,
}

/** In the order of the request; jobs that are not pending are left out. */
struct ExplainJobsResponse {
  1: required list<JobHold> holds,
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

/** How bad an alarm is, the worst first. */
enum AlarmSeverity {
  CRITICAL = 0,
  WARNING = 1,
  INFO = 2,
}

struct GetAlarmsRequest {
  /** Those that ended in place of those that stand, the latest first. */
  1: optional bool ended = false,
  2: optional i32 limit = 200,
}

/** What is wrong as well because of the alarm that absorbed it. */
struct AbsorbedAlarm {
  1: required string name,
  2: required string title,
  3: optional string queueName,
}

/** A condition that holds of one subject: a queue, a shard, a server process; "" is the cluster. */
struct Alarm {
  1: required string name,
  2: required string subject,
  3: required AlarmSeverity severity,
  4: required string title,
  5: required i64 sinceMillis,
  6: optional string queueName,
  /** How much it is now, in what the title counts, and the most that it was. */
  7: optional i64 size,
  8: optional i64 peak,
  9: optional string why,
  /** Of jobs of all queues: "" for who may not read them. */
  10: optional string impact,
  /** The error of the jobs: "" for callers that may not see bodies. */
  11: optional string error,
  12: optional string action,
  13: optional string command,
  /** The page of the dashboard where its cause is. */
  14: optional string path,
  15: optional list<AbsorbedAlarm> absorbed,
  16: optional i64 endedMillis,
  17: optional i64 mutedUntilMillis,
  18: optional string mutedBy,
  19: optional string mutedWhy,
}

struct GetAlarmsResponse {
  1: required i64 nowMillis,
  /** The worst first. */
  2: required list<Alarm> alarms,
  /** The server process that judged, as SERVER/PROCESS, and when it did so last. */
  3: optional string judgedBy,
  4: optional i64 judgedAtMillis,
  /** No shard can be reached: a server judged by what it knows itself. */
  5: optional bool isAlone = false,
  /** Alarms that are too many to be listed. */
  6: optional i64 more,
}

struct MuteAlarmRequest {
  /** The condition. */
  1: required string name,
  /** Of one subject; "": of all. */
  2: optional string subject = "",
  /** So long from now; 0 ends a mute. */
  3: required i64 forMillis,
  4: optional string reason = "",
  5: optional string password = "",
}

service PinLater {
  void createQueue(1: RequestContext context, 2: string name) throws (1: PinLaterException e),

  void deleteQueue(1: RequestContext context, 2: string name, 3: string password) throws (1: PinLaterException e),

  PinLaterEnqueueResponse enqueueJobs(1: RequestContext context, 2: PinLaterEnqueueRequest request)
      throws (1: PinLaterException e),

  PinLaterDequeueResponse dequeueJobs(1: RequestContext context, 2: PinLaterDequeueRequest request)
      throws (1: PinLaterException e),

  /** As dequeueJobs, from whichever of the queues has jobs; each queue's limits are those of a plain dequeue. */
  DequeueFromQueuesResponse dequeueFromQueues(1: RequestContext context, 2: DequeueFromQueuesRequest request)
      throws (1: PinLaterException e),

  void ackDequeuedJobs(1: RequestContext context, 2: PinLaterJobAckRequest request) throws (1: PinLaterException e),

  /** As ackDequeuedJobs, and answers what became of each ack. */
  AckJobsResponse ackJobs(1: RequestContext context, 2: PinLaterJobAckRequest request)
      throws (1: PinLaterException e),

  void checkpointJobs(1: RequestContext context, 2: PinLaterCheckpointJobsRequest request)
      throws (1: PinLaterException e),

  map<string, PinLaterJobInfo> lookupJobs(1: RequestContext context, 2: PinLaterLookupJobRequest request)
      throws (1: PinLaterException e),

  i32 getJobCount(1: RequestContext context, 2: PinLaterGetJobCountRequest request) throws (1: PinLaterException e),

  set<string> getQueueNames(1: RequestContext context) throws (1: PinLaterException e),

  PinLaterScanJobsResponse scanJobs(1: RequestContext context, 2: PinLaterScanJobsRequest request)
      throws (1: PinLaterException e),

  i32 retryFailedJobs(1: RequestContext context, 2: PinLaterRetryFailedJobsRequest request)
      throws (1: PinLaterException e),

  i32 deleteJobs(1: RequestContext context, 2: PinLaterDeleteJobsRequest request) throws (1: PinLaterException e),

  CancelJobsResponse cancelJobs(1: RequestContext context, 2: CancelJobsRequest request)
      throws (1: PinLaterException e),

  /** Gives PENDING jobs another time, body or number of attempts. */
  RescheduleJobsResponse rescheduleJobs(1: RequestContext context, 2: RescheduleJobsRequest request)
      throws (1: PinLaterException e),

  /** Keeps claims alive, says which are lost and which jobs are to stop. */
  HeartbeatJobsResponse heartbeatJobs(1: RequestContext context, 2: HeartbeatJobsRequest request)
      throws (1: PinLaterException e),

  GetQueuesResponse getQueues(1: RequestContext context, 2: GetQueuesRequest request)
      throws (1: PinLaterException e),

  ChangeResponse updateQueue(1: RequestContext context, 2: UpdateQueueRequest request)
      throws (1: PinLaterException e),

  /** Groups of a queue: their ready jobs, weights, limits and pauses. */
  GetGroupsResponse getGroups(1: RequestContext context, 2: GetGroupsRequest request)
      throws (1: PinLaterException e),

  ChangeResponse updateGroup(1: RequestContext context, 2: UpdateGroupRequest request)
      throws (1: PinLaterException e),

  /** One step of taking the groups off all jobs of a queue. */
  ClearGroupsResponse clearGroups(1: RequestContext context, 2: ClearGroupsRequest request)
      throws (1: PinLaterException e),

  ChangeResponse updateShard(1: RequestContext context, 2: UpdateShardRequest request)
      throws (1: PinLaterException e),

  ClusterStatus getClusterStatus(1: RequestContext context, 2: GetClusterStatusRequest request)
      throws (1: PinLaterException e),

  ChangeJobsResponse changeJobs(1: RequestContext context, 2: ChangeJobsRequest request)
      throws (1: PinLaterException e),

  SearchJobsResponse searchJobs(1: RequestContext context, 2: SearchJobsRequest request)
      throws (1: PinLaterException e),

  ChangeJobsResponse changeFoundJobs(1: RequestContext context, 2: ChangeFoundJobsRequest request)
      throws (1: PinLaterException e),

  GetAuditResponse getAudit(1: RequestContext context, 2: GetAuditRequest request)
      throws (1: PinLaterException e),

  GetWorkersResponse getWorkers(1: RequestContext context, 2: GetWorkersRequest request)
      throws (1: PinLaterException e),

  /** The tiers of bodies, and the rules; empty where there are none. */
  BodyTiers getBodyTiers(1: RequestContext context) throws (1: PinLaterException e),

  /** One step of a run over bodies; to be called again with the continuation it gives. */
  ChangeBodiesResponse changeBodies(1: RequestContext context, 2: ChangeBodiesRequest request)
      throws (1: PinLaterException e),

  /** Makes or changes a schedule. */
  UpdateScheduleResponse updateSchedule(1: RequestContext context, 2: UpdateScheduleRequest request)
      throws (1: PinLaterException e),

  GetSchedulesResponse getSchedules(1: RequestContext context, 2: GetSchedulesRequest request)
      throws (1: PinLaterException e),

  /** One that is not there is no error; the version is "" then. */
  ChangeResponse deleteSchedule(1: RequestContext context, 2: DeleteScheduleRequest request)
      throws (1: PinLaterException e),

  /** Makes a token known. One of that name that is there already is a REQUEST_INVALID. */
  ChangeResponse updateToken(1: RequestContext context, 2: UpdateTokenRequest request)
      throws (1: PinLaterException e),

  GetTokensResponse getTokens(1: RequestContext context) throws (1: PinLaterException e),

  /** Revokes a token, everywhere within two seconds. One that is not there is no error; the version is "" then. */
  ChangeResponse deleteToken(1: RequestContext context, 2: DeleteTokenRequest request)
      throws (1: PinLaterException e),

  /** The caller's identity and rights. Needs nothing. */
  AccessView getAccess(1: RequestContext context) throws (1: PinLaterException e),

  /** What identities have made: up to 1,000 of them, those first that are nearest to a bound. */
  GetUsageResponse getUsage(1: RequestContext context) throws (1: PinLaterException e),

  /** Makes a flow, whole. With a dedupeKey sending again is safe. */
  CreateFlowResponse createFlow(1: RequestContext context, 2: CreateFlowRequest request)
      throws (1: PinLaterException e),

  /** All or none. */
  AddFlowItemsResponse addFlowItems(1: RequestContext context, 2: AddFlowItemsRequest request)
      throws (1: PinLaterException e),

  /** No more items come; once more is nothing. */
  void sealStage(1: RequestContext context, 2: SealStageRequest request) throws (1: PinLaterException e),

  FlowStatus getFlow(1: RequestContext context, 2: GetFlowRequest request) throws (1: PinLaterException e),

  GetFlowsResponse getFlows(1: RequestContext context, 2: GetFlowsRequest request)
      throws (1: PinLaterException e),

  GetFlowItemsResponse getFlowItems(1: RequestContext context, 2: GetFlowItemsRequest request)
      throws (1: PinLaterException e),

  /** Ends it; items that have not ended fail. Once more is nothing. */
  FlowStatus cancelFlow(1: RequestContext context, 2: FlowIdRequest request) throws (1: PinLaterException e),

  /** Removes it with its items; one that runs is cancelled first. */
  void deleteFlow(1: RequestContext context, 2: FlowIdRequest request) throws (1: PinLaterException e),

  /** Tries again what it is stuck with: children that could not be made, a callback that was given up. */
  FlowStatus resumeFlow(1: RequestContext context, 2: ResumeFlowRequest request) throws (1: PinLaterException e),

  /** Claims the job of this very item, if a dequeue could. */
  AssignItemResponse assignItem(1: RequestContext context, 2: AssignItemRequest request)
      throws (1: PinLaterException e),

  /** Why pending jobs do not run. Of a job whose shard is out it says that, whatever state it is in. */
  ExplainJobsResponse explainJobs(1: RequestContext context, 2: ExplainJobsRequest request)
      throws (1: PinLaterException e),

  /** Tries items again that have ended; a flow that is over opens again. */
  RetryFlowItemsResponse retryFlowItems(1: RequestContext context, 2: RetryFlowItemsRequest request)
      throws (1: PinLaterException e),

  /** What is broken, since when, why, and what to do: of the queues that the caller may read. */
  GetAlarmsResponse getAlarms(1: RequestContext context, 2: GetAlarmsRequest request)
      throws (1: PinLaterException e),

  /** An alarm that is known is shown as such until a time. */
  void muteAlarm(1: RequestContext context, 2: MuteAlarmRequest request) throws (1: PinLaterException e),

  /** What workers are to do: each hears it with its next report. */
  CommandWorkersResponse commandWorkers(1: RequestContext context, 2: CommandWorkersRequest request)
      throws (1: PinLaterException e),
}
