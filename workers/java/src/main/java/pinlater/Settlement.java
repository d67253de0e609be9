package pinlater;

import com.pinterest.pinlater.thrift.JobHeartbeat;
import com.pinterest.pinlater.thrift.JobProgress;
import com.pinterest.pinlater.thrift.PinLaterCheckpointJobRequest;
import com.pinterest.pinlater.thrift.PinLaterJobAckInfo;

/** What became of a job, on its way to the server: an ack, or a requeue that spends no attempt. */
final class Settlement {
    /** The calls that report it. */
    enum Kind {
        SUCCEED,
        RETRY,
        FAIL,
        REQUEUE,
        /** Of a job of an unknown type: its status decides what it is. */
        UNKNOWN
    }

    final Job job;
    final Kind kind;
    final byte[] payload;
    private final String status;
    private final long delayMs;
    private final long runAfterMs;
    private final JobHeartbeat news;

    // Of the sender.
    int failures;
    long dueNanos;

    private Settlement(Job job, Kind kind, String status, long delayMs, byte[] payload) {
        // A moment that stays the same, whenever the call gets through; without a delay its place in the queue stays.
        this(job, kind, status, delayMs, delayMs > 0 ? System.currentTimeMillis() + delayMs : job.runAfterMs, payload);
    }

    private Settlement(Job job, Kind kind, String status, long delayMs, long runAfterMs, byte[] payload) {
        this.job = job;
        this.kind = kind;
        this.status = status;
        this.delayMs = delayMs;
        this.payload = payload;
        this.news = job.heartbeat();
        this.runAfterMs = runAfterMs;
    }

    /** {@code result} null: none. */
    static Settlement succeed(Job job, byte[] result) {
        return new Settlement(job, Kind.SUCCEED, "", 0, result);
    }

    static Settlement retry(Job job, String status, long delayMs) {
        return new Settlement(job, Kind.RETRY, status, delayMs, null);
    }

    /** No attempt follows. */
    static Settlement fail(Job job, String status) {
        return new Settlement(job, Kind.FAIL, status, 0, null);
    }

    /** {@code body} null: as it is. */
    static Settlement requeue(Job job, String status, long delayMs, byte[] body) {
        return new Settlement(job, Kind.REQUEUE, status, delayMs, body);
    }

    static Settlement requeueAt(Job job, String status, long runAfterMs) {
        return new Settlement(job, Kind.REQUEUE, status, 0, runAfterMs, null);
    }

    static Settlement unknown(Job job) {
        return new Settlement(job, Kind.UNKNOWN, "", 0, null);
    }

    PinLaterJobAckInfo ack() {
        PinLaterJobAckInfo ack = new PinLaterJobAckInfo(job.descriptor())
                .setClaimDescriptor(job.claim)
                .setAppendCustomStatus(status)
                .setRetryDelayMillis(delayMs)
                .setPermanent(kind == Kind.FAIL);
        if (payload != null) {
            ack.setResult(payload).setPermanent(true); // one that is too large fails it, and no retry would mend that
        }
        if (news.isSetText() || news.isSetFraction()) {
            JobProgress progress = new JobProgress().setText(news.getText());
            ack.setProgress(news.isSetFraction() ? progress.setFraction(news.getFraction()) : progress);
        }
        return ack.setLogLines(news.getLogLines());
    }

    PinLaterCheckpointJobRequest requeue() {
        PinLaterCheckpointJobRequest request = new PinLaterCheckpointJobRequest(job.descriptor())
                .setClaimDescriptor(job.claim)
                .setMoveToPending(true)
                .setRunAfterTimestampMillis(runAfterMs);
        if (!status.isEmpty()) {
            request.setPrependCustomStatus(status);
        }
        return payload == null ? request : request.setNewBodyBytes(payload);
    }

    /** Those that one call may carry. A shard that is out holds up those that failed once, and no others. */
    String group() {
        String shard = failures == 0 ? "" : job.descriptor().split(":", 3)[1];
        String call = kind == Kind.UNKNOWN ? ":lookup:" : kind == Kind.REQUEUE ? ":requeue:" : ":ack:";
        return job.queue() + call + shard;
    }
}
