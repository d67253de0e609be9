package pinlater;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import com.pinterest.pinlater.thrift.PinLaterJobState;
import com.pinterest.pinlater.thrift.WorkerCommand;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

final class WorkerTest {
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final AtomicInteger QUEUES = new AtomicInteger();

    private static TestServer server;
    private static Producer producer;

    private final Events events = new Events();
    private final CountDownLatch release = new CountDownLatch(1);
    private String queue;
    private Worker worker;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        producer = new Producer(server.cluster());
    }

    @AfterAll
    static void stop() throws Exception {
        producer.close();
        server.close();
    }

    @BeforeEach
    void createQueue() {
        queue = "queue" + QUEUES.incrementAndGet();
        server.createQueue(queue);
    }

    @AfterEach
    void stopWorker() {
        release.countDown();
        if (worker != null) {
            worker.close();
        }
    }

    private Worker.Builder builder() {
        return Worker.builder(server.cluster()).queue(queue).listener(events);
    }

    private void start(Worker.Builder builder) {
        worker = builder.build().start();
    }

    private void handle(Handler handler) {
        start(builder().handle("job", handler));
    }

    private String enqueue() {
        return producer.enqueue(queue, "job", Map.of());
    }

    private JobStatus ended(String job) {
        JobStatus found = producer.await(job, LONG);
        assertTrue(found.state().isEnd(), () -> found + " " + events.all());
        return found;
    }

    private void assertHandedBack(String job) {
        PinLaterJobInfo info = server.info(job);
        assertEquals(PinLaterJobState.PENDING, info.getJobState());
        assertEquals(info.getAttemptsAllowed(), info.getAttemptsRemaining());
        assertEquals(0, info.getCrashes());
    }

    @Test
    void aJobRunsOnceAndLeavesItsResult() {
        handle(job -> Map.of("name", job.text("name"), "size", job.number("size") + 1, "attempt", job.attempt()));
        String job = producer.enqueue(queue, NewJob.of("job", Map.of("name", "ä🦊", "size", 1)).keepResult(true));
        JobStatus found = ended(job);
        assertEquals(JobStatus.State.SUCCEEDED, found.state());
        assertEquals(Map.of("name", "ä🦊", "size", 2L, "attempt", 1L), found.result());
        assertEquals(1, events.count("begun " + job + " 1"));
    }

    @Test
    void aFutureIsWaitedFor() {
        start(builder().handleWithResult("job", RetryPolicy.never(), job -> CompletableFuture.supplyAsync(() -> 7)));
        assertEquals(7L, ended(enqueue()).result());
    }

    @Test
    void manyJobsOfTwoQueuesRunOnce() throws Exception {
        String other = queue + "b";
        server.createQueue(other);
        start(builder().queue(other, 3).slots(16).handle("job", job -> null));
        List<NewJob> jobs = Collections.nCopies(500, NewJob.of("job", Map.of()));
        List<String> first = producer.enqueueMany(queue, jobs);
        List<String> second = producer.enqueueMany(other, jobs);
        for (String job : first) {
            events.await("ended " + job + " SUCCEEDED");
        }
        for (String job : second) {
            events.await("ended " + job + " SUCCEEDED");
        }
        assertEquals(1_000, events.all().stream().filter(each -> each.startsWith("begun")).count());
    }

    @Test
    void rawBodiesArriveByteForByte() throws Exception {
        byte[] body = new byte[256];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) index;
        }
        BlockingQueue<byte[]> received = new LinkedBlockingQueue<>();
        start(builder().handleRaw(queue, job -> received.add(job.body())));
        assertEquals(JobStatus.State.SUCCEEDED, ended(producer.enqueue(queue, NewJob.raw(body))).state());
        assertArrayEquals(body, received.take());
    }

    @Test
    void anErrorIsRetriedByThePolicyAndRecorded() throws Exception {
        start(builder().handle("job", RetryPolicy.constant(Duration.ofMillis(10), 2), job -> {
            throw new IOException("mx" + job.attempt() + " refused");
        }));
        String job = enqueue();
        JobStatus found = ended(job);
        assertEquals(JobStatus.State.FAILED, found.state());
        assertTrue(found.text().contains("attempt 1 of 11: IOException: mx1 refused (WorkerTest.java:"), found.text());
        assertTrue(found.text().contains("attempt 3 of 11: IOException: mx3 refused"), found.text());
        assertEquals(2, events.count("ended " + job + " RETRY"));
        events.await("ended " + job + " FAILED");
    }

    @Test
    void theJobsOwnNumberOfAttemptsCounts() throws Exception {
        start(builder().handle("job", RetryPolicy.constant(Duration.ofMillis(10), 0), job -> {
            throw new IllegalStateException();
        }));
        String job = producer.enqueue(queue, NewJob.of("job", Map.of()).attempts(2));
        assertEquals(JobStatus.State.FAILED, ended(job).state());
        assertEquals(1, events.count("begun " + job + " 2"));
    }

    @Test
    void signalsOfTheHandlerDecide() throws Exception {
        handle(job -> {
            if (job.kwargs().containsKey("fail")) {
                throw new JobSignal.Fail("no such account");
            }
            if (job.attempt() == 1) {
                throw new JobSignal.RetryAfter(Duration.ofMillis(20));
            }
            if (job.snoozes() < 2) {
                throw new JobSignal.Snooze(Duration.ofMillis(20));
            }
            return null;
        });
        String failed = producer.enqueue(queue, "job", Map.of("fail", true));
        JobStatus found = ended(failed);
        assertEquals(JobStatus.State.FAILED, found.state());
        assertTrue(found.text().contains("no such account"), found.text());
        String job = enqueue();
        assertEquals(JobStatus.State.SUCCEEDED, ended(job).state());
        assertEquals(2, events.count("ended " + job + " SNOOZED"));
        assertEquals(3, events.count("begun " + job + " 2"));
    }

    @Test
    void aJobOfAnUnknownTypeIsRequeuedWithoutAnAttemptSpent() throws Exception {
        handle(job -> null);
        String job = producer.enqueue(queue, "other", Map.of());
        events.await("unknown " + queue + " other");
        Events.until("it is requeued", () -> server.info(job).getCustomStatus().contains("type other"));
        assertHandedBack(job);
    }

    @Test
    void aBodyThatCannotBeReadFailsForGood() {
        handle(job -> null);
        byte[] body = "PINLATER/1 application/json\n{".getBytes(StandardCharsets.US_ASCII);
        assertEquals(JobStatus.State.FAILED, ended(producer.enqueue(queue, NewJob.raw(body))).state());
    }

    @Test
    void aResultThatIsTooLargeFailsForGood() {
        start(builder().handleWithResult("job", RetryPolicy.standard(), job -> "x".repeat(100_000)));
        JobStatus found = ended(enqueue());
        assertEquals(JobStatus.State.FAILED, found.state());
        assertTrue(found.text().contains("RESULT_TOO_LARGE"), found.text());
    }

    @Test
    void progressAndLogLinesReachTheServerWhileTheJobRuns() throws Exception {
        handle(job -> {
            job.progress(0.25, "a quarter");
            job.log("first");
            job.log("second");
            return release.await(60, TimeUnit.SECONDS);
        });
        String job = enqueue();
        Events.until("all of it is there", () -> {
            PinLaterJobInfo info = server.info(job);
            return info.isSetProgress() && info.isSetLogLines() && info.getLogLines().size() == 2;
        });
        assertEquals(0.25, server.info(job).getProgress().getFraction());
        assertEquals("a quarter", server.info(job).getProgress().getText());
        assertEquals(List.of("first", "second"),
                server.info(job).getLogLines().stream().map(line -> line.getText()).toList());
    }

    @Test
    void aCancelledJobIsInterrupted() throws Exception {
        start(builder().lease(Duration.ofSeconds(3)).handle("job", job -> {
            new CountDownLatch(1).await();
            return null;
        }));
        String job = enqueue();
        events.await("begun " + job + " 1");
        server.cancel(job);
        assertEquals(JobStatus.State.CANCELLED, ended(job).state());
        events.await("stopped " + job + " CANCELLED");
        events.await("ended " + job + " CANCELLED");
    }

    @Test
    void anAttemptOverItsTimeLimitHasFailedAndItsSlotIsTakenUntilItsHandlerReturns() throws Exception {
        Duration limit = Duration.ofMillis(100);
        BlockingQueue<Throwable> policy = new LinkedBlockingQueue<>();
        RetryPolicy once = new RetryPolicy(10, (attempt, error) -> {
            policy.add(error);
            return null;
        });
        start(builder().slots(1)
                .handle("heeds", once, limit, job -> release.await(60, TimeUnit.SECONDS))
                .handleWithResult("stubborn", once, limit, job -> {
                    awaitUninterrupted(release);
                    return 1;
                })
                .handle("job", RetryPolicy.standard(), null, job -> null));
        for (String name : List.of("heeds", "stubborn")) {
            String job = producer.enqueue(queue, name, Map.of());
            JobStatus found = ended(job);
            assertEquals(JobStatus.State.FAILED, found.state());
            String begin = "attempt 1 of 11: TimeLimitExceeded: it ran longer than 0.1 s (WorkerTest.java:";
            assertTrue(found.text().startsWith(begin), found.text());
            events.await("stopped " + job + " TIME_LIMIT");
            events.await("ended " + job + " FAILED");
            assertInstanceOf(TimeLimitExceeded.class, policy.poll(60, TimeUnit.SECONDS));
        }
        String next = enqueue();
        Events.until("its slot is stuck", () -> server.workers().getStuckSlots() == 1);
        assertEquals(0, server.workers().getBusySlots());
        assertEquals(0, events.count("begun " + next + " 1"));
        release.countDown();
        assertEquals(JobStatus.State.SUCCEEDED, ended(next).state());
        assertEquals(3, events.all().stream().filter(each -> each.startsWith("ended")).count());
    }

    /** Whatever interrupts come. */
    private static void awaitUninterrupted(CountDownLatch latch) {
        while (latch.getCount() > 0) {
            try {
                latch.await();
            } catch (InterruptedException ignored) {
                // it goes on
            }
        }
    }

    @Test
    void aHandlerThatIsStuckOverItsTimeLimitKeepsNoWorkerFromItsEnd() throws Exception {
        start(builder().drain(Duration.ofDays(1)).handle("job", RetryPolicy.standard(), Duration.ofMillis(100), job -> {
            awaitUninterrupted(release);
            return null;
        }));
        String job = enqueue();
        events.await("ended " + job + " RETRY");
        worker.drain();
        worker.stopped().get(60, TimeUnit.SECONDS);
        assertEquals(10, server.info(job).getAttemptsRemaining());
    }

    @Test
    void aLostClaimIsToldAndNotAcked() throws Exception {
        BlockingQueue<StopReason> told = new LinkedBlockingQueue<>();
        start(builder().lease(Duration.ofSeconds(3)).handle("job", job -> {
            job.whenStopped().thenAccept(told::add);
            new CountDownLatch(1).await();
            return null;
        }));
        String job = enqueue();
        events.await("begun " + job + " 1");
        server.deleteRunning(queue);
        assertEquals(StopReason.LOST, told.poll(60, TimeUnit.SECONDS));
        events.await("ended " + job + " LOST");
    }

    @Test
    void aWorkerThatStopsGivesItsJobsTime() throws Exception {
        handle(job -> release.await(60, TimeUnit.SECONDS));
        String job = enqueue();
        events.await("begun " + job + " 1");
        worker.drain();
        release.countDown();
        worker.stopped().get(60, TimeUnit.SECONDS);
        assertEquals(PinLaterJobState.SUCCEEDED, server.info(job).getJobState());
    }

    @Test
    void whatDoesNotEndInTimeIsHandedBack() throws Exception {
        start(builder().drain(Duration.ofMillis(100)).handle("job", job -> release.await(60, TimeUnit.SECONDS)));
        String job = enqueue();
        events.await("begun " + job + " 1");
        worker.close();
        assertHandedBack(job);
        events.await("ended " + job + " HANDED_BACK");
    }

    @Test
    void aHurriedWorkerHandsBackAtOnce() throws Exception {
        start(builder().drain(Duration.ofDays(1)).handle("job", job -> release.await(60, TimeUnit.SECONDS)));
        String job = enqueue();
        events.await("begun " + job + " 1");
        worker.drain();
        worker.drainNow();
        worker.stopped().get(60, TimeUnit.SECONDS);
        assertHandedBack(job);
    }

    @Test
    void aDrainEndsTheWaitOfAnOperatorsStop() throws Exception {
        start(builder().drain(Duration.ZERO).handle("job", job -> release.await(60, TimeUnit.SECONDS)));
        String job = enqueue();
        events.await("begun " + job + " 1");
        server.command(WorkerCommand.STOP);
        events.await("draining");
        worker.drain();
        worker.stopped().get(60, TimeUnit.SECONDS);
        assertHandedBack(job);
    }

    @Test
    void aMissingQueueIsCreatedWhereItIsAskedFor() {
        worker = Worker.builder(server.cluster()).queue(queue + "new").createQueues().handle("job", job -> null).build();
        worker.start();
        String made = null;
        while (made == null) {
            try {
                made = producer.enqueue(queue + "new", "job", Map.of());
            } catch (CallException notYet) {
                assertEquals("QUEUE_NOT_FOUND", notYet.reason());
            }
        }
        assertEquals(JobStatus.State.SUCCEEDED, ended(made).state());
    }

    @Test
    void aListenerThatFailsChangesNothing() {
        start(builder().handle("job", job -> null).listener(new WorkerListener() {
            @Override
            public void begun(Job job) {
                throw new IllegalStateException("of the listener");
            }
        }));
        assertEquals(JobStatus.State.SUCCEEDED, ended(enqueue()).state());
    }

    @Test
    void settingsThatMakeNoWorkerAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> Worker.builder(server.cluster()).queue("a").build());
        assertThrows(IllegalArgumentException.class, () -> builder().queue("a", 0));
        assertThrows(IllegalArgumentException.class, () -> builder().handle("a", job -> null).slots(0).build());
        for (Duration wrong : List.of(Duration.ZERO, Duration.ofSeconds(Long.MAX_VALUE))) {
            assertThrows(IllegalArgumentException.class,
                    () -> builder().handle("a", RetryPolicy.never(), wrong, job -> null));
        }
        for (String wrong : List.of("a:b", "dns:", "dns::77", "dns:a:0", "dns:a:b", "dns:[::1]:77")) {
            assertThrows(IllegalArgumentException.class, () -> Cluster.of(wrong), wrong);
        }
        assertThrows(IllegalArgumentException.class, Cluster::of);
    }
}
