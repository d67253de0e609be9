package pinlater;

import java.time.Duration;

/** What a handler throws to say what becomes of its job: {@link Fail}, {@link RetryAfter} or {@link Snooze}. */
public abstract sealed class JobSignal extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private JobSignal(String message, Throwable cause) {
        super(message, cause);
    }

    /** FAILED, whatever attempts are left. */
    public static final class Fail extends JobSignal {
        private static final long serialVersionUID = 1L;

        /** {@code message} is what an operator reads in the job's status. */
        public Fail(String message) {
            super(message, null);
        }

        /** {@code message} is what an operator reads in the job's status; {@code cause} what led to it. */
        public Fail(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** This attempt failed, and the next one comes after exactly this delay, if one is left. */
    public static final class RetryAfter extends JobSignal {
        private static final long serialVersionUID = 1L;
        final Duration delay;

        /** The delay until the next attempt. */
        public RetryAfter(Duration delay) {
            this(delay, "again in " + delay, null);
        }

        /** The delay until the next attempt, and what an operator reads of this one. */
        public RetryAfter(Duration delay, String message, Throwable cause) {
            super(message, cause);
            this.delay = delay;
        }
    }

    /**
     * Not now: the job comes back after this delay, and no attempt is spent. The 101st time it fails. A raw body has no
     * place for the count, so a raw job spends an attempt.
     */
    public static final class Snooze extends JobSignal {
        private static final long serialVersionUID = 1L;
        final Duration delay;

        /** The delay until the job comes back. */
        public Snooze(Duration delay) {
            super("snoozed for " + delay, null);
            this.delay = delay;
        }
    }
}
