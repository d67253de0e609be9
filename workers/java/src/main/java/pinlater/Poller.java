package pinlater;

import com.pinterest.pinlater.thrift.DequeueFromQueuesRequest;
import com.pinterest.pinlater.thrift.DequeueFromQueuesResponse;
import com.pinterest.pinlater.thrift.PinLaterCheckpointJobsRequest;
import com.pinterest.pinlater.thrift.PinLaterDequeueMetadata;
import com.pinterest.pinlater.thrift.PinLaterException;
import com.pinterest.pinlater.thrift.QueueError;
import com.pinterest.pinlater.thrift.QueueShare;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.thrift.TBaseHelper;
import org.apache.thrift.TException;

/**
 * Dequeues: one under way at a time, for all queues, over a connection of its own. An answer is confirmed by the next call
 * that is sent, before its jobs begin (docs/wire.md, receipts): so a job whose answer is lost loses no attempt.
 */
final class Poller implements Runnable {
    /** What the dequeues bring. Called in the thread of the poller. */
    interface Owner {
        void claimed(List<Dequeued> jobs);

        /** They were claimed, and do not begin here. */
        void notBegun(List<Dequeued> jobs);

        /** {@code jobs}: how many a dequeue brought. */
        void polled(int jobs, Duration took);

        /** A connection is gone, or about to go, that claims may be bound to. */
        void disconnected();

        /** The servers do not know the token, also after a while. */
        void tokenRefused(CallException error);
    }

    /** A job as a server handed it out. */
    record Dequeued(String descriptor, byte[] body, PinLaterDequeueMetadata metadata) {}

    private record Fetch(int limit, int wanted, int waitMs, DequeueFromQueuesRequest request) {}

    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    // Those of workers/pinlater_workers/worker/fetcher.py and queue_state.py.
    private static final long ANSWER_MS = 5_000;
    private static final int LOOK_AGAIN_MS = 2_000;
    private static final long SHORTEST_HOLD_MS = 20;
    private static final long STOPPING_PAUSE_MS = 200;
    private static final String FORBIDDEN = "FORBIDDEN";

    /** Servers hold back answers to wrong tokens. */
    private static final long REFUSED_MS = 60_000;

    private final Calls calls;
    private final Worker.Settings settings;
    private final Slots slots;
    private final PrefetchPlan plan;
    private final Owner owner;
    private final int half;
    private final PinLaterCheckpointJobsRequest nothing;
    private final Map<String, String> errors = new HashMap<>();
    private Connection connection;
    private long notBeforeNanos = System.nanoTime();
    private int failures;
    private boolean firstLook = true;
    private boolean resting;
    private boolean stopped;

    Poller(Worker.Settings settings, Slots slots, PrefetchPlan plan, Owner owner) {
        this.calls = new Calls(settings.cluster(), () -> {});
        this.settings = settings;
        this.slots = slots;
        this.plan = plan;
        this.owner = owner;
        this.half = (settings.slots() + 1) / 2;
        this.nothing = new PinLaterCheckpointJobsRequest(settings.queues().keySet().iterator().next(), List.of());
    }

    /** A slot is free again. */
    synchronized void wake() {
        notifyAll();
    }

    /** No more jobs until {@link #resume}. A long poll ends. */
    synchronized void rest() {
        resting = true;
        endLongPoll();
    }

    synchronized void resume() {
        resting = false;
        notifyAll();
    }

    /** No more jobs; the thread ends soon. */
    synchronized void stop() {
        stopped = true;
        endLongPoll();
    }

    private void endLongPoll() {
        if (connection != null) {
            connection.halfClose();
        }
        notifyAll();
    }

    /** Whatever the server does, the thread ends now. */
    synchronized void abort() {
        if (connection != null) {
            connection.close();
        }
    }

