package pinlater;

import com.pinterest.pinlater.thrift.WorkerCommand;
import com.pinterest.pinlater.thrift.WorkerJob;
import com.pinterest.pinlater.thrift.WorkerReport;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Runs jobs of some queues, several at once.
 *
 * <p>{@link #run} is a whole program: it ends after a SIGTERM. Inside a program that has other work, {@link #start} and
 * {@link #close} do the same. README.md says what happens when servers, networks or workers fail.
 */
public final class Worker implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    /** How long the last answers to a poll may take at the end. */
    private static final long LAST_ANSWERS_MS = 2_000;

    /** How long results may still be sent at the end. */
    private static final long LAST_RESULTS_MS = 10_000;

    private static final int MOST_NAMED = 100;
    private static final int TICKS = 4;

    /** What the builder says. Times are milliseconds. */
    record Settings(
            Cluster cluster,
            String name,
            String version,
            Map<String, Integer> queues,
            int slots,
            int leaseMs,
            int pollMs,
            int prefetchMs,
            long drainMs,
            long unknownDelayMs,
            long unknownLimitMs,
            boolean createsQueues) {}

    private final Settings settings;
    private final WorkerListener listener;
    private final JobRunner runner;
    private final List<String> jobTypes;
    private final UnknownTypes unknown;
    private final Slots slots;
    private final PrefetchPlan plan;
    private final Poller poller;
    private final Heartbeats heartbeats;
    private final AckSender acks;
    private final ScheduledThreadPoolExecutor timer =
            new ScheduledThreadPoolExecutor(1, Threads.named("pinlater-timer"));
    private final CompletableFuture<Void> stopped = new CompletableFuture<>();
    private final String id = UUID.randomUUID().toString();
    private final long begunNanos = System.nanoTime();
    private final AtomicBoolean hasPolled = new AtomicBoolean();
    private final AtomicBoolean ticks = new AtomicBoolean();
    private final AtomicInteger begun = new AtomicInteger();
    private final int[] begunBefore = new int[TICKS];
    private int tick;
    private Thread polls;
    private boolean quiet;
    private boolean draining;
    private long endNanos;
    private CallException failure;
    private boolean hasStopped;

    private Worker(Builder builder) {
        settings = builder.settings();
        listener = new GuardedListener(builder.listener);
        runner = new JobRunner(Map.copyOf(builder.types), Map.copyOf(builder.rawTypes));
        timer.setRemoveOnCancelPolicy(true); // else each job would lie there for its time limit
        jobTypes = builder.types.keySet().stream().sorted().limit(MOST_NAMED).toList();
        unknown = new UnknownTypes(settings.unknownDelayMs(), settings.unknownLimitMs());
        slots = new Slots(settings.slots(), this::runJob, this::slotFreed);
        plan = new PrefetchPlan(settings.queues(), settings.slots(), settings.prefetchMs());
        poller = new Poller(settings, slots, plan, new Claims());
        String queue = settings.queues().keySet().iterator().next();
        heartbeats = new Heartbeats(settings.cluster(), queue, settings.leaseMs(), new Beats());
        acks = new AckSender(settings.cluster(), heartbeats, settings.leaseMs(), listener::ignored, unknown::decide);
    }

    /** Begins a worker for these servers. It needs a queue and a handler at least. */
    public static Builder builder(Cluster cluster) {
        return new Builder(cluster);
    }

    /**
     * Begins to take jobs, in threads of its own. Once.
     *
     * @return this worker
     */
    public synchronized Worker start() {
        if (polls != null) {
            throw new IllegalStateException("a worker starts once; build another one");
        }
        polls = Threads.named("pinlater-poller").newThread(poller);
        Threads.named("pinlater-heartbeats").newThread(heartbeats).start();
        Threads.named("pinlater-acks").newThread(acks).start();
        polls.start();
        return this;
    }

    /**
     * Starts, and returns when the worker has stopped. SIGTERM and SIGINT drain it: it takes no new jobs, gives those that
     * run the time of {@link Builder#drain}, hands back the others, and sends all results. A second one hands back at once.
     *
     * @throws CallException the servers do not know the token, also after a while; the worker has drained
     */
    public void run() {
        AtomicBoolean signalled = new AtomicBoolean();
        Signals.onStop(() -> {
            if (signalled.getAndSet(true)) {
                drainNow();
            } else {
                drain();
            }
        });
        start();
        stopped.join();
        synchronized (this) {
            if (failure != null) {
                throw failure;
            }
        }
    }

    /** Takes no more jobs, and stops when those that run have ended, or the time to drain is over. Returns at once. */
    public void drain() {
        drain(settings.drainMs());
    }

    /** Stops, and hands back what runs at once. */
    public void drainNow() {
        drain(0);
    }

    /** Completes when the worker has stopped. */
    public CompletableFuture<Void> stopped() {
        return stopped.copy();
    }

    /** Drains, and waits until the worker has stopped. */
    @Override
    public void close() {
        drain();
        stopped.join();
    }

    // -- jobs ------------------------------------------------------------------------------------------------------

    private final class Claims implements Poller.Owner {
        @Override
        public void claimed(List<Poller.Dequeued> dequeued) {
            List<Job> jobs = new ArrayList<>();
            List<Job> known = new ArrayList<>();
            List<Settlement> settled = new ArrayList<>();
            for (Poller.Dequeued each : dequeued) {
                Job job = read(each, settled);
                jobs.add(job);
                if (job.phase() == Job.Phase.AT_HAND) {
                    plan.took(job);
                    known.add(job);
                }
            }
            heartbeats.hold(jobs);
            settled.forEach(acks::put);
            if (draining()) {
                known.forEach(Worker.this::handBack);
                return;
            }
            slots.add(known);
            tickSoon();
        }

        @Override
        public void notBegun(List<Poller.Dequeued> dequeued) {
            for (Poller.Dequeued each : dequeued) {
                Job job = new Job(each.descriptor(), each.body(), each.metadata(), null);
                heartbeats.hold(List.of(job));
                handBack(job);
            }
        }

        @Override
        public void polled(int jobs, Duration took) {
            if (!hasPolled.getAndSet(true)) {
                listener.started();
            }
            listener.polled(jobs, took);
        }

        @Override
        public void disconnected() {
            heartbeats.beatAll();
        }

        @Override
        public void tokenRefused(CallException error) {
            LOG.log(Level.ERROR, "the worker ends, as the servers do not know its token: {0}", error.getMessage());
            synchronized (Worker.this) {
                failure = error;
            }
            drain();
        }
    }

    /** The job; one that cannot run here is settled already. */
    private Job read(Poller.Dequeued dequeued, List<Settlement> settled) {
        Job job;
        try {
            Envelope envelope = Envelope.read(dequeued.body());
            job = new Job(dequeued.descriptor(), dequeued.body(), dequeued.metadata(), envelope);
        } catch (Envelope.BodyInvalid error) {
            job = new Job(dequeued.descriptor(), dequeued.body(), dequeued.metadata(), null);
            job.settle();
            String status = FailureText.line(job, error, null);
            LOG.log(Level.WARNING, "job {0} failed, no attempt follows: {1}", job, status.strip());
            settled.add(Settlement.fail(job, status));
            return job;
        }
        if (runner.typeOf(job) == null) {
            job.settle();
            settled.add(Settlement.unknown(job));
            listener.unknown(job.queue(), job.name());
        }
        return job;
    }

    private void runJob(Job job) {
        if (!job.begin(heartbeats::wake)) {
            return;
        }
        begun.incrementAndGet();
        listener.begun(job);
        JobRunner.Type type = runner.typeOf(job);
        Future<?> limit = type.timeLimit() == null
                ? CompletableFuture.completedFuture(null)
                : timer.schedule(() -> overLimit(job, type), type.timeLimit().toMillis(), TimeUnit.MILLISECONDS);
        JobRunner.End end = runner.run(job, type);
        limit.cancel(false);
        Duration took = Duration.ofNanos(System.nanoTime() - job.begunNanos());
        plan.ended(job.queue(), took.toNanos() / 1e6);
        if (job.settle()) { // else it was lost, handed back or over its time limit meanwhile
            acks.put(end.settlement());
            listener.ended(job, end.outcome(), took);
        }
    }

    /** The attempt has failed, whatever its handler does. */
    private void overLimit(Job job, JobRunner.Type type) {
        boolean wasCancelled = job.stopReason().isPresent();
        TimeLimitExceeded error = new TimeLimitExceeded(type.timeLimit(), job.stack());
        if (job.settle(StopReason.TIME_LIMIT)) {
            JobRunner.End end = runner.failed(job, type, error, wasCancelled);
            acks.put(end.settlement());
            told(job, StopReason.TIME_LIMIT, end.outcome());
        }
    }

    /** The slot of a job that ended or was taken away is free, or nobody waits for that. */
    private void slotFreed() {
        poller.wake();
        synchronized (this) {
            if (draining) {
                notifyAll();
            }
        }
    }

    /** With no attempt spent, and its place in the queue kept. */
    private void handBack(Job job) {
        boolean ran = job.phase() == Job.Phase.RUNNING;
        if (job.settle(StopReason.HANDED_BACK)) {
            acks.put(Settlement.requeue(job, "", 0, null));
            if (ran) {
                told(job, StopReason.HANDED_BACK, Outcome.HANDED_BACK);
            }
        }
    }

    /** Its handler may still run, and keeps its slot until it returns; nobody else waits for it. */
    private void told(Job job, StopReason reason, Outcome outcome) {
        listener.stopped(job, reason);
        listener.ended(job, outcome, Duration.ofNanos(System.nanoTime() - job.begunNanos()));
        job.abandon();
        slotFreed();
    }

    // -- jobs at hand ----------------------------------------------------------------------------------------------

    private void tickSoon() {
        if (slots.atHandCount() > 0 && settings.prefetchMs() > 0 && !draining() && !ticks.getAndSet(true)) {
            timer.schedule(this::tick, Math.max(1, settings.prefetchMs() / TICKS), TimeUnit.MILLISECONDS);
        }
    }

    /** Hands back what has waited for too long, so that a slow job keeps none from another worker. */
    private void tick() {
        ticks.set(false);
        begunBefore[tick++ % TICKS] = begun.getAndSet(0);
        int soon = 0;
        for (int count : begunBefore) {
            soon += count;
        }
        for (Job job : slots.takeLate(TimeUnit.MILLISECONDS.toNanos(settings.prefetchMs()), soon)) {
            plan.handedBack(job.queue());
            handBack(job);
        }
        tickSoon();
    }

    // -- what heartbeats bring -------------------------------------------------------------------------------------

    private final class Beats implements Heartbeats.Owner {
        @Override
        public void cancelled(Job job, String by) {
            if (slots.discard(job) && job.settle()) {
                acks.put(JobRunner.cancelled(job, null));
            } else if (job.cancel(by)) {
                listener.stopped(job, StopReason.CANCELLED);
            }
        }

        @Override
        public void lost(Job job) {
            boolean ran = !slots.discard(job) && job.phase() == Job.Phase.RUNNING;
            if (job.settle(StopReason.LOST)) {
                LOG.log(Level.WARNING, "the claim of job {0} is lost; another worker may have it", job);
                if (ran) {
                    told(job, StopReason.LOST, Outcome.LOST);
                }
            }
            heartbeats.forget(job);
        }

        @Override
        public void commanded(WorkerCommand command) {
            LOG.log(Level.INFO, "an operator wants this worker to {0}", command);
            synchronized (Worker.this) {
                quiet = command != WorkerCommand.RESUME;
            }
            if (command == WorkerCommand.STOP) {
                drain(Long.MAX_VALUE / 2);
            } else if (command == WorkerCommand.QUIET) {
                poller.rest();
            } else {
                poller.resume();
            }
            heartbeats.reportNow();
        }

        @Override
        public WorkerReport report() {
            List<Job> running = slots.running();
            long nowNanos = System.nanoTime();
            List<WorkerJob> named = running.stream()
                    .limit(MOST_NAMED)
                    .map(job -> new WorkerJob(job.descriptor())
                            .setJobType(job.name() == null ? "" : job.name())
                            .setRunningMillis(TimeUnit.NANOSECONDS.toMillis(nowNanos - job.begunNanos())))
                    .toList();
            int stuck = (int) running.stream().filter(Job::isAbandoned).count();
            Map<String, String> versions = new TreeMap<>(Map.of("java", System.getProperty("java.version")));
            if (settings.version() != null) {
                versions.put("app", settings.version());
            }
            WorkerReport report = new WorkerReport(id, settings.name(), TimeUnit.NANOSECONDS.toMillis(nowNanos - begunNanos))
                    .setHost(Cluster.hostName())
                    .setPid((int) ProcessHandle.current().pid())
                    .setQueues(settings.queues())
                    .setSlots(settings.slots())
                    .setBusySlots(running.size() - stuck)
                    .setStuckSlots(stuck)
                    .setRunning(named)
                    .setVersions(versions)
                    .setJobTypes(jobTypes)
                    .setUnknownTypes(unknown.report());
            synchronized (Worker.this) {
                return report.setIsQuiet(quiet).setIsStopping(draining).setHasStopped(hasStopped);
            }
        }
    }

    // -- the end ---------------------------------------------------------------------------------------------------

    private synchronized boolean draining() {
        return draining;
    }

    /** Asked again, the earlier end counts: an operator's stop gives the jobs as long as they take, a SIGTERM does not. */
    private void drain(long graceMs) {
        synchronized (this) {
            long nowNanos = System.nanoTime();
            long graceNanos = TimeUnit.MILLISECONDS.toNanos(graceMs);
            if (draining) {
                endNanos = nowNanos + Math.min(endNanos - nowNanos, graceNanos);
                notifyAll();
                return;
            }
            draining = true;
            endNanos = nowNanos + graceNanos;
        }
        listener.draining();
        Threads.named("pinlater-drain").newThread(this::stop).start();
    }

    private void stop() {
        try {
            poller.stop();
            heartbeats.reportNow();
            slots.takeAll().forEach(this::handBack);
            if (polls != null) {
                polls.join(LAST_ANSWERS_MS);
                poller.abort();
                polls.join(LAST_ANSWERS_MS);
            }
            slots.takeAll().forEach(this::handBack); // what was on its way
            awaitEnds();
            slots.running().forEach(this::handBack);
            acks.close(polls == null ? 0 : LAST_RESULTS_MS);
            synchronized (this) {
                hasStopped = true;
            }
            heartbeats.close();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } finally {
            timer.shutdownNow();
            slots.close();
            listener.ended();
            stopped.complete(null);
        }
    }

    private synchronized void awaitEnds() throws InterruptedException {
        while (!slots.running().stream().allMatch(Job::isAbandoned)) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
            if (leftMs <= 0) {
                return;
            }
            wait(leftMs);
        }
    }

    // -- the settings ----------------------------------------------------------------------------------------------

    /** The settings of a {@link Worker}. The defaults are those of the Python framework. */
    public static final class Builder {
        private static final Duration LONGEST_POLL = Duration.ofSeconds(20);
        private static final int POLLS_PER_LEASE = 3;
        private static final int MOST_WEIGHT = 1_000;
        private static final Duration TIME_LIMIT = Duration.ofHours(1);
        private static final Duration LONGEST_LIMIT = Duration.ofDays(365);

        private final Cluster cluster;
        private final Map<String, Integer> queues = new LinkedHashMap<>();
        private final Map<String, JobRunner.Type> types = new LinkedHashMap<>();
        private final Map<String, JobRunner.Type> rawTypes = new LinkedHashMap<>();
        private WorkerListener listener = new WorkerListener() {};
        private String name = "java";
        private String version;
        private int slots = 8;
        private Duration lease = Duration.ofSeconds(30);
        private Duration pollWait = LONGEST_POLL;
        private Duration prefetch = Duration.ofMillis(50);
        private Duration drain = Duration.ofSeconds(30);
        private long unknownDelayMs = 10_000;
        private long unknownLimitMs = Duration.ofDays(1).toMillis();
        private boolean createsQueues;

        private Builder(Cluster cluster) {
            this.cluster = cluster;
        }

        /** Takes jobs from this queue, with a weight of 1. */
        public Builder queue(String queue) {
            return queue(queue, 1);
        }

        /**
         * Takes jobs from this queue.
         *
         * @param weight 1 to 1,000: queues that have jobs share the slots by their weights
         */
        public Builder queue(String queue, int weight) {
            if (weight < 1 || weight > MOST_WEIGHT) {
                throw new IllegalArgumentException("queue " + queue + " has weight " + weight + "; allowed: 1 to 1,000");
            }
            queues.put(queue, weight);
            return this;
        }

        /** Runs jobs of this type, from whichever queue, with the standard retries and a time limit of an hour. */
        public Builder handle(String type, Handler handler) {
            return handle(type, RetryPolicy.standard(), handler);
        }

        /** Runs jobs of this type, from whichever queue, with a time limit of an hour. */
        public Builder handle(String type, RetryPolicy retry, Handler handler) {
            return handle(type, retry, TIME_LIMIT, handler);
        }

        /**
         * Runs jobs of this type, from whichever queue.
         *
         * @param timeLimit how long an attempt may run; null: for ever. Beyond it the attempt has failed with
         *     {@link TimeLimitExceeded}, its thread is interrupted, and what the handler returns is dropped
         */
        public Builder handle(String type, RetryPolicy retry, Duration timeLimit, Handler handler) {
            types.put(type, new JobRunner.Type(handler, retry, checked(timeLimit), false));
            return this;
        }

        /**
         * As {@link #handle(String, RetryPolicy, Handler)}, and keeps what the handler returns for callers that wait,
         * unless the job says otherwise.
         */
        public Builder handleWithResult(String type, RetryPolicy retry, Handler handler) {
            return handleWithResult(type, retry, TIME_LIMIT, handler);
        }

        /** As {@link #handle(String, RetryPolicy, Duration, Handler)}, and keeps what the handler returns. */
        public Builder handleWithResult(String type, RetryPolicy retry, Duration timeLimit, Handler handler) {
            types.put(type, new JobRunner.Type(handler, retry, checked(timeLimit), true));
            return this;
        }

        /** Runs jobs of this queue whose bodies are of another format: see {@link Job#body}. */
        public Builder handleRaw(String queue, Handler handler) {
            return handleRaw(queue, RetryPolicy.standard(), handler);
        }

        /** Runs jobs of this queue whose bodies are of another format: see {@link Job#body}. */
        public Builder handleRaw(String queue, RetryPolicy retry, Handler handler) {
            return handleRaw(queue, retry, TIME_LIMIT, handler);
        }

        /** As {@link #handle(String, RetryPolicy, Duration, Handler)}, of bodies of another format: see {@link Job#body}. */
        public Builder handleRaw(String queue, RetryPolicy retry, Duration timeLimit, Handler handler) {
            rawTypes.put(queue, new JobRunner.Type(handler, retry, checked(timeLimit), false));
            queues.putIfAbsent(queue, 1);
            return this;
        }

        private static Duration checked(Duration timeLimit) {
            if (timeLimit != null && (timeLimit.compareTo(LONGEST_LIMIT) > 0 || timeLimit.toMillis() < 1)) {
                throw new IllegalArgumentException("a time limit of " + timeLimit + "; allowed: 1 ms to 365 days, or null");
            }
            return timeLimit;
        }

        /** Hooks for metrics and logs. */
        public Builder listener(WorkerListener listener) {
            this.listener = listener;
            return this;
        }

        /** The name in the list of workers. */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** The version of your code in the list of workers. */
        public Builder version(String version) {
            this.version = version;
            return this;
        }

        /** How many jobs run at once; 8 unless set. */
        public Builder slots(int slots) {
            this.slots = slots;
            return this;
        }

        /** How long a claim holds without a heartbeat; 30 s unless set, 3 s at least. */
        public Builder lease(Duration lease) {
            this.lease = lease;
            return this;
        }

        /** How long a server may hold back its answer when the queues are empty; 20 s and a third of the lease at most. */
        public Builder pollWait(Duration wait) {
            this.pollWait = wait;
            return this;
        }

        /** How long a job may wait here for a slot; 50 ms unless set. 0: no more jobs are taken than there are slots. */
        public Builder prefetch(Duration wait) {
            this.prefetch = wait;
            return this;
        }

        /** How long running jobs may go on when the worker stops; 30 s unless set. */
        public Builder drain(Duration time) {
            this.drain = time;
            return this;
        }

        /**
         * Jobs of a type without a handler.
         *
         * @param delay how long one stays away at first; 10 s unless set
         * @param limit when it fails, if no worker has known it; a day unless set, null: never
         */
        public Builder unknownTypes(Duration delay, Duration limit) {
            this.unknownDelayMs = Math.max(1, delay.toMillis());
            this.unknownLimitMs = limit == null ? Long.MAX_VALUE : limit.toMillis();
            return this;
        }

        /** Creates queues that are missing; else the worker waits for them. */
        public Builder createQueues() {
            this.createsQueues = true;
            return this;
        }

        /**
         * The worker, which {@link #start} or {@link #run} begins.
         *
         * @throws IllegalArgumentException if the settings make no worker
         */
        public Worker build() {
            if (queues.isEmpty() || types.isEmpty() && rawTypes.isEmpty()) {
                throw new IllegalArgumentException("a worker needs a queue and a handler: queue(...), handle(...)");
            }
            if (slots < 1 || lease.toMillis() < 3_000 || lease.toMillis() > Integer.MAX_VALUE) {
                throw new IllegalArgumentException("allowed: 1 slot or more, a lease of 3 s to 24 days");
            }
            return new Worker(this);
        }

        private Settings settings() {
            long pollMs = Math.min(Math.min(pollWait.toMillis(), LONGEST_POLL.toMillis()), lease.toMillis() / POLLS_PER_LEASE);
            return new Settings(cluster, name, version, Collections.unmodifiableMap(new LinkedHashMap<>(queues)), slots,
                    (int) lease.toMillis(), (int) pollMs, (int) prefetch.toMillis(), drain.toMillis(),
                    unknownDelayMs, unknownLimitMs, createsQueues);
        }
    }
}
