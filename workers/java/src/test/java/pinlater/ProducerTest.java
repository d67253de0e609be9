package pinlater;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

final class ProducerTest {
    private static final String QUEUE = "mail";

    private static TestServer server;
    private static Producer producer;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
        server.createQueue(QUEUE);
        producer = new Producer(server.cluster());
    }

    @AfterAll
    static void stop() throws Exception {
        producer.close();
        server.close();
    }

    @Test
    void aJobIsStoredWithItsOptions() throws Exception {
        Instant time = Instant.ofEpochMilli(System.currentTimeMillis() + 3_600_000);
        String job = producer.enqueue(QUEUE, NewJob.of("send", Map.of("to", "ä"))
                .args(1, "b").header("traceparent", "00-1").runAt(time).priority(2).attempts(3)
                .dedupeKey("key").serializeKey("line").group("tenant").tags("red").keepResult(true));
        PinLaterJobInfo info = server.info(job);
        assertEquals(time.toEpochMilli(), info.getRunAfterTimestampMillis());
        assertEquals(3, info.getAttemptsAllowed());
        assertEquals(List.of("key", "line", "tenant"),
                List.of(info.getDedupeKey(), info.getSerializeKey(), info.getGroup()));
        assertEquals(List.of("red"), info.getTags());
        assertTrue(job.contains(":p2:"), job);
        Envelope envelope = Envelope.read(info.getBody());
        assertEquals(new Envelope("send", List.of(1L, "b"), Map.of("to", "ä"),
                Map.of("traceparent", "00-1", "pinlater-result", "1"), 0, 3), envelope);
        assertEquals(JobStatus.State.SCHEDULED, producer.lookup(job).state());
    }

    @Test
    void withoutOptionsAJobHasTheAttemptsOfTheStandardRetries() {
        assertEquals(11, server.info(producer.enqueue(QUEUE, "send", Map.of())).getAttemptsAllowed());
    }

    @Test
    void manyAreStoredInOrder() {
        List<NewJob> jobs = new ArrayList<>();
        for (int number = 0; number < 100; number++) {
            jobs.add(NewJob.raw(new byte[] {(byte) number}));
        }
        List<String> descriptors = producer.enqueueMany(QUEUE, jobs);
        assertEquals(100, descriptors.stream().distinct().count());
        for (int number = 0; number < 100; number += 33) {
            assertArrayEquals(new byte[] {(byte) number}, server.info(descriptors.get(number)).getBody());
        }
        assertEquals(List.of(), producer.enqueueMany(QUEUE, List.of()));
    }

    @Test
    void jobsOfDifferentKeysMayBeEnqueuedTogether() {
        List<String> made = producer.enqueueMany(QUEUE, List.of(
                NewJob.of("send", Map.of()).dedupeKey("together-1"), NewJob.of("send", Map.of()).serializeKey("s"),
                NewJob.of("send", Map.of())));
        assertEquals(3, made.stream().distinct().count());
    }

    @Test
    void aDedupeKeyThatIsTakenAnswersTheJobThatStands() {
        NewJob job = NewJob.of("send", Map.of()).dedupeKey("taken");
        assertEquals(producer.enqueue(QUEUE, job), producer.enqueue(QUEUE, job));
    }

    @Test
    void largeBodiesAndAllBytesAreKept() {
        byte[] body = new byte[900_000];
        for (int index = 0; index < body.length; index++) {
            body[index] = (byte) index;
        }
        assertArrayEquals(body, server.info(producer.enqueue(QUEUE, NewJob.raw(body))).getBody());
    }

    @Test
    void refusalsSayWhy() {
        CallException missing = assertThrows(CallException.class, () -> producer.enqueue("nowhere", "a", Map.of()));
        assertEquals("QUEUE_NOT_FOUND", missing.reason());
        assertFalse(missing.retryable());
        CallException large = assertThrows(
                CallException.class, () -> producer.enqueue(QUEUE, NewJob.raw(new byte[2_000_000])));
        assertEquals("BODY_TOO_LARGE", large.reason());
        assertThrows(IllegalArgumentException.class, () -> NewJob.of("no/type", Map.of()));
    }

    @Test
    void anUnknownJobIsNotFound() {
        JobStatus found = producer.await(QUEUE + ":s1:p1:1700000000000000", Duration.ofSeconds(30));
        assertEquals(JobStatus.State.NOT_FOUND, found.state());
    }

    @Test
    void aWaitThatIsOverSaysTheState() {
        String job = producer.enqueue(QUEUE, "send", Map.of());
        assertEquals(JobStatus.State.READY, producer.await(job, Duration.ofMillis(50)).state());
    }

    @Test
    void futuresFailWithTheErrorOfTheCall() {
        CompletableFuture<String> future = producer.enqueueAsync("nowhere", NewJob.of("a", Map.of()));
        Throwable thrown = assertThrows(ExecutionException.class, future::get).getCause();
        assertEquals("QUEUE_NOT_FOUND", ((CallException) thrown).reason());
    }
}
