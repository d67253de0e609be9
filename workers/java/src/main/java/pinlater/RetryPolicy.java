package pinlater;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BiFunction;

/**
 * When a failed attempt is tried again. The figures are those of the Python framework (docs/workers-retries.md).
 *
 * @param retries so many at most, unless the job was enqueued with another number of attempts
 * @param delays the delay after an attempt (1 for the first) that failed with an error; null: no retry
 */
public record RetryPolicy(int retries, BiFunction<Integer, Throwable, Duration> delays) {
    private static final int RETRIES = 10;
    private static final int LINEAR = 5;
    private static final Duration STEP = Duration.ofSeconds(10);
    private static final Duration CAP = Duration.ofHours(1);
    private static final double JITTER = 0.1;

    /** Checks that there is a rule. */
    public RetryPolicy {
        Objects.requireNonNull(delays, "delays");
    }

    /** Ten retries: five linear (10 s to 50 s), then twice as long each time, up to 1 h; 54 minutes in all. */
    public static RetryPolicy standard() {
        return new RetryPolicy(RETRIES, (attempt, error) -> attempt <= LINEAR
                ? jittered(STEP.multipliedBy(attempt), CAP)
                : grown(STEP.multipliedBy(LINEAR), 2, attempt - LINEAR));
    }

    /** The same delay each time, with a jitter of 10 %. */
    public static RetryPolicy constant(Duration delay, int retries) {
        return new RetryPolicy(retries, (attempt, error) -> jittered(delay, delay.multipliedBy(2)));
    }

    /** A first delay, then {@code factor} times the one before, up to 1 h; with a jitter of 10 %. */
    public static RetryPolicy exponential(Duration first, double factor, int retries) {
        return new RetryPolicy(retries, (attempt, error) -> grown(first, factor, attempt - 1));
    }

    /** No retry: the first failure is final. */
    public static RetryPolicy never() {
        return new RetryPolicy(0, (attempt, error) -> null);
    }

    private static Duration grown(Duration first, double factor, int times) {
        double millis = first.toMillis() * Math.pow(factor, times);
        return jittered(millis < CAP.toMillis() ? Duration.ofMillis((long) millis) : CAP, CAP);
    }

    private static Duration jittered(Duration delay, Duration cap) {
        double share = 1 + JITTER * (2 * ThreadLocalRandom.current().nextDouble() - 1);
        long millis = (long) (delay.toMillis() * share);
        return Duration.ofMillis(Math.min(millis, cap.toMillis()));
    }
}
