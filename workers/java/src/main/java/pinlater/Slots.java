package pinlater;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** The slots of a worker, a thread each, and the jobs at hand that wait for one: by arrival, priority and time. */
final class Slots {
    /** The order in which jobs at hand begin. The turn counts first, else the jobs of a late queue would wait for ever. */
    private record Place(long turn, int priority, long runAfterMs, long number, Job job) {}

    private static final Comparator<Place> ORDER = Comparator.comparingLong(Place::turn)
            .thenComparingInt(Place::priority)
            .thenComparingLong(Place::runAfterMs)
            .thenComparingLong(Place::number);

    private final int slots;
    private final ThreadPoolExecutor threads;
    private final Consumer<Job> run;
    private final Runnable changed;
    private final TreeSet<Place> atHand = new TreeSet<>(ORDER);
    private final List<Job> running = new ArrayList<>();
    private long turn;
    private long number;

    /** {@code run} runs a job in a thread of a slot; {@code changed} is called whenever a slot is free again. */
    Slots(int slots, Consumer<Job> run, Runnable changed) {
        this.slots = slots;
        this.run = run;
        this.changed = changed;
        threads = new ThreadPoolExecutor(
                slots, slots, 60, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), Threads.named("pinlater-slot"));
        threads.allowCoreThreadTimeOut(true);
    }

    /** The jobs of one dequeue: they begin, or wait at hand. */
    void add(Collection<Job> jobs) {
        synchronized (this) {
            turn++;
            for (Job job : jobs) {
                atHand.add(new Place(turn, job.priority, job.runAfterMs, number++, job));
            }
        }
        jobs.forEach(job -> threads.execute(this::runNext));
    }

    private void runNext() {
        Job job = begin();
        if (job == null) { // it was taken away meanwhile: its slot is free
            changed.run();
            return;
        }
        try {
            run.accept(job);
        } finally {
            synchronized (this) {
                running.remove(job);
            }
            changed.run();
        }
    }

    private synchronized Job begin() {
        Place first = atHand.pollFirst();
        if (first != null) {
            running.add(first.job());
        }
        return first == null ? null : first.job();
    }

    /** How many slots have no job, those at hand counted; below 0: so many jobs wait. */
    synchronized int free() {
        return slots - running.size() - atHand.size();
    }

    synchronized int atHandCount() {
        return atHand.size();
    }

    synchronized Map<String, Integer> atHandByQueue() {
        Map<String, Integer> counts = new HashMap<>();
        atHand.forEach(place -> counts.merge(place.job().queue(), 1, Integer::sum));
        return counts;
    }

    /** Those that run, the longest first. */
    synchronized List<Job> running() {
        return new ArrayList<>(running);
    }

    /** Takes a job away that has not begun; whether it was there. */
    synchronized boolean discard(Job job) {
        return atHand.removeIf(place -> place.job() == job);
    }

    synchronized List<Job> takeAll() {
        List<Job> left = atHand.stream().map(Place::job).toList();
        atHand.clear();
        return left;
    }

    /**
     * Takes jobs away that have waited for so long, but for the next {@code soon}, whose turn comes in a moment; those go
     * when they have waited twice as long.
     */
    synchronized List<Job> takeLate(long waitNanos, int soon) {
        long nowNanos = System.nanoTime();
        List<Place> late = new ArrayList<>();
        int index = 0;
        for (Place place : atHand) {
            long waitedNanos = nowNanos - place.job().arrivedNanos;
            if (waitedNanos > 2 * waitNanos || waitedNanos > waitNanos && index >= soon) {
                late.add(place);
            }
            index++;
        }
        late.forEach(atHand::remove);
        return late.stream().map(Place::job).toList();
    }

    void close() {
        threads.shutdown();
    }
}
