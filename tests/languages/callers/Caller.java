// The scenario of tests/languages/scenario.py, through Apache's library for Java.
// java Caller HOST PORT framed|buffered binary|compact CA.p12|- CALLER.p12|- KEY|- TOKEN|- QUEUE PASSWORD
import com.pinterest.pinlater.thrift.*;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import javax.net.ssl.*;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.TTransportException;
import org.apache.thrift.transport.layered.TFramedTransport;

public class Caller {
    private static final char[] STORE_PASSWORD = "changeit".toCharArray();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    private final String[] given;
    private final String queue;
    private final RequestContext caller = new RequestContext("caller");
    private TTransport transport;
    private PinLater.Client client;

    private Caller(String[] given) {
        this.given = given;
        queue = given[8];
        if (!given[7].equals("-")) {
            caller.setToken(given[7]);
        }
    }

    public static void main(String[] given) throws Exception {
        Caller caller = new Caller(given);
        try {
            caller.open();
            caller.run();
        } catch (PinLaterException error) {
            OUT.println("REFUSED " + error.getReason());
        }
        caller.transport.close();
    }

    private void open() throws Exception {
        int port = Integer.parseInt(given[1]);
        TSocket socket;
        if (given[4].equals("-")) {
            socket = new TSocket(given[0], port, 30_000);
            socket.open();
        } else {
            SSLSocket secure = (SSLSocket) context().getSocketFactory().createSocket(given[0], port);
            SSLParameters parameters = secure.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS"); // else any name of the authority would do
            secure.setSSLParameters(parameters);
            socket = new TSocket(secure);
        }
        transport = given[2].equals("framed") ? new TFramedTransport(socket) : socket; // which buffers by itself
        client = new PinLater.Client(
                given[3].equals("compact") ? new TCompactProtocol(transport) : new TBinaryProtocol(transport));
    }

    private SSLContext context() throws Exception {
        TrustManagerFactory trusted = TrustManagerFactory.getInstance("PKIX");
        trusted.init(store(given[4]));
        KeyManagerFactory shown = KeyManagerFactory.getInstance("PKIX");
        if (given[5].equals("-")) {
            shown.init(null, null);
        } else {
            shown.init(store(given[5]), STORE_PASSWORD);
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(shown.getKeyManagers(), trusted.getTrustManagers(), null);
        return context;
    }

    private static KeyStore store(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream stream = new FileInputStream(file)) {
            store.load(stream, STORE_PASSWORD);
        }
        return store;
    }

    private static void say(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) {
            line.append(line.length() == 0 ? "" : " ").append(word instanceof Boolean ? ((Boolean) word ? 1 : 0) : word);
        }
        OUT.println(line);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    private static PinLaterJob job(String body) {
        return new PinLaterJob(ByteBuffer.wrap(body.getBytes(StandardCharsets.UTF_8)));
    }

    private PinLaterEnqueueResponse enqueue(String into, PinLaterJob job) throws TException {
        return client.enqueueJobs(caller, new PinLaterEnqueueRequest(into, List.of(job)));
    }

    private String stored(PinLaterJob job) throws TException {
        return enqueue(queue, job).getJobDescriptors().get(0);
    }

    private PinLaterJobInfo lookup(String descriptor) throws TException {
        PinLaterLookupJobRequest asked = new PinLaterLookupJobRequest(List.of(descriptor));
        return client.lookupJobs(caller, asked.setIncludeBody(true).setIncludeResult(true)).get(descriptor);
    }

    private int count(boolean future) throws TException {
        PinLaterGetJobCountRequest asked = new PinLaterGetJobCountRequest(queue, PinLaterJobState.PENDING);
        return client.getJobCount(caller, asked.setCountFutureJobs(future));
    }

    private PinLaterDequeueResponse dequeue(int limit) throws TException {
        PinLaterDequeueRequest asked = new PinLaterDequeueRequest(queue, limit);
        return client.dequeueJobs(caller, asked.setWaitMillis(1000).setClaimTimeoutMillis(600_000));
    }

    private boolean isInQueues() throws TException {
        return client.getQueueNames(caller).contains(queue);
    }

    private void ack(String step, List<PinLaterJobAckInfo> succeeded, List<PinLaterJobAckInfo> failed)
            throws TException {
        PinLaterJobAckRequest asked = new PinLaterJobAckRequest(queue);
        asked.setJobsSucceeded(succeeded).setJobsFailed(failed);
        StringBuilder line = new StringBuilder(step);
        for (AckOutcome outcome : client.ackJobs(caller, asked).getOutcomes()) {
            line.append(' ').append(outcome.getValue());
        }
        say(line);
    }

    private static PinLaterJobAckInfo ackOf(String descriptor, PinLaterDequeueResponse taken) {
        String claim = taken.getJobMetadata().get(descriptor).getClaimDescriptor();
        return new PinLaterJobAckInfo(descriptor).setClaimDescriptor(claim);
    }

    private void pause(String step) throws Exception {
        say(step + "?");
        ANSWERS.readLine();
        int jobs;
        try {
            jobs = count(true);
        } catch (TTransportException error) {
            transport.close();
            open();
            say(step, "broken", count(true));
            return;
        }
        say(step, "kept", jobs);
    }

