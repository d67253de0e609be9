/**
 * The wire contract of PinLater.
 *
 * Fields with ids below 100 are the classic interface: their names, ids, types and defaults never change. What this
 * server adds has ids from 100 on and is always optional, so that an older client never sees a difference.
 * docs/wire.md says what each call does. Times are milliseconds since the Unix epoch.
 */

namespace java com.pinterest.pinlater.thrift
namespace py pinlater_thrift

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
}

/** Continuations are strings; these two mark the first page and the end. */
const string CONTINUATION_START = "0"
const string CONTINUATION_END = "-1"

exception PinLaterException {
  1: required ErrorCode errorCode,
  2: required string message,
  /** A stable word for programs, such as REQUEST_INVALID or OUTCOME_UNKNOWN. */
  100: optional string reason,
  /** Whether the same call may be sent again. */
  101: optional bool retryable,
  102: optional i64 retryAfterMillis,
  /** Whether the acks that rode on a refused dequeue were carried out. */
  103: optional bool acksApplied,
}

struct RequestContext {
  /** Who calls; the last part of the claims made for this caller. */
  1: required string source,
  2: optional string requestId = "",
}

struct PinLaterJob {
  1: required binary body,
  /** 1 is the highest. */
  2: optional byte priority = 1,
  /** Never executed earlier; now where it is not set. */
  3: optional i64 runAfterTimestampMillis,
  4: optional i32 numAttemptsAllowed = 2,
  5: optional string customStatus = "",
  // 100 dedupeKey, 101 serializeKey and 102 claimTimeoutMillis are reserved.
}

struct PinLaterEnqueueRequest {
  1: required string queueName,
  2: required list<PinLaterJob> jobs,
}

struct PinLaterEnqueueResponse {
  /** In the order of the jobs. */
  1: required list<string> jobDescriptors,
}

struct PinLaterJobAckInfo {
  1: required string jobDescriptor,
  2: optional string appendCustomStatus = "",
  /** For failures: how long to wait before the next attempt. */
  3: optional i64 retryDelayMillis = 0,
  /** Where given, only the holder of this claim can ack. */
  100: optional string claimDescriptor,
  /** With a failure: no retry, straight to FAILED. */
  101: optional bool permanent = false,
}

struct PinLaterJobAckRequest {
  1: required string queueName,
  2: optional list<PinLaterJobAckInfo> jobsSucceeded,
  3: optional list<PinLaterJobAckInfo> jobsFailed,
}

struct PinLaterDequeueRequest {
  1: required string queueName,
  2: required i32 limit,
  /** Carried out before the dequeue. */
  3: optional PinLaterJobAckRequest jobAckRequest,
  /** Hands out jobs without claiming them. */
  4: optional bool dryRun = false,
  /** The share of the shards to look at, 0.0 to 1.0; at least one shard. */
  5: optional double coverage = 1.0,
  /** Long poll: answer as soon as there is a job, at most so much later; cut at 60,000. */
  100: optional i32 waitMillis = 0,
  /** This claim's own time-out; cut to the queue's bound. */
  101: optional i32 claimTimeoutMillis,
  /** Release the claims when this connection breaks and no checkpoint comes within a grace. */
  102: optional bool releaseOnDisconnect = false,
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
}

struct PinLaterLookupJobRequest {
  1: required list<string> jobDescriptors,
  2: optional bool includeBody = false,
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
}

struct CancelJobsResponse {
  1: required map<string, CancelOutcome> outcomes,
}

service PinLater {
  void createQueue(1: RequestContext context, 2: string name) throws (1: PinLaterException e),

  void deleteQueue(1: RequestContext context, 2: string name, 3: string password) throws (1: PinLaterException e),

  PinLaterEnqueueResponse enqueueJobs(1: RequestContext context, 2: PinLaterEnqueueRequest request)
      throws (1: PinLaterException e),

  PinLaterDequeueResponse dequeueJobs(1: RequestContext context, 2: PinLaterDequeueRequest request)
      throws (1: PinLaterException e),

  void ackDequeuedJobs(1: RequestContext context, 2: PinLaterJobAckRequest request) throws (1: PinLaterException e),

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
}
