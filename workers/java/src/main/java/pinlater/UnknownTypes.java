package pinlater;

import com.pinterest.pinlater.thrift.UnknownType;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Jobs that this worker cannot run: when each comes back, and which types it met of late.
 *
 * <p>A job comes back after a quarter of the time since it was met first, within bounds: so a worker that knows it gets it
 * soon after a deploy, and many such jobs cost little.
 */
final class UnknownTypes {
    // Those of workers/pinlater_workers: --unknown-delay, its bound, and how long a type is reported.
    private static final long FIRST_DELAY_MS = 10_000;
    private static final long LONGEST_DELAY_MS = 600_000;
    private static final long REPORTED_NANOS = TimeUnit.MINUTES.toNanos(15);
    private static final int REMEMBERED = 10_000;
    private static final int MOST_REPORTED = 100;

    private record Key(String queue, String type) {}

    private static final class Met {
        long jobs;
        long lastNanos;
    }

    private final Map<String, Long> since = bounded(REMEMBERED);
    private final Map<Key, Met> types = bounded(MOST_REPORTED);

    /** How long the job stays away; its first time is to be logged where {@link #isFirst}. {@code type} null: raw. */
    synchronized long meet(Job job, String type) {
        long nowNanos = System.nanoTime();
        Long before = since.putIfAbsent(job.descriptor(), nowNanos);
        Met met = types.computeIfAbsent(new Key(job.queue(), type), key -> new Met());
        met.lastNanos = nowNanos;
        met.jobs += before == null ? 1 : 0;
        long waitedMs = before == null ? 0 : TimeUnit.NANOSECONDS.toMillis(nowNanos - before);
        return Math.min(Math.max(waitedMs / 4, FIRST_DELAY_MS), LONGEST_DELAY_MS);
    }

    /** Whether this worker has not met the job before. */
    synchronized boolean isFirst(Job job) {
        return !since.containsKey(job.descriptor());
    }

    synchronized List<UnknownType> report() {
        long nowNanos = System.nanoTime();
        types.values().removeIf(each -> nowNanos - each.lastNanos > REPORTED_NANOS);
        return types.entrySet().stream()
                .map(each -> new UnknownType(each.getKey().queue())
                        .setJobType(each.getKey().type())
                        .setJobs(each.getValue().jobs)
                        .setLastMillis(TimeUnit.NANOSECONDS.toMillis(nowNanos - each.getValue().lastNanos)))
                .toList();
    }

    private static <K, V> Map<K, V> bounded(int most) {
        return new LinkedHashMap<>() {
            private static final long serialVersionUID = 1L;

            @Override
            protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
                return size() > most;
            }
        };
    }
}
