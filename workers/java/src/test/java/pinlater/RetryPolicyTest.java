package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

final class RetryPolicyTest {
    private static final Exception ERROR = new Exception();

    /** docs/workers-retries.md, the first row of the table. */
    private static final List<Integer> STANDARD_S = List.of(10, 20, 30, 40, 50, 100, 200, 400, 800, 1600);

    @Test
    void theStandardOneHasTheDelaysOfPython() {
        RetryPolicy policy = RetryPolicy.standard();
        assertEquals(STANDARD_S.size(), policy.retries());
        for (int attempt = 1; attempt <= STANDARD_S.size(); attempt++) {
            assertAround(STANDARD_S.get(attempt - 1) * 1000L, policy.delays().apply(attempt, ERROR));
        }
    }

    @Test
    void noDelayIsLongerThanTheCap() {
        assertTrue(RetryPolicy.standard().delays().apply(1_000_000, ERROR).compareTo(Duration.ofHours(1)) <= 0);
    }

    @Test
    void othersGrowAsTheySay() {
        assertAround(8_000, RetryPolicy.exponential(Duration.ofSeconds(1), 2, 9).delays().apply(4, ERROR));
        assertAround(30_000, RetryPolicy.constant(Duration.ofSeconds(30), 9).delays().apply(4, ERROR));
        assertNull(RetryPolicy.never().delays().apply(1, ERROR));
    }

    private static void assertAround(long millis, Duration delay) {
        assertTrue(Math.abs(delay.toMillis() - millis) <= millis / 10 + 1, delay + " is not around " + millis + " ms");
    }
}
