package pinlater;

import com.pinterest.pinlater.thrift.JobHeartbeat;
import com.pinterest.pinlater.thrift.PinLaterDequeueMetadata;
import com.pinterest.pinlater.thrift.PinLaterLogLine;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/** A job that a worker has claimed, as its handler sees it. Thread-safe. */
public final class Job {
    /** How far it is here. */
    enum Phase {
        AT_HAND,
        RUNNING,
        SETTLING,
        GONE
    }

    /** As many lines as a job's log keeps. */
    private static final int MOST_LINES = 100;

    final String claim;
    final long runAfterMs;
    final int priority;
    final Envelope envelope;
    final long arrivedNanos = System.nanoTime();
    private final String descriptor;
    private final byte[] body;
    private final int attemptsAllowed;
    private final int attemptsRemaining;
    private final long enqueuedAtMs;
    private final CompletableFuture<StopReason> stopped = new CompletableFuture<>();

    // Of the heartbeats, which guard them.
    long goodNanos = arrivedNanos;
    long beatNanos;

    private Phase phase = Phase.AT_HAND;
    private Thread thread;
    private long begunNanos;
    private StopReason reason;
    private boolean abandoned;
    private String cancelledBy = "";
    private Runnable newsListener = () -> {};
    private double fraction = Double.NaN;
    private String text;
    private boolean hasProgress;
    private final List<PinLaterLogLine> lines = new ArrayList<>();

    /** {@code envelope} null: a raw body, or one that cannot be read. */
    Job(String descriptor, byte[] body, PinLaterDequeueMetadata metadata, Envelope envelope) {
        this.descriptor = descriptor;
        this.body = body;
        this.envelope = envelope;
        claim = metadata.getClaimDescriptor();
        attemptsAllowed = metadata.getAttemptsAllowed();
        attemptsRemaining = metadata.getAttemptsRemaining();
        runAfterMs = metadata.getRunAfterMillis();
        enqueuedAtMs = metadata.getEnqueuedAtMillis();
        priority = metadata.getPriority();
    }

    /** Names the job, at every server. */
    public String descriptor() {
        return descriptor;
    }

    /** The queue that it came from. */
    public String queue() {
        return queueOf(descriptor);
    }

    static String queueOf(String descriptor) {
        return descriptor.substring(0, Math.max(0, descriptor.indexOf(':')));
    }

    /** The type of job; null for a raw one. */
    public String name() {
        return envelope == null ? null : envelope.job();
    }

    /** The whole body. */
    public byte[] body() {
        return body.clone();
    }

    /** The arguments by position: values of JSON, where numbers are Long, BigInteger or Double. */
    public List<Object> args() {
        return envelope == null ? List.of() : envelope.args();
    }

    /** The arguments by name: values of JSON, where numbers are Long, BigInteger or Double. */
    public Map<String, Object> kwargs() {
        return envelope == null ? Map.of() : envelope.kwargs();
    }

    /**
     * The text argument of this name.
     *
     * @throws IllegalArgumentException if there is none, which fails the attempt
     */
    public String text(String argument) {
        return argument(argument, String.class);
    }

    /**
     * The whole number argument of this name.
     *
     * @throws IllegalArgumentException if there is none, which fails the attempt
     */
    public long number(String argument) {
        return argument(argument, Long.class);
    }

    private <T> T argument(String argument, Class<T> type) {
        Object value = kwargs().get(argument);
        if (!type.isInstance(value)) {
            String found = value == null ? "nothing" : "a " + value.getClass().getSimpleName();
            String wanted = type == Long.class ? "a whole number" : "a text";
            throw new IllegalArgumentException("argument " + argument + " is " + found + "; " + name() + " takes " + wanted);
        }
        return type.cast(value);
    }

    /** What travels with the job, such as {@code traceparent}. */
    public Map<String, String> headers() {
        return envelope == null ? Map.of() : envelope.headers();
    }

    /** The number of this attempt, 1 for the first. */
    public int attempt() {
        return Math.max(1, attemptsAllowed - attemptsRemaining + 1);
    }

    /** How often the server lets it be tried in all. */
    public int attemptsAllowed() {
        return attemptsAllowed;
    }

    /** How often it was put off without an attempt spent. */
    public int snoozes() {
        return envelope == null ? 0 : envelope.snoozes();
    }

    /** When it was enqueued, by the server's clock. */
    public Instant enqueuedAt() {
        return Instant.ofEpochMilli(enqueuedAtMs);
    }

