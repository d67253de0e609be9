package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.pinterest.pinlater.thrift.PinLaterDequeueMetadata;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

final class SlotsTest {
    private static Job job(int id) {
        return new Job("mail:s1:p1:" + id, new byte[0], new PinLaterDequeueMetadata(), null);
    }

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void aJobThatIsTakenAwayLeavesAFreeSlotThatIsToldOf() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        AtomicInteger changes = new AtomicInteger();
        Slots slots = new Slots(1, job -> {
            begun.countDown();
            awaitQuietly(release);
        }, changes::incrementAndGet);
        Job late = job(2);
        slots.add(List.of(job(1), late));
        begun.await();
        assertEquals(-1, slots.free());
        assertEquals(List.of(late), slots.takeAll());
        release.countDown();
        Events.until("both are told of", () -> changes.get() == 2);
        assertEquals(1, slots.free());
        slots.close();
    }
}