    private void flow() throws TException {
        FlowStage first = new FlowStage("add", queue + "_steps");
        FlowStage second = new FlowStage("total", queue + "_steps").setParentStage("add");
        CreateFlowRequest asked = new CreateFlowRequest("sums", List.of(first, second));
        CreateFlowResponse made = client.createFlow(caller, asked.setMetadata(Map.of("month", "11")));
        FlowStatus status = client.getFlow(caller, new GetFlowRequest(made.getId()));
        StringBuilder shown = new StringBuilder(status.getMetadata().get("month"));
        for (StageStatus each : status.getStages()) {
            shown.append(' ').append(each.getStage().getName()).append('<').append(each.getStage().getParentStage());
        }
        say("flow", made.isIsNew(), shown);
    }

    private void run() throws Exception {
        client.createQueue(caller, queue);
        say("create");
        String plain = stored(job("plain"));
        say("plain");
        PinLaterJob named = job("keyed").setDedupeKey("key").setPriority((byte) 2);
        String keyed = stored(named);
        PinLaterEnqueueResponse again = enqueue(queue, named);
        int outcome = again.getOutcomes().get(0).getValue();
        say("keyed", outcome, again.getJobDescriptors().get(0).equals(keyed));
        byte[] all = new byte[256];
        byte[] large = new byte[100_000];
        for (int index = 0; index < large.length; index++) {
            large[index] = (byte) (index % 251);
            all[index % 256] = (byte) (index % 256);
        }
        PinLaterJob ofGroup = new PinLaterJob(ByteBuffer.wrap(all)).setPriority((byte) 3).setNumAttemptsAllowed(7);
        ofGroup.setCustomStatus("grüße 日本 🚀").setGroup("tenant-é").setTags(List.of("red", "grün"));
        String grouped = stored(ofGroup);
        PinLaterJobInfo info = lookup(grouped);
        String tags = String.join(",", info.getTags());
        say("group", info.getGroup(), tags, info.getCustomStatus(), info.getAttemptsAllowed());
        String delayed = stored(job("later").setRunAfterTimestampMillis(4_000_000_000_123L));
        say("delayed", lookup(delayed).getRunAfterTimestampMillis());
        say("count", count(false), count(true));
        say("names", isInQueues());
        PinLaterDequeueResponse taken = dequeue(10);
        for (String each : List.of(plain, keyed, grouped)) {
            PinLaterDequeueMetadata metadata = taken.getJobMetadata().get(each);
            String body = hex(bytes(taken.getJobs().get(each)));
            say("dequeued", metadata.getPriority(), metadata.getAttemptsAllowed(), body);
        }
        PinLaterJobAckInfo good = ackOf(plain, taken);
        PinLaterCheckpointJobRequest point = new PinLaterCheckpointJobRequest(plain).setPrependCustomStatus("half");
        point.setClaimDescriptor(good.getClaimDescriptor()).setNewBodyBytes(new byte[] {0, -1});
        client.checkpointJobs(caller, new PinLaterCheckpointJobsRequest(queue, List.of(point)));
        info = lookup(plain);
        say("checkpoint", info.getJobState().getValue(), hex(info.getBody()), info.getCustomStatus());
        good.setResult(new byte[] {0, -1, -128}).setProgress(new JobProgress().setFraction(0.5));
        PinLaterJobAckInfo bad = ackOf(keyed, taken).setPermanent(true);
        ack("ack", List.of(good), List.of(bad, ackOf(grouped, taken).setRetryDelayMillis(3_600_000)));
        ack("stale", List.of(good), List.of());
        info = lookup(plain);
        say("result", info.getJobState().getValue(), hex(info.getResult()), info.getProgress().getFraction());
        PinLaterScanJobsRequest succeeded = new PinLaterScanJobsRequest(queue, PinLaterJobState.SUCCEEDED);
        PinLaterScanJobsResponse page = client.scanJobs(caller, succeeded);
        boolean isFirst = page.getScannedJobs().get(0).getJobDescriptor().equals(plain);
        say("scan", page.getScannedJobsSize(), isFirst, page.getContinuation());
        try {
            enqueue("nowhere", job("lost"));
        } catch (PinLaterException error) {
            say("error", error.getErrorCode().getValue(), error.getReason(), error.isRetryable());
        }
        flow();
        CancelJobsResponse cancelled = client.cancelJobs(caller, new CancelJobsRequest(queue, List.of(delayed)));
        say("cancel", cancelled.getOutcomes().get(delayed).getValue());
        String largest = stored(new PinLaterJob(ByteBuffer.wrap(large)));
        PinLaterDequeueResponse came = dequeue(1);
        byte[] body = bytes(came.getJobs().get(largest));
        say("large", body.length, Arrays.equals(body, large));
        ack("ended", List.of(ackOf(largest, came)), List.of());
        say("identity", client.getAccess(caller).getIdentity());
        pause("idle");
        pause("restart");
        client.deleteQueue(caller, queue, given[9]);
        say("delete", isInQueues());
    }
}
