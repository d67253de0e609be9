package pinlater;

import com.pinterest.pinlater.thrift.HeartbeatJobsRequest;
import com.pinterest.pinlater.thrift.HeartbeatJobsResponse;
import com.pinterest.pinlater.thrift.HeartbeatOutcome;
import com.pinterest.pinlater.thrift.JobHeartbeat;
import com.pinterest.pinlater.thrift.WorkerCommand;
import com.pinterest.pinlater.thrift.WorkerReport;
import java.lang.System.Logger.Level;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Keeps the claims of a worker alive, over a connection of its own that they are bound to; brings LOST and CANCEL, and the
 * report for the list of workers.
 */
final class Heartbeats implements Runnable {
    /** What heartbeats bring. Called in the thread of the heartbeats. */
    interface Owner {
        /** Null: nothing to report yet. */
        WorkerReport report();

        void cancelled(Job job, String by);

        void lost(Job job);

        void commanded(WorkerCommand command);
    }

    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    // Those of workers/pinlater_workers/heartbeat/beats.py and reports.py.
    private static final int CLAIMS_PER_CALL = 1_000;
    private static final long LONGEST_INTERVAL_MS = 10_000;
    private static final long LONGEST_MARGIN_MS = 2_000;
    private static final long LONGEST_RETRY_MS = 1_000;
    private static final long FIRST_BEAT_MS = 1_000;
    private static final long PROGRESS_EVERY_MS = 1_000;
    private static final long REPORT_MS = 10_000;
    private static final long REPORT_RETRY_MS = 2_000;
    private static final long CALL_TIMEOUT_MS = 5_000;

    /** A connection that the other side has closed is noticed within so long: within the grace of bound claims. */
    private static final long PROBE_MS = 500;

    private final Calls calls;
    private final Owner owner;
    private final String queue;
    private final long intervalMs;
    private final long firstMs;
    private final long heldNanos;
    private final long retryMs;
    private final long timeoutMs;
    private final Set<Job> held = new LinkedHashSet<>();
    private long reportNanos = System.nanoTime();
    private long progressNanos = System.nanoTime() - nanos(PROGRESS_EVERY_MS);
    private long commandNumber;
    private boolean woken;
    private boolean closed;

    /** {@code queue}: one of the worker's, for a report that goes by itself. */
    Heartbeats(Cluster cluster, String queue, long leaseMs, Owner owner) {
        this.calls = new Calls(cluster, this::beatAll);
        this.owner = owner;
        this.queue = queue;
        intervalMs = Math.min(leaseMs / 3, LONGEST_INTERVAL_MS);
        firstMs = Math.min(FIRST_BEAT_MS, leaseMs / 6);
        retryMs = Math.min(LONGEST_RETRY_MS, intervalMs / 4);
        heldNanos = nanos(leaseMs - Math.min(LONGEST_MARGIN_MS, leaseMs / 8));
        timeoutMs = Math.min(CALL_TIMEOUT_MS, leaseMs / 3);
    }

    synchronized void hold(Collection<Job> jobs) {
        for (Job job : jobs) {
            job.beatNanos = job.goodNanos + nanos(firstMs);
            held.add(job);
        }
        notifyAll(); // while nothing is held, it waits for the next report
    }

    /** The server has what became of it, or nobody wants it. */
    void forget(Job job) {
        job.gone();
        synchronized (this) {
            held.remove(job);
        }
    }

    /** A connection is gone, or about to go, that claims may be bound to: all are beaten at once. */
    synchronized void beatAll() {
        long nowNanos = System.nanoTime();
        held.forEach(job -> job.beatNanos = Math.min(job.beatNanos, nowNanos));
        wake();
    }

    /** A report is due at once. */
    synchronized void reportNow() {
        reportNanos = System.nanoTime();
        wake();
    }

    synchronized void wake() {
        woken = true;
        notifyAll();
    }

