package pinlater;

import java.util.HashMap;
import java.util.Map;

/**
 * How many jobs of each queue to ask for beyond the free slots: as many as the slots begin within half of the longest wait,
 * by how long the last jobs of the queue took. A port of PrefetchPlan in workers/pinlater_workers/worker/prefetch.py.
 */
final class PrefetchPlan {
    private static final int MOST = 1_000;
    /** A queue that has brought nothing in so many dequeues leaves its share to the others. */
    private static final int RECENT = 4;
    /** About how many of the last jobs of a queue its mean is made of. */
    private static final int OF_LAST = 128;

    private static final class Times {
        int ended;
        double meanMs;
        int took;
        /** It has jobs with a single attempt, which a worker that is killed would cost it. */
        boolean without;
    }

    private final Map<String, Integer> weights;
    private final double slotsMs;
    private final Map<String, Times> times = new HashMap<>();
    private int dequeues;
    private int refillAt;

    /** {@code waitMs}: the longest that a job may wait here; 0: none are asked for. */
    PrefetchPlan(Map<String, Integer> weights, int slots, long waitMs) {
        this.weights = weights;
        this.slotsMs = slots * waitMs / 2.0;
        weights.keySet().forEach(queue -> times.put(queue, new Times()));
    }

    synchronized void took(Job job) {
        Times queue = times.get(job.queue());
        queue.took = dequeues;
        queue.without |= job.attemptsAllowed() <= 1;
    }

    synchronized void ended(String queue, double tookMs) {
        Times known = times.get(queue);
        known.meanMs += (tookMs - known.meanMs) / (Math.min(known.ended, OF_LAST) + 1);
        known.ended++;
    }

    /** A job found no slot in time: its queue begins anew. */
    synchronized void handedBack(String queue) {
        times.get(queue).ended = 0;
    }

    /** Whether it is time to ask, with so many jobs here that have no slot yet. */
    synchronized boolean wantsMore(int atHand) {
        return slotsMs > 0 && atHand <= refillAt;
    }

    /** The servers had fewer than were asked for: they are asked again when nothing is at hand. */
    synchronized void ranDry() {
        refillAt = 0;
    }

    /** What to ask for now, by queue. No queue is to bring more than have ended here. */
    synchronized Map<String, Integer> next(Map<String, Integer> atHand) {
        dequeues++;
        int waiting = atHand.values().stream().mapToInt(Integer::intValue).sum();
        double leftMs = slotsMs;
        for (Map.Entry<String, Integer> each : atHand.entrySet()) {
            leftMs -= times.get(each.getKey()).meanMs * each.getValue();
        }
        double most = MOST - waiting;
        Map<String, Times> active = new HashMap<>(times);
        active.values().removeIf(each -> each.ended == 0 || dequeues - each.took > RECENT || each.without);
        Map<String, Integer> wanted = new HashMap<>();
        if (!active.isEmpty() && most > 0 && leftMs > 0) {
            int weight = active.keySet().stream().mapToInt(weights::get).sum();
            double meanMs = 0;
            for (Map.Entry<String, Times> each : active.entrySet()) {
                int share = weights.get(each.getKey());
                meanMs += share * each.getValue().meanMs / weight;
                most = Math.min(most, (double) each.getValue().ended * weight / share);
            }
            most = meanMs > 0 ? Math.min(most, leftMs / meanMs) : most;
            for (Map.Entry<String, Times> each : active.entrySet()) {
                double mean = each.getValue().meanMs;
                int amount = (int) (mean > 0 ? Math.min(most, leftMs / mean) : most);
                if (amount > 0) {
                    wanted.put(each.getKey(), amount);
                }
            }
        }
        refillAt = wanted.isEmpty() ? 0 : (waiting + (int) most) / 2;
        return wanted;
    }
}
