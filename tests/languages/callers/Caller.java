// One job, through Apache's library for Java over TLS.
// java Caller HOST PORT CA.p12 CALLER.p12|- QUEUE; prints the job's descriptor, or REFUSED and the reason.
import com.pinterest.pinlater.thrift.*;
import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.util.List;
import javax.net.ssl.*;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.layered.TFramedTransport;

public class Caller {
    private static final char[] PASSWORD = "changeit".toCharArray();

    public static void main(String[] given) throws Exception {
        TrustManagerFactory trusted = TrustManagerFactory.getInstance("PKIX");
        trusted.init(store(given[2]));
        KeyManagerFactory shown = KeyManagerFactory.getInstance("PKIX");
        if (given[3].equals("-")) {
            shown.init(null, null);
        } else {
            shown.init(store(given[3]), PASSWORD);
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(shown.getKeyManagers(), trusted.getTrustManagers(), null);
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(given[0], Integer.parseInt(given[1]));
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS"); // else any name of the authority would do
        socket.setSSLParameters(parameters);
        try (TFramedTransport transport = new TFramedTransport(new TSocket(socket))) {
            PinLater.Client client = new PinLater.Client(new TBinaryProtocol(transport));
            RequestContext caller = new RequestContext("java");
            client.createQueue(caller, given[4]);
            PinLaterJob job = new PinLaterJob(ByteBuffer.wrap("from java".getBytes(StandardCharsets.UTF_8)));
            PinLaterEnqueueRequest request = new PinLaterEnqueueRequest(given[4], List.of(job));
            System.out.println(client.enqueueJobs(caller, request).getJobDescriptors().get(0));
        } catch (PinLaterException error) {
            System.out.println("REFUSED " + error.getReason());
        }
    }

    private static KeyStore store(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream stream = new FileInputStream(file)) {
            store.load(stream, PASSWORD);
        }
        return store;
    }
}
