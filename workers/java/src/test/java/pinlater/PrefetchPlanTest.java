package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.pinterest.pinlater.thrift.PinLaterDequeueMetadata;
import java.util.Map;
import org.junit.jupiter.api.Test;

final class PrefetchPlanTest {
    private static final int SLOTS = 4;
    private static final long WAIT_MS = 50;

    private final PrefetchPlan plan = new PrefetchPlan(Map.of("mail", 1), SLOTS, WAIT_MS);

    private static Job job(int attempts) {
        PinLaterDequeueMetadata metadata =
                new PinLaterDequeueMetadata().setAttemptsAllowed(attempts).setAttemptsRemaining(attempts);
        return new Job("mail:s1:p1:1", new byte[0], metadata, null);
    }

    private void ended(int jobs, double tookMs) {
        plan.took(job(11));
        for (int number = 0; number < jobs; number++) {
            plan.ended("mail", tookMs);
        }
    }

    @Test
    void aQueueBeginsWithNone() {
        assertEquals(Map.of(), plan.next(Map.of()));
    }

    @Test
    void asManyAsTheSlotsBeginInHalfOfTheWait() {
        ended(1_000, 1.0);
        assertEquals(Map.of("mail", 100), plan.next(Map.of()));
        assertEquals(Map.of("mail", 60), plan.next(Map.of("mail", 40)));
    }

    @Test
    void noMoreThanHaveEnded() {
        ended(3, 0.001);
        assertEquals(Map.of("mail", 3), plan.next(Map.of()));
    }

    @Test
    void noneForSlowJobs() {
        ended(1_000, 1_000.0);
        assertEquals(Map.of(), plan.next(Map.of()));
    }

    @Test
    void noneWhereAJobHasASingleAttempt() {
        ended(1_000, 1.0);
        plan.took(job(1));
        assertEquals(Map.of(), plan.next(Map.of()));
    }

    @Test
    void aQueueWhoseJobsWereHandedBackBeginsAnew() {
        ended(1_000, 1.0);
        plan.handedBack("mail");
        assertEquals(Map.of(), plan.next(Map.of()));
    }

    @Test
    void moreAreWantedWhenHalfHaveBegun() {
        ended(1_000, 1.0);
        plan.next(Map.of());
        assertFalse(plan.wantsMore(51));
        assertTrue(plan.wantsMore(50));
        plan.ranDry();
        assertFalse(plan.wantsMore(1));
    }

    @Test
    void noneWithoutAWait() {
        PrefetchPlan none = new PrefetchPlan(Map.of("mail", 1), SLOTS, 0);
        none.took(job(11));
        none.ended("mail", 0.1);
        assertFalse(none.wantsMore(0));
        assertEquals(Map.of(), none.next(Map.of()));
    }
}