    /** Why it is to stop; empty while it is not. */
    public synchronized Optional<StopReason> stopReason() {
        return Optional.ofNullable(reason);
    }

    /** Completes when the job is to stop, for handlers that do not wait in a way that an interrupt ends. */
    public CompletableFuture<StopReason> whenStopped() {
        return stopped.copy();
    }

    /**
     * Reports how far the job is, with its next heartbeat: at most once a second.
     *
     * @param fraction 0.0 to 1.0
     * @param text for people; cut at 200 characters
     */
    public void progress(double fraction, String text) {
        synchronized (this) {
            this.fraction = fraction;
            this.text = text;
            hasProgress = true;
        }
        newsListener.run();
    }

    /** Adds a line to the job's log at the server, which keeps the last 100; cut at 1,024 bytes. */
    public void log(String line) {
        synchronized (this) {
            if (lines.size() == MOST_LINES) {
                lines.remove(0);
            }
            lines.add(new PinLaterLogLine().setAtMillis(System.currentTimeMillis()).setAttempt(attempt()).setText(line));
        }
        newsListener.run();
    }

    // -- for the worker --------------------------------------------------------------------------------------------

    synchronized Phase phase() {
        return phase;
    }

    /** The thread that runs it is this one from now on. False: it has been taken away. */
    synchronized boolean begin(Runnable newsListener) {
        if (phase != Phase.AT_HAND) {
            return false;
        }
        phase = Phase.RUNNING;
        thread = Thread.currentThread();
        begunNanos = System.nanoTime();
        this.newsListener = newsListener;
        return true;
    }

    /** What becomes of it is known, by whoever gets true: nobody else reports it. */
    synchronized boolean settle() {
        if (phase == Phase.SETTLING || phase == Phase.GONE) {
            return false;
        }
        phase = Phase.SETTLING;
        return true;
    }

    /** As {@link #settle}, while its handler may still run, which is told why. */
    boolean settle(StopReason why) {
        synchronized (this) {
            if (!settle()) {
                return false;
            }
            tell(why);
        }
        stopped.completeAsync(() -> why);
        return true;
    }

    /** Somebody asks that it stops. False: it was told so already, or it has ended. */
    boolean cancel(String by) {
        synchronized (this) {
            if (reason != null || phase != Phase.RUNNING) {
                return false;
            }
            cancelledBy = by;
            tell(StopReason.CANCELLED);
        }
        stopped.completeAsync(() -> StopReason.CANCELLED); // what hangs on it does not run in a thread of the worker
        return true;
    }

    private void tell(StopReason why) {
        reason = why;
        if (thread != null) {
            thread.interrupt();
        }
    }

    synchronized String cancelledBy() {
        return cancelledBy;
    }

    /** The handler has returned: no interrupt comes to this thread any more. */
    synchronized void left() {
        thread = null;
        Thread.interrupted();
    }

    /** Where its handler stands. */
    synchronized StackTraceElement[] stack() {
        return thread == null ? new StackTraceElement[0] : thread.getStackTrace();
    }

    /** What became of it is known while its handler still runs: nobody waits for that any more. */
    synchronized void abandon() {
        abandoned = true;
    }

    synchronized boolean isAbandoned() {
        return abandoned;
    }

    /** The server has what became of it, or nobody wants it. */
    synchronized void gone() {
        phase = Phase.GONE;
    }

    synchronized long begunNanos() {
        return begunNanos;
    }

    synchronized boolean hasNews() {
        return hasProgress || !lines.isEmpty();
    }

    synchronized JobHeartbeat heartbeat() {
        JobHeartbeat beat = new JobHeartbeat(descriptor, claim);
        if (hasProgress) {
            hasProgress = false;
            if (!Double.isNaN(fraction)) {
                beat.setFraction(fraction);
            }
            beat.setText(text);
        }
        if (!lines.isEmpty()) {
            beat.setLogLines(new ArrayList<>(lines));
            lines.clear();
        }
        return beat;
    }

    /** The heartbeat failed: what it said is said again. A line that arrived twice is kept once. */
    synchronized void notSaid(JobHeartbeat beat) {
        hasProgress |= beat.isSetText() || beat.isSetFraction();
        if (beat.isSetLogLines()) {
            lines.addAll(0, beat.getLogLines());
        }
    }

    @Override
    public String toString() {
        return name() + " " + descriptor;
    }
}
