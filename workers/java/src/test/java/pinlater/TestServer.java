package pinlater;

import com.pinterest.pinlater.thrift.CancelJobsRequest;
import com.pinterest.pinlater.thrift.CancelMode;
import com.pinterest.pinlater.thrift.CommandWorkersRequest;
import com.pinterest.pinlater.thrift.GetWorkersRequest;
import com.pinterest.pinlater.thrift.GetWorkersResponse;
import com.pinterest.pinlater.thrift.PinLaterDeleteJobsRequest;
import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import com.pinterest.pinlater.thrift.PinLaterJobState;
import com.pinterest.pinlater.thrift.PinLaterLookupJobRequest;
import com.pinterest.pinlater.thrift.WorkerCommand;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A real server on the embedded store: {@code pinlater serve}, by the command of the environment variable PINLATER_COMMAND
 * or else the program of that name on the PATH.
 */
final class TestServer implements AutoCloseable {
    private static final Duration STARTS_WITHIN = Duration.ofSeconds(60);
    private static final long ENDS_WITHIN_S = 60;

    private final Path folder;
    private final int port;
    private final List<String> arguments;
    private Process process;
    final Calls calls;

    TestServer(String... arguments) throws IOException {
        this.arguments = List.of(arguments);
        folder = Files.createTempDirectory("pinlater-test");
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        calls = new Calls(Cluster.builder(address()).callTimeout(STARTS_WITHIN).build(), () -> {});
        start();
    }

    Cluster cluster() {
        return Cluster.of(address());
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    int port() {
        return port;
    }

    Path folder() {
        return folder;
    }

    /** Returns when it takes calls. */
    void start() throws IOException {
        String command = System.getenv().getOrDefault("PINLATER_COMMAND", "pinlater");
        List<String> whole = new ArrayList<>(List.of(command.split(" ")));
        whole.addAll(List.of("serve", "--port", String.valueOf(port), "--maintenance-interval", "200ms"));
        whole.addAll(arguments);
        ProcessBuilder builder = new ProcessBuilder(whole)
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(folder.resolve("server.log").toFile()));
        builder.environment().keySet().removeIf(name -> name.startsWith("PINLATER_"));
        process = builder.start();
        try {
            calls.call((client, context) -> client.getQueueNames(context));
        } catch (CallException error) {
            throw new IOException("the server does not start: " + Files.readString(folder.resolve("server.log")), error);
        }
    }

    /** By SIGTERM; returns when it has ended. */
    void stop() throws Exception {
        process.destroy();
        awaitEnd();
    }

    /** By SIGKILL, of all its processes. */
    void kill() throws Exception {
        process.descendants().forEach(ProcessHandle::destroyForcibly);
        process.destroyForcibly();
        awaitEnd();
    }

    private void awaitEnd() throws InterruptedException {
        if (!process.waitFor(ENDS_WITHIN_S, TimeUnit.SECONDS)) {
            throw new AssertionError("the server does not end");
        }
    }

    /** It hangs: the kernel takes connections and bytes, and nobody answers. */
    void hang() throws Exception {
        signal("-STOP");
    }

    void goOn() throws Exception {
        signal("-CONT");
    }

    private void signal(String name) throws Exception {
        List<String> command = new ArrayList<>(List.of("kill", name, String.valueOf(process.pid())));
        process.descendants().forEach(each -> command.add(String.valueOf(each.pid())));
        new ProcessBuilder(command).start().waitFor();
    }

    void createQueue(String queue) {
        calls.call((client, context) -> {
            client.createQueue(context, queue);
            return null;
        });
    }

    PinLaterJobInfo info(String descriptor) {
        PinLaterLookupJobRequest request =
                new PinLaterLookupJobRequest(List.of(descriptor)).setIncludeBody(true).setIncludeTrail(true);
        return calls.call((client, context) -> client.lookupJobs(context, request)).get(descriptor);
    }

    /** Asks that a running job stops. */
    void cancel(String descriptor) {
        CancelJobsRequest request =
                new CancelJobsRequest(Job.queueOf(descriptor), List.of(descriptor)).setMode(CancelMode.ALSO_RUNNING);
        calls.call((client, context) -> client.cancelJobs(context, request));
    }

    /** Takes the claims of what runs there away. */
    void deleteRunning(String queue) {
        PinLaterDeleteJobsRequest request = new PinLaterDeleteJobsRequest(queue, PinLaterJobState.IN_PROGRESS);
        calls.call((client, context) -> client.deleteJobs(context, request));
    }

    /** All of them together. */
    GetWorkersResponse workers() {
        return calls.call((client, context) -> client.getWorkers(context, new GetWorkersRequest()));
    }

    /** Each worker hears it with its next report. */
    void command(WorkerCommand command) {
        CommandWorkersRequest request = new CommandWorkersRequest(command).setAllWorkers(true);
        calls.call((client, context) -> client.commandWorkers(context, request));
    }

    @Override
    public void close() throws Exception {
        calls.close();
        if (process.isAlive()) {
            goOn();
            kill();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }
}
