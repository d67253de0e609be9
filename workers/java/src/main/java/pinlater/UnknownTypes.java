package pinlater;

import java.lang.System.Logger.Level;
import java.time.Instant;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.format.DateTimeParseException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Jobs that this worker cannot run: requeued without an attempt spent, ever less often, and failed after a time.
 *
 * <p>The first line of such a job's status says since when, and is all that is kept: it is read and written as by
 * workers/pinlater_workers/worker/unknown_jobs.py, so that it counts for all workers together.
 */
final class UnknownTypes {
    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    private static final long LONGEST_ROUND_MS = 600_000;
    private static final int ROUNDS_PER_WAIT = 4; // a round is a quarter of the time before it
    private static final long REPORTED_NANOS = TimeUnit.MINUTES.toNanos(15);
    private static final int MOST_REPORTED = 100;
    private static final int MOST_NAME_CHARS = 100;
    private static final Pattern LINE = Pattern.compile(
            "^not run: .* since (\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z) "
                    + "\\(.*; looked for again after (\\S+), later less often",
            Pattern.MULTILINE);
    private static final Pattern DURATION_PART = Pattern.compile("(\\d{1,12})(d|h|ms|m|s)");
    private static final Map<String, Long> UNIT_MS = unitMs();
    private static final DateTimeFormatter TIME =
            new DateTimeFormatterBuilder().appendInstant(3).toFormatter();

    /** What a status says: since when nobody here could run the job, and the first round. */
    record FirstSeen(long sinceMs, long firstMs) {
        /** Of the newest line that says so: it stands in front. Null: none does. */
        static FirstSeen of(String status) {
            Matcher line = LINE.matcher(status);
            if (!line.find()) {
                return null;
            }
            long firstMs = DURATION_PART.matcher(line.group(2)).results()
                    .mapToLong(part -> Long.parseLong(part.group(1)) * UNIT_MS.get(part.group(2)))
                    .sum();
            try {
                long sinceMs = Instant.parse(line.group(1)).toEpochMilli();
                return firstMs > 0 ? new FirstSeen(sinceMs, firstMs) : null;
            } catch (DateTimeParseException noTime) {
                return null;
            }
        }

        /** The first round after that moment. */
        long nextRound(long afterMs) {
            long at = sinceMs;
            while (at <= afterMs) {
                long quarter = (at - sinceMs) / ROUNDS_PER_WAIT;
                long step = Math.max(firstMs, Math.min(quarter, LONGEST_ROUND_MS));
                boolean areAlike = firstMs >= LONGEST_ROUND_MS || quarter >= LONGEST_ROUND_MS; // from here on
                at += (areAlike ? (afterMs - at) / step + 1 : 1) * step;
            }
            return at;
        }

        boolean plans(long timeMs) {
            return timeMs > sinceMs && nextRound(timeMs - 1) == timeMs;
        }
    }

    private static final class UnknownType extends Exception {
        private static final long serialVersionUID = 1L;

        UnknownType(String message) {
            super(message, null, false, false);
        }
    }

    private record Key(String queue, String type) {}

    private static final class Met {
        long jobs;
        long lastNanos;
    }

    private final long firstMs;
    private final long limitMs;
    private final Map<Key, Met> types = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Key, Met> eldest) {
            return size() > MOST_REPORTED;
        }
    };

    /** {@code limitMs}: for how long a job may be unknown; {@link Long#MAX_VALUE}: for ever. */
    UnknownTypes(long firstMs, long limitMs) {
        this.firstMs = firstMs;
        this.limitMs = limitMs;
    }

    /** What becomes of a job with this status: it comes back at its next round, or has failed. */
    Settlement decide(Job job, String status) {
        long nowMs = System.currentTimeMillis();
        FirstSeen seen = FirstSeen.of(status);
        meet(job, seen == null);
        boolean isPlanned = seen != null && seen.plans(job.runAfterMs);
        // somebody ran it or put it off meanwhile, and the end is near: the time counts from anew
        if (seen == null || !isPlanned && nowMs - seen.sinceMs() >= limitMs / 2) {
            return Settlement.requeueAt(job, firstLine(job, nowMs), new FirstSeen(nowMs, firstMs).nextRound(nowMs));
        }
        if (!isPlanned || nowMs - seen.sinceMs() < limitMs) {
            return Settlement.requeueAt(job, "", seen.nextRound(nowMs));
        }
        String waited = durationText((nowMs - seen.sinceMs()) / 1000 * 1000);
        String text = name(job) + ", unknown to the workers of queue " + job.queue() + " for " + waited;
        LOG.log(Level.WARNING, "job {0} has failed, no attempt follows: {1}", job, text);
        return Settlement.fail(job, FailureText.line(job, new UnknownType(text), null));
    }

    private String firstLine(Job job, long nowMs) {
        String ends = limitMs == Long.MAX_VALUE ? "" : "; FAILED after " + durationText(limitMs);
        return "not run: " + name(job) + ", unknown to the workers of queue " + job.queue() + " since "
                + TIME.format(Instant.ofEpochMilli(nowMs)) + " (" + Cluster.processName() + "); looked for again after "
                + durationText(firstMs) + ", later less often" + ends + "\n";
    }

    private static String name(Job job) {
        return job.name() == null
                ? "a body that is not the framework's"
                : "type " + FailureText.oneLine(job.name(), MOST_NAME_CHARS);
    }

    private synchronized void meet(Job job, boolean isFirst) {
        Key key = new Key(job.queue(), job.name());
        Met met = types.get(key);
        if (met == null) {
            LOG.log(Level.WARNING, "queue {0} has jobs that are unknown here, {1}; they are requeued", job.queue(), name(job));
            met = new Met();
            types.put(key, met);
        }
        met.lastNanos = System.nanoTime();
        met.jobs += isFirst ? 1 : 0;
    }

    synchronized List<com.pinterest.pinlater.thrift.UnknownType> report() {
        long nowNanos = System.nanoTime();
        types.values().removeIf(each -> nowNanos - each.lastNanos > REPORTED_NANOS);
        return types.entrySet().stream()
                .map(each -> new com.pinterest.pinlater.thrift.UnknownType(each.getKey().queue())
                        .setJobType(each.getKey().type())
                        .setJobs(each.getValue().jobs)
                        .setLastMillis(TimeUnit.NANOSECONDS.toMillis(nowNanos - each.getValue().lastNanos)))
                .toList();
    }

    /** As the project writes durations: 1d, 1h30m, 10s. */
    static String durationText(long ms) {
        StringBuilder text = new StringBuilder();
        long left = ms;
        for (Map.Entry<String, Long> unit : UNIT_MS.entrySet()) {
            if (left >= unit.getValue()) {
                text.append(left / unit.getValue()).append(unit.getKey());
                left %= unit.getValue();
            }
        }
        return text.isEmpty() ? "0s" : text.toString();
    }

    private static Map<String, Long> unitMs() {
        Map<String, Long> units = new LinkedHashMap<>(); // the largest first
        units.put("d", 86_400_000L);
        units.put("h", 3_600_000L);
        units.put("m", 60_000L);
        units.put("s", 1_000L);
        units.put("ms", 1L);
        return units;
    }
}