    @Override
    public void run() {
        try {
            for (Fetch fetch; (fetch = awaitTurn()) != null; ) {
                poll(fetch);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            disconnect();
            calls.close();
        }
    }

    // -- which jobs to ask for -------------------------------------------------------------------------------------

    /** The next dequeue, as soon as there is a slot for what it brings; null: the worker stops. */
    private synchronized Fetch awaitTurn() throws InterruptedException {
        while (!stopped) {
            long holdMs = TimeUnit.NANOSECONDS.toMillis(notBeforeNanos - System.nanoTime());
            Fetch fetch = resting || holdMs > 0 ? null : fetch(List.of());
            if (fetch != null) {
                return fetch;
            }
            wait(resting ? 0 : Math.max(0, holdMs));
        }
        return null;
    }

    /** Null: there is no slot, or none to be free in a moment. {@code arriving}: jobs that are claimed and not here yet. */
    private synchronized Fetch fetch(List<Dequeued> arriving) {
        int free = slots.free() - arriving.size();
        if (stopped || resting || free <= 0 && !plan.wantsMore(-free)) {
            return null;
        }
        Map<String, Integer> waiting = slots.atHandByQueue();
        arriving.forEach(job -> waiting.merge(Job.queueOf(job.descriptor()), 1, Integer::sum));
        Map<String, Integer> prefetch = plan.next(waiting);
        if (free <= 0 && prefetch.isEmpty()) {
            return null;
        }
        // The server shares a limit by weight, and by it what comes beyond: of one job a single queue would bring some.
        int spare = free > 0 ? free : Math.min(prefetch.size(), half);
        int limit = Math.min(spare, half);
        int waitMs = free <= 0 || firstLook ? 0 : errors.isEmpty() ? settings.pollMs() : LOOK_AGAIN_MS;
        List<QueueShare> shares = new ArrayList<>();
        int most = 0;
        for (Map.Entry<String, Integer> each : settings.queues().entrySet()) {
            int beyond = prefetch.getOrDefault(each.getKey(), 0);
            shares.add(new QueueShare(each.getKey()).setWeight(each.getValue()).setPrefetch(beyond));
            most = Math.max(most, beyond);
        }
        firstLook = false;
        DequeueFromQueuesRequest request = new DequeueFromQueuesRequest(shares, limit)
                .setWaitMillis(waitMs)
                .setClaimTimeoutMillis(settings.leaseMs())
                .setReleaseOnDisconnect(true)
                .setConfirmsReceipt(true);
        return new Fetch(limit, limit + most / 2, waitMs, request);
    }

    // -- one dequeue after the other -------------------------------------------------------------------------------

    private void poll(Fetch first) {
        List<Dequeued> arrived = List.of();
        try {
            connect();
            for (Fetch fetch = first; fetch != null; ) {
                Fetch now = fetch;
                long begunNanos = System.nanoTime();
                exchange(ANSWER_MS, (client, context) -> {
                    client.send_dequeueFromQueues(context, now.request());
                    return null;
                });
                begin(arrived);
                arrived = List.of();
                DequeueFromQueuesResponse answer =
                        exchange(now.waitMs() + ANSWER_MS, (client, context) -> client.recv_dequeueFromQueues());
                arrived = read(answer);
                answered(now, answer, arrived.size(), Duration.ofNanos(System.nanoTime() - begunNanos));
                fetch = arrived.isEmpty() || isHolding() || !isConnected() ? null : fetch(arrived);
                if (fetch == null && !arrived.isEmpty() && answer.isAwaitsReceipt() && isConnected()) {
                    exchange(ANSWER_MS, (client, context) -> {
                        client.send_checkpointJobs(context, nothing);
                        return null;
                    });
                    begin(arrived);
                    arrived = List.of();
                    exchange(ANSWER_MS, (client, context) -> {
                        client.recv_checkpointJobs();
                        return null;
                    });
                }
            }
            begin(arrived);
        } catch (PinLaterException refusal) {
            failed(new CallException(refusal));
        } catch (RuntimeException | Error fault) { // such as no memory for an answer; the next one may be smaller
            LOG.log(Level.ERROR, "a dequeue failed, and is tried again", fault);
            owner.notBegun(arrived);
            failed(new CallException(CallException.PROTOCOL_ERROR, fault.toString(), false, fault));
        } catch (TException | IOException error) {
            owner.notBegun(arrived); // the answer was not confirmed
            String where = connection == null ? "" : "no answer from " + connection.server + ": ";
            failed(new CallException(CallException.SERVER_UNREACHABLE, where + error.getMessage(), true, error));
        }
        if (connection != null && !connection.usable) {
            disconnect(); // of a half-closed one the server closes the other side, and its claims end
        }
    }

    private void begin(List<Dequeued> jobs) {
        if (!jobs.isEmpty()) {
            owner.claimed(jobs);
        }
    }

    private <T> T exchange(long timeoutMs, Connection.Exchange<T> exchange) throws TException {
        return connection.exchange(timeoutMs, exchange);
    }

    private static List<Dequeued> read(DequeueFromQueuesResponse answer) {
        List<Dequeued> jobs = new ArrayList<>();
        if (answer.isSetJobs()) {
            for (Map.Entry<String, ByteBuffer> each : answer.getJobs().entrySet()) {
                byte[] body = TBaseHelper.byteBufferToByteArray(each.getValue());
                PinLaterDequeueMetadata metadata = answer.getJobMetadata().get(each.getKey());
                jobs.add(new Dequeued(each.getKey(), body, metadata));
            }
        }
        return jobs;
    }

    private void connect() throws IOException {
        synchronized (this) {
            if (connection != null && connection.usable) {
                return;
            }
        }
        disconnect();
        Connection opened = calls.open(ANSWER_MS);
        synchronized (this) {
            connection = opened;
            if (stopped || resting) {
                connection.halfClose();
            }
        }
    }

    private void disconnect() {
        Connection gone;
        synchronized (this) {
            gone = connection;
            connection = null;
        }
        if (gone != null) {
            gone.close();
            owner.disconnected();
        }
    }

    // -- what the answers say --------------------------------------------------------------------------------------

    private void answered(Fetch fetch, DequeueFromQueuesResponse answer, int jobs, Duration took) {
        if (failures > 0) {
            LOG.log(Level.INFO, "servers answer again");
        }
        failures = 0;
        owner.polled(jobs, took);
        if (jobs < fetch.wanted()) {
            plan.ranDry();
        }
        List<QueueError> told = answer.isSetQueueErrors() ? answer.getQueueErrors() : List.of();
        note(told);
        if (errors.containsValue(FORBIDDEN)) {
            disconnect();
        }
        if (!told.isEmpty() && told.size() == settings.queues().size()) {
            hold(told.stream().mapToLong(Poller::holdMs).min().orElse(LOOK_AGAIN_MS));
        } else if (jobs == 0 && told.isEmpty() && isConnected() && fetch.waitMs() > 1_000 && took.toMillis() < fetch.waitMs() / 2) {
            calls.advance(connection.server); // it stops: another one takes callers
            disconnect();
            hold(STOPPING_PAUSE_MS);
        }
    }

    /** Logs what is new of queues that gave nothing but an error. */
    private void note(List<QueueError> told) {
        Map<String, String> now = new HashMap<>();
        for (QueueError each : told) {
            String reason = each.isSetReason() ? each.getReason() : each.getErrorCode().name();
            now.put(each.getQueueName(), reason);
            if (!reason.equals(errors.get(each.getQueueName()))) {
                LOG.log(Level.WARNING, "no jobs from queue {0}, which is tried again: {1}", each.getQueueName(),
                        each.getMessage());
            }
            if (settings.createsQueues() && reason.equals("QUEUE_NOT_FOUND")) {
                create(each.getQueueName());
            }
        }
        errors.keySet().stream()
                .filter(name -> !now.containsKey(name))
                .forEach(name -> LOG.log(Level.INFO, "queue {0} gives jobs again", name));
        synchronized (this) {
            errors.clear();
            errors.putAll(now);
        }
    }

    private void create(String queue) {
        try {
            calls.once(ANSWER_MS, (client, context) -> {
                client.createQueue(context, queue);
                return null;
            });
            LOG.log(Level.INFO, "queue {0} was not there: created", queue);
        } catch (CallException error) {
            LOG.log(Level.WARNING, "queue {0} cannot be created: {1}", queue, error.getMessage());
        }
    }

    /** A pause can end at any time, and a rate can be raised: so it is never waited for long. */
    private static long holdMs(QueueError error) {
        long wantedMs = error.isSetRetryAfterMillis() ? error.getRetryAfterMillis() : LOOK_AGAIN_MS;
        return Math.min(Math.max(wantedMs, SHORTEST_HOLD_MS), LOOK_AGAIN_MS);
    }

    /** A dequeue as a whole. */
    private void failed(CallException error) {
        Connection used = connection;
        boolean stops = error.reason().equals("DRAINING");
        if (used != null && (stops || !used.usable)) {
            calls.advance(used.server);
            disconnect();
        } else if (used != null && error.reason().equals(FORBIDDEN)) {
            disconnect(); // the next connection shows the token that is in the file by then
        }
        synchronized (this) {
            if (stopped || resting) {
                return; // a wait that was cut short says nothing of the servers
            }
        }
        failures++;
        if (failures == settings.cluster().servers().size() + 1) {
            LOG.log(Level.WARNING, "no jobs come, and the worker keeps trying: {0}", error.getMessage());
        }
        if (error.reason().equals(FORBIDDEN)) {
            CallException unknown = whyTokenIsRefused();
            if (unknown != null) {
                owner.tokenRefused(unknown);
                return;
            }
        }
        boolean refused = !error.retryable() && !error.reason().equals(CallException.OUTCOME_UNKNOWN);
        hold(refused ? LOOK_AGAIN_MS : Math.max(Calls.pauseMs(failures), error.retryAfterMs()));
    }

    /** Null: the servers know it, and rules that forbid something may change; or they do not say. */
    private CallException whyTokenIsRefused() {
        CallException refusal = null;
        for (long pauseMs : new long[] {0, LOOK_AGAIN_MS}) { // its file has time to change
            if (!Calls.pause(pauseMs)) {
                return null;
            }
            try (Calls fresh = new Calls(settings.cluster(), () -> {})) { // its connection shows the token of now
                fresh.once(REFUSED_MS, (client, context) -> client.getAccess(context));
                return null;
            } catch (CallException error) {
                if (!error.reason().equals(FORBIDDEN)) {
                    return null;
                }
                refusal = error;
            }
        }
        return refusal;
    }

    private synchronized boolean isConnected() {
        return connection != null && connection.usable;
    }

    private synchronized boolean isHolding() {
        return notBeforeNanos - System.nanoTime() > 0;
    }

    private synchronized void hold(long millis) {
        notBeforeNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    }
}
