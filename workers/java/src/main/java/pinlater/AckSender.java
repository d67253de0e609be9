package pinlater;

import com.pinterest.pinlater.thrift.AckOutcome;
import com.pinterest.pinlater.thrift.PinLaterCheckpointJobsRequest;
import com.pinterest.pinlater.thrift.PinLaterJobAckInfo;
import com.pinterest.pinlater.thrift.PinLaterJobAckRequest;
import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import com.pinterest.pinlater.thrift.PinLaterLookupJobRequest;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.Consumer;

/**
 * Sends what became of jobs, until a server has it or the claim has surely expired. One call is under way at a time; what
 * comes meanwhile travels in the next one. Claims are kept alive until then.
 */
final class AckSender implements Runnable {
    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    // Those of workers/pinlater_workers/worker/ack_sender.py, ack_batches.py and claims.py.
    private static final long CALL_TIMEOUT_MS = 5_000;
    private static final int MOST = 1_000;
    private static final int MOST_BYTES = 1 << 16;
    private static final long TOLERANCE_MS = 5_000;
    private static final long FIRST_PAUSE_MS = 100;

    private final Calls calls;
    private final Heartbeats heartbeats;
    private final long leaseMs;
    private final Consumer<Job> ignored;
    private final BiFunction<Job, String, Settlement> decide;
    private final List<Settlement> waiting = new ArrayList<>();
    private int underWay;
    private boolean closed;

    /** {@code decide}: of a job of an unknown type, by its status. */
    AckSender(
            Cluster cluster,
            Heartbeats heartbeats,
            long leaseMs,
            Consumer<Job> ignored,
            BiFunction<Job, String, Settlement> decide) {
        this.decide = decide;
        this.calls = new Calls(cluster, () -> {});
        this.heartbeats = heartbeats;
        this.leaseMs = leaseMs;
        this.ignored = ignored;
    }

    synchronized void put(Settlement settlement) {
        settlement.dueNanos = System.nanoTime();
        waiting.add(settlement);
        notifyAll();
    }

    /** Waits until servers have all of it, or that time is over; then sends nothing any more. */
    synchronized void close(long withinMs) throws InterruptedException {
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(withinMs);
        long leftMs = withinMs;
        while (!waiting.isEmpty() || underWay > 0) {
            if (leftMs <= 0) {
                LOG.log(Level.ERROR, "the worker ends with {0} results that no server took; those jobs run again",
                        waiting.size() + underWay);
                break;
            }
            wait(leftMs);
            leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
        }
        closed = true;
        notifyAll();
        calls.close();
    }

