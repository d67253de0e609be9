package pinlater;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** What happened in a worker, in order, as texts such as "begun mail:s1:p1:17 1" and "ended mail:s1:p1:17 SUCCEEDED". */
final class Events implements WorkerListener {
    private static final long WITHIN_S = 60;

    private final List<String> events = new ArrayList<>();

    private synchronized void add(String event) {
        events.add(event);
        notifyAll();
    }

    synchronized List<String> all() {
        return List.copyOf(events);
    }

    long count(String event) {
        return all().stream().filter(event::equals).count();
    }

    /** Fails where it does not come. */
    synchronized void await(String event) throws InterruptedException {
        long endNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_S);
        while (!events.contains(event)) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
            if (leftMs <= 0) {
                throw new AssertionError("no " + event + " in " + events);
            }
            wait(leftMs);
        }
    }

    /** Fails where it does not come to pass. */
    static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long endNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(WITHIN_S);
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > endNanos) {
                throw new AssertionError("it did not come to pass: " + what);
            }
            Thread.sleep(20);
        }
    }

    @Override
    public void started() {
        add("started");
    }

    @Override
    public void begun(Job job) {
        add("begun " + job.descriptor() + " " + job.attempt());
    }

    @Override
    public void ended(Job job, Outcome outcome, Duration took) {
        add("ended " + job.descriptor() + " " + outcome);
    }

    @Override
    public void stopped(Job job, StopReason reason) {
        add("stopped " + job.descriptor() + " " + reason);
    }

    @Override
    public void unknown(String queue, String type) {
        add("unknown " + queue + " " + type);
    }

    @Override
    public void draining() {
        add("draining");
    }

    @Override
    public void ended() {
        add("ended");
    }
}
