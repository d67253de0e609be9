package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What happens when servers stop, die or hang. */
final class ServerFaultsTest {
    private static final String QUEUE = "mail";
    private static final Duration LONG = Duration.ofSeconds(60);

    private final Events events = new Events();
    private final CountDownLatch release = new CountDownLatch(1);
    private TestServer server;

    @BeforeEach
    void start() throws Exception {
        server = new TestServer();
        server.createQueue(QUEUE);
    }

    @AfterEach
    void stop() throws Exception {
        release.countDown();
        server.close();
    }

    private Cluster cluster(String... before) {
        List<String> servers = new ArrayList<>(List.of(before));
        servers.add(server.address());
        return Cluster.builder(servers.toArray(new String[0])).callTimeout(LONG).build();
    }

    private Worker worker(Cluster cluster) {
        return Worker.builder(cluster)
                .queue(QUEUE)
                .listener(events)
                .drain(Duration.ZERO)
                .handle("job", job -> release.await(60, TimeUnit.SECONDS))
                .handle("noop", job -> null)
                .build()
                .start();
    }

    @Test
    void aJobThatEndsWhileTheServerIsAwayRunsOnce() throws Exception {
        try (Producer producer = new Producer(cluster()); Worker worker = worker(cluster())) {
            String job = producer.enqueue(QUEUE, "job", Map.of());
            events.await("begun " + job + " 1");
            server.stop();
            release.countDown();
            events.await("ended " + job + " SUCCEEDED");
            server.start();
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
            String next = producer.enqueue(QUEUE, "noop", Map.of());
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(next, LONG).state());
            assertEquals(1, events.all().stream().filter(each -> each.startsWith("begun " + job)).count());
        }
    }

    @Test
    void aServerThatIsKilledIsNotMissed() throws Exception {
        try (Producer producer = new Producer(cluster()); Worker worker = worker(cluster())) {
            String job = producer.enqueue(QUEUE, "job", Map.of());
            events.await("begun " + job + " 1");
            server.kill();
            server.start();
            release.countDown();
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
            assertEquals(0, server.info(job).getCrashes());
        }
    }

    @Test
    void aServerThatHangsForAWhileCostsNothing() throws Exception {
        try (Producer producer = new Producer(cluster()); Worker worker = worker(cluster())) {
            String job = producer.enqueue(QUEUE, "job", Map.of());
            events.await("begun " + job + " 1");
            server.hang();
            CompletableFuture<String> enqueued = producer.enqueueAsync(QUEUE, NewJob.raw(new byte[900_000]));
            release.countDown();
            events.await("ended " + job + " SUCCEEDED");
            Thread.sleep(7_000); // longer than the time-out of a call: it is sent again
            server.goOn();
            enqueued.get(60, TimeUnit.SECONDS);
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
            String next = producer.enqueue(QUEUE, "noop", Map.of());
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(next, LONG).state());
        }
    }

    @Test
    void anEnqueueWhoseAnswerWasLostIsStoredOnce() throws Exception {
        try (Producer producer = new Producer(cluster())) {
            server.hang();
            CompletableFuture<String> enqueued = producer.enqueueAsync(QUEUE, NewJob.of("noop", Map.of()));
            Thread.sleep(2_000); // it was sent
            server.goOn();
            String job = enqueued.get(60, TimeUnit.SECONDS);
            assertEquals(JobStatus.State.READY, producer.lookup(job).state());
        }
    }

    @Test
    void aServerThatNeverAnswersIsPassedOver() throws Exception {
        try (ServerSocket hung = new ServerSocket(0);
                Producer producer = new Producer(
                        Cluster.builder("127.0.0.1:" + hung.getLocalPort(), server.address()).build());
                Worker worker = worker(cluster("127.0.0.1:" + hung.getLocalPort()))) {
            for (int number = 0; number < 3; number++) {
                String job = producer.enqueue(QUEUE, "noop", Map.of());
                assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
            }
        }
    }

    private static final class Names implements ServerList.Resolver {
        private volatile List<String> addresses;

        Names(String... addresses) {
            this.addresses = List.of(addresses);
        }

        @Override
        public InetAddress[] addressesOf(String name) throws UnknownHostException {
            if (addresses.isEmpty()) {
                throw new UnknownHostException(name);
            }
            InetAddress[] found = new InetAddress[addresses.size()];
            for (int number = 0; number < found.length; number++) {
                found[number] = InetAddress.getByAddress(name, InetAddress.getByName(addresses.get(number)).getAddress());
            }
            return found;
        }
    }

    private Cluster named(Names names) {
        return Cluster.builder("dns:queue.invalid:" + server.port()).resolver(names).callTimeout(LONG).build();
    }

    @Test
    void aDeadAddressOfANameIsPassedOver() {
        for (int number = 0; number < 3; number++) { // another address may be the first
            Cluster cluster = named(new Names("127.0.0.2", "127.0.0.1", "127.0.0.3"));
            try (Producer producer = new Producer(cluster); Worker worker = worker(cluster)) {
                String job = producer.enqueue(QUEUE, "noop", Map.of());
                assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
            }
        }
    }

    @Test
    void anAddressOfANameThatHangsIsPassedOver() throws Exception {
        try (ServerSocket hung = new ServerSocket(server.port(), 50, InetAddress.getByName("127.0.0.2"))) {
            for (int number = 0; number < 3; number++) { // one of them begins with the one that hangs
                Cluster cluster = Cluster.builder("dns:queue.invalid:" + server.port())
                        .resolver(new Names("127.0.0.2", "127.0.0.1"))
                        .build();
                try (Producer producer = new Producer(cluster)) {
                    assertEquals(QUEUE, Job.queueOf(producer.enqueue(QUEUE, "noop", Map.of())));
                }
            }
        }
    }

    @Test
    void aNameIsLookedUpAgainWhenItsServersFail() throws Exception {
        Names names = new Names();
        Cluster hasty = Cluster.builder("dns:queue.invalid:" + server.port())
                .resolver(names)
                .callTimeout(Duration.ofMillis(300))
                .build();
        try (Producer producer = new Producer(hasty)) {
            CallException error = assertThrows(CallException.class, () -> producer.enqueue(QUEUE, "noop", Map.of()));
            assertEquals(CallException.SERVER_UNREACHABLE, error.reason());
            assertTrue(error.getMessage().contains("dns:queue.invalid:" + server.port()), error.getMessage());
        }
        try (Producer producer = new Producer(named(names)); Worker worker = worker(named(names))) {
            names.addresses = List.of("127.0.0.2"); // nobody is there
            CompletableFuture<String> enqueued = producer.enqueueAsync(QUEUE, NewJob.of("noop", Map.of()));
            names.addresses = List.of("127.0.0.1");
            String job = enqueued.get(60, TimeUnit.SECONDS);
            assertEquals(JobStatus.State.SUCCEEDED, producer.await(job, LONG).state());
        }
    }

    @Test
    void aNameIsWhatCertificatesAreFor() {
        Cluster.Server named = Cluster.Server.of("dns:queue:9011");
        assertEquals(new Cluster.Server("queue", 9011, true, null), named);
        assertEquals("queue", named.at(InetAddress.getLoopbackAddress()).host());
        assertEquals(new Cluster.Server("queue", 9010, true, null), Cluster.Server.of("dns:queue"));
        assertEquals(new Cluster.Server("dns", 9011, false, null), Cluster.Server.of("dns:9011"));
    }

    @Test
    void aCallIntoAStalledNetworkEnds() throws Exception {
        try (ServerSocket hung = new ServerSocket(0);
                Producer producer = new Producer(Cluster.builder("127.0.0.1:" + hung.getLocalPort())
                        .callTimeout(Duration.ofSeconds(3))
                        .build())) {
            NewJob job = NewJob.raw(new byte[15 << 20]); // more than the kernel takes
            CallException error = assertThrows(CallException.class, () -> producer.enqueue(QUEUE, job));
            assertEquals(CallException.OUTCOME_UNKNOWN, error.reason());
        }
    }

    @Test
    void withoutAServerTheErrorNamesEachThatWasTried() throws Exception {
        server.stop();
        Cluster cluster = Cluster.builder(server.address()).callTimeout(Duration.ofMillis(300)).build();
        try (Producer producer = new Producer(cluster)) {
            CallException error =
                    assertThrows(CallException.class, () -> producer.enqueue(QUEUE, "noop", Map.of()));
            assertEquals(CallException.SERVER_UNREACHABLE, error.reason());
            assertTrue(error.getMessage().contains(server.address()), error.getMessage());
            assertTrue(error.retryable());
        }
    }

    @Test
    void aWorkerWhoseTokenNoServerKnowsEndsWithTheError() {
        Cluster cluster = Cluster.builder(server.address()).token("plt_" + "x".repeat(43)).build();
        Worker worker = Worker.builder(cluster).queue(QUEUE).handle("noop", job -> null).build();
        assertEquals("FORBIDDEN", assertThrows(CallException.class, worker::run).reason());
    }

    @Test
    void aTokenFileThatOthersCanReadIsRefused() throws Exception {
        Path file = Files.createFile(server.folder().resolve("token"));
        Files.writeString(file, "plt_x\n");
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
        Cluster.Builder builder = Cluster.builder("a:1").tokenFile(file);
        assertThrows(IllegalArgumentException.class, builder::build);
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        assertEquals("plt_x", builder.build().token());
    }
}