    @Override
    public void run() {
        try {
            for (List<Settlement> due; (due = take()) != null; ) {
                Map<String, List<Settlement>> groups = new LinkedHashMap<>();
                due.forEach(each -> groups.computeIfAbsent(each.group(), group -> new ArrayList<>()).add(each));
                groups.values().forEach(this::sendAll);
                sent(due.size());
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void sent(int count) {
        underWay -= count;
        notifyAll();
    }

    /** Those whose time has come; null: closed. */
    private synchronized List<Settlement> take() throws InterruptedException {
        while (!closed) {
            long nowNanos = System.nanoTime();
            List<Settlement> due = new ArrayList<>();
            long nextNanos = Long.MAX_VALUE;
            for (Settlement each : waiting) {
                if (each.dueNanos - nowNanos <= 0) {
                    due.add(each);
                } else {
                    nextNanos = Math.min(nextNanos, each.dueNanos - nowNanos);
                }
            }
            if (!due.isEmpty()) {
                waiting.removeIf(each -> each.dueNanos - nowNanos <= 0);
                underWay += due.size();
                return due;
            }
            wait(nextNanos == Long.MAX_VALUE ? 0 : TimeUnit.NANOSECONDS.toMillis(nextNanos) + 1);
        }
        return null;
    }

    private void sendAll(List<Settlement> group) {
        int start = 0;
        while (start < group.size()) {
            int end = start;
            for (int bytes = 0; end < group.size() && end - start < MOST; end++) {
                byte[] payload = group.get(end).payload;
                bytes += payload == null ? 0 : payload.length;
                if (bytes > MOST_BYTES && end > start) {
                    break;
                }
            }
            List<Settlement> batch = group.subList(start, end);
            try {
                send(batch);
            } catch (RuntimeException fault) { // none is known; but without this thread no result would leave any more
                LOG.log(Level.ERROR, "results cannot be sent, and are tried again", fault);
                CallException error = new CallException(CallException.PROTOCOL_ERROR, fault.toString(), true, fault);
                batch.forEach(each -> again(each, error));
            }
            start = end;
        }
    }

    private void send(List<Settlement> batch) {
        try {
            if (batch.get(0).kind == Settlement.Kind.UNKNOWN) {
                decide(batch);
                return;
            }
            List<AckOutcome> outcomes = call(batch);
            for (int number = 0; number < batch.size(); number++) {
                done(batch.get(number), outcomes.isEmpty() ? AckOutcome.UNKNOWN : outcomes.get(number));
            }
        } catch (CallException error) {
            boolean refused = error.reason().equals("REQUEST_INVALID") || error.reason().equals("BODY_TOO_LARGE");
            if (!refused) {
                batch.forEach(each -> again(each, error));
            } else if (batch.size() > 1) { // one of them is the cause; the others may have been carried out
                int middle = batch.size() / 2;
                batch.forEach(each -> each.failures++);
                send(batch.subList(0, middle));
                send(batch.subList(middle, batch.size()));
            } else {
                refused(batch.get(0), error);
            }
        }
    }

    /** A dequeue brings no statuses, so they are asked for. */
    private void decide(List<Settlement> batch) {
        PinLaterLookupJobRequest request =
                new PinLaterLookupJobRequest(batch.stream().map(each -> each.job.descriptor()).toList());
        Map<String, PinLaterJobInfo> found =
                calls.once(CALL_TIMEOUT_MS, (client, context) -> client.lookupJobs(context, request));
        for (Settlement each : batch) {
            PinLaterJobInfo info = found.get(each.job.descriptor());
            String status = info == null || info.getCustomStatus() == null ? "" : info.getCustomStatus();
            put(decide.apply(each.job, status));
        }
    }

    /** The outcomes in the order of the batch; none for requeues. */
    private List<AckOutcome> call(List<Settlement> batch) {
        String queue = batch.get(0).job.queue();
        if (batch.get(0).kind == Settlement.Kind.REQUEUE) {
            PinLaterCheckpointJobsRequest request = new PinLaterCheckpointJobsRequest(
                    queue, batch.stream().map(Settlement::requeue).toList());
            return calls.once(CALL_TIMEOUT_MS, (client, context) -> {
                client.checkpointJobs(context, request);
                return List.of();
            });
        }
        List<PinLaterJobAckInfo> succeeded = new ArrayList<>();
        List<PinLaterJobAckInfo> failed = new ArrayList<>();
        batch.forEach(each -> (each.kind == Settlement.Kind.SUCCEED ? succeeded : failed).add(each.ack()));
        PinLaterJobAckRequest request =
                new PinLaterJobAckRequest(queue).setJobsSucceeded(succeeded).setJobsFailed(failed);
        List<AckOutcome> outcomes =
                calls.once(CALL_TIMEOUT_MS, (client, context) -> client.ackJobs(context, request)).getOutcomes();
        int nextSuccess = 0;
        int nextFailure = succeeded.size(); // the successes come first
        List<AckOutcome> inOrder = new ArrayList<>();
        for (Settlement each : batch) {
            inOrder.add(outcomes.get(each.kind == Settlement.Kind.SUCCEED ? nextSuccess++ : nextFailure++));
        }
        return inOrder;
    }

    private void done(Settlement settlement, AckOutcome outcome) {
        heartbeats.forget(settlement.job);
        if (outcome == AckOutcome.IGNORED && settlement.failures == 0) {
            LOG.log(Level.WARNING, "the result of job {0} had no effect: its claim had ended", settlement.job);
            ignored.accept(settlement.job);
        }
    }

    private void again(Settlement settlement, CallException error) {
        Job job = settlement.job;
        if (settlement.failures > 0 && heartbeats.goodMsAgo(job) > leaseMs + TOLERANCE_MS) {
            LOG.log(Level.WARNING, "no server took the result of job {0} while its claim held; it may run again", job);
            heartbeats.forget(job);
            return;
        }
        if (settlement.failures == 0) {
            LOG.log(Level.DEBUG, "the result of job {0} is sent again: {1}", job, error.getMessage());
        }
        settlement.failures++;
        long pauseMs = Calls.pauseMs(settlement.failures) + FIRST_PAUSE_MS / 2;
        synchronized (this) {
            settlement.dueNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(pauseMs);
            waiting.add(settlement);
        }
    }

    private void refused(Settlement settlement, CallException error) {
        Job job = settlement.job;
        if (settlement.payload == null) {
            LOG.log(Level.ERROR, "the result of job {0} is refused; it runs again when its claim expires: {1}", job,
                    error.getMessage());
            heartbeats.forget(job);
            return;
        }
        LOG.log(Level.ERROR, "the result of job {0} is refused; it has failed: {1}", job, error.getMessage());
        put(Settlement.fail(job, FailureText.line(job, error, null)));
    }
}
