package pinlater;

import com.pinterest.pinlater.thrift.PinLaterEnqueueRequest;
import com.pinterest.pinlater.thrift.PinLaterJob;
import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import com.pinterest.pinlater.thrift.PinLaterLookupJobRequest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Enqueues jobs, and waits for their results. Thread-safe; one is enough for a program.
 *
 * <p>Each job gets a send id, so an enqueue whose answer was lost is sent again and stored once, within the time-out of
 * calls. Methods throw {@link CallException}; those that end in Async complete their futures with it.
 */
public final class Producer implements AutoCloseable {
    private static final int ASYNC_THREADS = 32;

    /** A lookup waits for at most so long; the server's bound. */
    private static final long LONGEST_WAIT_MS = 60_000;

    private static final long EARLY_PAUSE_MS = 50;

    private final Calls calls;
    private final ThreadPoolExecutor threads;

    /** A producer for these servers. It connects with its first call. */
    public Producer(Cluster cluster) {
        calls = new Calls(cluster, () -> {});
        threads = new ThreadPoolExecutor(ASYNC_THREADS, ASYNC_THREADS, 20, TimeUnit.SECONDS,
                new LinkedBlockingQueue<>(), Threads.named("pinlater-producer"));
        threads.allowCoreThreadTimeOut(true);
    }

    /**
     * Enqueues a job, to run at once.
     *
     * @param kwargs the arguments by name: values of JSON, and what docs/workers-bodies.md says how to write
     * @return its descriptor
     */
    public String enqueue(String queue, String name, Map<String, ?> kwargs) {
        return enqueue(queue, NewJob.of(name, kwargs));
    }

    /**
     * Enqueues a job.
     *
     * @return its descriptor, or where its dedupe key is taken that of the job that stands
     */
    public String enqueue(String queue, NewJob job) {
        return enqueueMany(queue, List.of(job)).get(0);
    }

    /**
     * Enqueues jobs in one call: all of them or none, unless they have different keys.
     *
     * @return their descriptors, in order
     */
    public List<String> enqueueMany(String queue, List<NewJob> jobs) {
        if (jobs.isEmpty()) {
            return List.of();
        }
        String sendId = UUID.randomUUID().toString();
        boolean keyed = jobs.stream().anyMatch(NewJob::isKeyed);
        List<PinLaterJob> wire = new ArrayList<>(jobs.size());
        for (NewJob job : jobs) {
            wire.add(job.wire(keyed ? sendId + "-" + wire.size() : sendId)); // those of several keys have several homes
        }
        PinLaterEnqueueRequest request = new PinLaterEnqueueRequest(queue, wire);
        return calls.call((client, context) -> client.enqueueJobs(context, request)).getJobDescriptors();
    }

    /** As {@link #enqueue(String, NewJob)}, in another thread. */
    public CompletableFuture<String> enqueueAsync(String queue, NewJob job) {
        return CompletableFuture.supplyAsync(() -> enqueue(queue, job), threads);
    }

    /** As {@link #enqueueMany}, in another thread. */
    public CompletableFuture<List<String>> enqueueManyAsync(String queue, List<NewJob> jobs) {
        return CompletableFuture.supplyAsync(() -> enqueueMany(queue, jobs), threads);
    }

    /** What a server knows of a job now. */
    public JobStatus lookup(String descriptor) {
        return lookup(descriptor, 0);
    }

    /**
     * Waits until a job has ended, or that time is over: then its state is not an end. A job that leaves no result, and
     * is not kept, is not found when it has ended.
     */
    public JobStatus await(String descriptor, Duration timeout) {
        long endNanos = System.nanoTime() + timeout.toNanos();
        while (true) {
            long leftMs = Math.max(0, TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime()));
            JobStatus found = lookup(descriptor, Math.min(leftMs, LONGEST_WAIT_MS));
            if (found.state().isEnd() || leftMs == 0) {
                return found;
            }
            Calls.pause(Math.min(leftMs, EARLY_PAUSE_MS)); // a server that stops answers at once
        }
    }

    /** As {@link #await}, in another thread. Up to 32 such calls wait at once, and others wait for them. */
    public CompletableFuture<JobStatus> awaitAsync(String descriptor, Duration timeout) {
        return CompletableFuture.supplyAsync(() -> await(descriptor, timeout), threads);
    }

    private JobStatus lookup(String descriptor, long waitMs) {
        PinLaterLookupJobRequest request = new PinLaterLookupJobRequest(List.of(descriptor))
                .setIncludeResult(true)
                .setWaitMillis((int) waitMs);
        PinLaterJobInfo info =
                calls.call(waitMs, (client, context) -> client.lookupJobs(context, request)).get(descriptor);
        return JobStatus.of(descriptor, info);
    }

    /** Ends what is under way in other threads, and closes the connections. */
    @Override
    public void close() {
        threads.shutdownNow();
        calls.close();
    }
}
