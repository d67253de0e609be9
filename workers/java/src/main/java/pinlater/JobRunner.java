package pinlater;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;

/** Runs the handler of a job, and decides by what it returned or threw what becomes of the job. */
final class JobRunner {
    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    /** The handler of a type of job, and what counts for it. {@code timeLimit} null: none. */
    record Type(Handler handler, RetryPolicy retry, Duration timeLimit, boolean keepsResult) {}

    /** What became of a run, and how it is reported. */
    record End(Outcome outcome, Settlement settlement) {}

    private static final int MOST_SNOOZES = 100;
    private static final long UNREPORTED_DELAY_MS = 10_000;

    private final Map<String, Type> types;
    private final Map<String, Type> rawTypes;

    JobRunner(Map<String, Type> types, Map<String, Type> rawTypes) {
        this.types = types;
        this.rawTypes = rawTypes;
    }

    /** Null: this worker does not run such jobs. */
    Type typeOf(Job job) {
        return job.envelope == null ? rawTypes.get(job.queue()) : types.get(job.envelope.job());
    }

    /** Runs it in this thread. Throws nothing. */
    End run(Job job, Type type) {
        Object result = null;
        Throwable error = null;
        byte[] written = null;
        try {
            result = type.handler().run(job);
            if (result instanceof CompletionStage<?> stage) {
                result = stage.toCompletableFuture().get();
            }
            written = keepsResult(job, type) ? Envelope.writtenValue(result) : null;
        } catch (Throwable thrown) { // also a StackOverflowError is no more than a failed attempt
            error = unwrapped(thrown);
        }
        job.left();
        if (error == null) {
            return new End(Outcome.SUCCEEDED, Settlement.succeed(job, written));
        }
        // lost and handed-back jobs, and those over their time limit, were settled by who told them
        return failed(job, type, error, job.stopReason().isPresent());
    }

    /** An attempt that failed with that. Throws nothing. */
    End failed(Job job, Type type, Throwable error, boolean wasCancelled) {
        Duration took = Duration.ofNanos(System.nanoTime() - job.begunNanos());
        try {
            return wasCancelled ? new End(Outcome.CANCELLED, cancelled(job, took)) : decide(job, type, error, took);
        } catch (RuntimeException | StackOverflowError fault) { // such as an exception whose message cannot be had
            LOG.log(Level.ERROR, "what job " + job + " threw cannot be reported; it is tried again", fault);
            String status = "attempt " + job.attempt() + ": " + error.getClass().getName() + "\n";
            return new End(Outcome.RETRY, Settlement.retry(job, status, UNREPORTED_DELAY_MS));
        }
    }

    /** No attempt follows, whatever it threw. {@code took} null: it has not begun. */
    static Settlement cancelled(Job job, Duration took) {
        String by = job.cancelledBy().isEmpty() ? "cancelled" : "cancelled by " + job.cancelledBy();
        return Settlement.fail(job, FailureText.line(job, new CancellationException(by), took));
    }

    private static boolean keepsResult(Job job, Type type) {
        String header = job.headers().get(Envelope.RESULT_HEADER);
        return header == null ? type.keepsResult() : header.equals("1");
    }

    private static Throwable unwrapped(Throwable error) {
        boolean wraps = error instanceof ExecutionException || error instanceof CompletionException;
        return wraps && error.getCause() != null ? error.getCause() : error;
    }

    private End decide(Job job, Type type, Throwable error, Duration took) {
        if (error instanceof JobSignal.Snooze snooze) {
            if (job.envelope == null) {
                return retry(job, error, took, snooze.delay); // nowhere to count: the attempts bound it
            }
            if (job.snoozes() < MOST_SNOOZES) {
                String status = "snooze " + (job.snoozes() + 1) + " of " + MOST_SNOOZES + "\n";
                byte[] body = job.envelope.snoozed().written();
                long delayMs = Math.max(1, snooze.delay.toMillis());
                return new End(Outcome.SNOOZED, Settlement.requeue(job, status, delayMs, body));
            }
            return retry(job, new JobSignal.Fail("put off " + MOST_SNOOZES + " times"), took, null);
        }
        if (error instanceof JobSignal.Fail) {
            return retry(job, error, took, null);
        }
        int allowed = job.envelope != null && job.envelope.attempts() > 0
                ? job.envelope.attempts() : type.retry().retries() + 1;
        if (job.attempt() >= allowed) {
            return retry(job, error, took, null);
        }
        if (error instanceof JobSignal.RetryAfter later) {
            return retry(job, error, took, later.delay);
        }
        return retry(job, error, took, delay(type.retry(), job, error));
    }

    private static Duration delay(RetryPolicy policy, Job job, Throwable error) {
        try {
            return policy.delays().apply(job.attempt(), error);
        } catch (RuntimeException fault) {
            LOG.log(Level.ERROR, "the retry policy of job " + job + " failed; the default one decides", fault);
            return RetryPolicy.standard().delays().apply(job.attempt(), error);
        }
    }

    /** A failed attempt; {@code delay} null: none follows. */
    private static End retry(Job job, Throwable error, Duration took, Duration delay) {
        String line = FailureText.line(job, error, took);
        boolean isLast = delay == null || job.attempt() >= job.attemptsAllowed();
        String again = isLast ? "no attempt follows" : "again in " + delay.toMillis() / 1000.0 + " s";
        LOG.log(Level.WARNING, "{0} failed, {1}: {2}", job, again, line.strip());
        String status = isLast ? line + FailureText.trace(error) : line;
        Settlement settlement =
                delay == null ? Settlement.fail(job, status) : Settlement.retry(job, status, delay.toMillis());
        return new End(isLast ? Outcome.FAILED : Outcome.RETRY, settlement);
    }
}
