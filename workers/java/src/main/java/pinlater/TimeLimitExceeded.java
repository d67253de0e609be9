package pinlater;

import java.math.BigDecimal;
import java.time.Duration;

/** An attempt ran for longer than its type's time limit: what its {@link RetryPolicy} is asked about. */
public final class TimeLimitExceeded extends Exception {
    private static final long serialVersionUID = 1L;
    private static final int MILLIS = 3;

    /** {@code where}: where its handler stood. */
    TimeLimitExceeded(Duration limit, StackTraceElement[] where) {
        super("it ran longer than " + seconds(limit) + " s");
        setStackTrace(where);
    }

    private static String seconds(Duration limit) {
        return BigDecimal.valueOf(limit.toMillis(), MILLIS).stripTrailingZeros().toPlainString();
    }
}