    synchronized long goodMsAgo(Job job) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - job.goodNanos);
    }

    @Override
    public void run() {
        try {
            while (waitForWork()) {
                try {
                    if (isHolding()) {
                        calls.probe();
                    }
                    takeLost().forEach(owner::lost);
                    beatDue();
                } catch (RuntimeException fault) { // none is known; but without this thread all claims would be lost
                    LOG.log(Level.ERROR, "heartbeats failed, and are tried again", fault);
                    Calls.pause(retryMs);
                }
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            calls.close();
        }
    }

    /** Sends the last report, and ends. */
    void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
            notifyAll();
        }
        try {
            beat(queue, List.of(), owner.report());
        } catch (CallException error) {
            LOG.log(Level.DEBUG, "no server has the last report of this worker: {0}", error.getMessage());
        }
        calls.close();
    }

    private synchronized boolean isHolding() {
        return !held.isEmpty();
    }

    private synchronized boolean waitForWork() throws InterruptedException {
        if (!woken && !closed) {
            long untilNanos = Math.min(reportNanos, System.nanoTime() + nanos(held.isEmpty() ? REPORT_MS : PROBE_MS));
            for (Job job : held) {
                untilNanos = Math.min(untilNanos, dueNanos(job));
            }
            long leftMs = TimeUnit.NANOSECONDS.toMillis(untilNanos - System.nanoTime());
            wait(Math.max(1, leftMs));
        }
        woken = false;
        return !closed;
    }

    private long dueNanos(Job job) {
        return job.hasNews() ? Math.min(job.beatNanos, progressNanos + nanos(PROGRESS_EVERY_MS)) : job.beatNanos;
    }

    /** Claims without a good beat for so long that they may have expired. */
    private synchronized List<Job> takeLost() {
        long nowNanos = System.nanoTime();
        List<Job> lost = new ArrayList<>();
        for (Job job : held) {
            // Of one that has ended here nothing is lost yet: its result is sent until a server answers.
            if (nowNanos - job.goodNanos > heldNanos && job.phase() != Job.Phase.SETTLING) {
                lost.add(job);
            }
        }
        return lost;
    }

    private void beatDue() {
        long nowNanos = System.nanoTime();
        boolean reports = nowNanos >= reportNanos;
        Map<String, List<Job>> due = takeDue(nowNanos);
        WorkerReport report = reports ? owner.report() : null;
        if (due.isEmpty() && report != null) {
            due.put(queue, List.of());
        }
        for (Map.Entry<String, List<Job>> each : due.entrySet()) {
            List<Job> jobs = each.getValue();
            for (int start = 0; start == 0 || start < jobs.size(); start += CLAIMS_PER_CALL) {
                List<Job> part = jobs.subList(start, Math.min(jobs.size(), start + CLAIMS_PER_CALL));
                beatPart(each.getKey(), part, report);
                report = null;
            }
        }
    }

    /** By queue. Where any are due, also those that are soon. */
    private synchronized Map<String, List<Job>> takeDue(long nowNanos) {
        Map<String, List<Job>> due = new LinkedHashMap<>();
        boolean any = false;
        for (Job job : held) {
            any |= dueNanos(job) <= nowNanos;
        }
        if (any) {
            progressNanos = nowNanos;
            for (Job job : held) {
                if (job.beatNanos <= nowNanos + nanos(intervalMs / 2) || job.hasNews()) {
                    job.beatNanos = nowNanos + nanos(intervalMs);
                    due.computeIfAbsent(job.queue(), name -> new ArrayList<>()).add(job);
                }
            }
        }
        return due;
    }

    private void beatPart(String queueName, List<Job> jobs, WorkerReport report) {
        long begunNanos = System.nanoTime();
        List<JobHeartbeat> beats = jobs.stream().map(Job::heartbeat).toList();
        try {
            HeartbeatJobsResponse answer = beat(queueName, beats, report);
            if (report != null) {
                reported(begunNanos + nanos(REPORT_MS), begunNanos);
            }
            for (int number = 0; number < jobs.size(); number++) {
                note(jobs.get(number), beats.get(number), answer, number, begunNanos);
            }
            command(answer);
        } catch (CallException error) {
            LOG.log(Level.DEBUG, "a heartbeat failed: {0}", error.getMessage());
            if (report != null) {
                reported(System.nanoTime() + nanos(REPORT_RETRY_MS), begunNanos);
            }
            for (int number = 0; number < jobs.size(); number++) {
                failed(jobs.get(number), beats.get(number));
            }
        }
    }

    private HeartbeatJobsResponse beat(String queueName, List<JobHeartbeat> beats, WorkerReport report) {
        HeartbeatJobsRequest request = new HeartbeatJobsRequest(queueName, beats).setWorker(report);
        return calls.once(timeoutMs, (client, context) -> client.heartbeatJobs(context, request));
    }

    private synchronized void reported(long nextNanos, long begunNanos) {
        if (reportNanos <= begunNanos) { // else another one was asked for meanwhile
            reportNanos = nextNanos;
        }
    }

    private void note(Job job, JobHeartbeat beat, HeartbeatJobsResponse answer, int number, long begunNanos) {
        HeartbeatOutcome outcome = answer.getOutcomes().get(number);
        if (outcome == HeartbeatOutcome.UNREACHABLE) {
            failed(job, beat);
        } else if (outcome == HeartbeatOutcome.LOST) {
            if (job.phase() != Job.Phase.SETTLING && job.phase() != Job.Phase.GONE) { // else it is its own ack that it met
                owner.lost(job);
            }
        } else {
            synchronized (this) {
                job.goodNanos = Math.max(job.goodNanos, begunNanos);
            }
            if (outcome == HeartbeatOutcome.CANCEL) {
                Map<String, String> by = answer.getCancelledBy();
                owner.cancelled(job, by == null ? "" : by.getOrDefault(job.descriptor(), ""));
            }
        }
    }

    private void failed(Job job, JobHeartbeat beat) {
        job.notSaid(beat);
        synchronized (this) {
            job.beatNanos = Math.min(job.beatNanos, System.nanoTime() + nanos(retryMs));
        }
    }

    /** Each command is carried out once, and none that is older than the last. */
    private void command(HeartbeatJobsResponse answer) {
        if (answer.isSetCommand() && answer.getCommandNumber() > commandNumber) {
            commandNumber = answer.getCommandNumber();
            owner.commanded(answer.getCommand());
        }
    }

    private static long nanos(long millis) {
        return TimeUnit.MILLISECONDS.toNanos(millis);
    }
}
