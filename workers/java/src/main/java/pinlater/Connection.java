package pinlater;

import com.pinterest.pinlater.thrift.PinLater;
import com.pinterest.pinlater.thrift.PinLaterException;
import com.pinterest.pinlater.thrift.RequestContext;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * One connection to one server, for one call at a time.
 *
 * <p>Sockets of Java have no time-out for writes, and one per read does not bound a call. So each call has a deadline, at
 * which another thread closes the socket: connecting, the handshake, a write into a stalled network and a half-open
 * connection all end then.
 */
final class Connection implements AutoCloseable {
    /** A call that a deadline bounds. */
    interface Exchange<T> {
        T on(PinLater.Client client, RequestContext context) throws TException;
    }

    /** Connecting takes no longer, whatever the call may take. */
    private static final int CONNECT_MS = 2_000;

    /** As much as servers take and send in one frame. */
    private static final int FRAME_BYTES = 16 << 20;

    private static final int PROBE_MS = 1;
    private static final ScheduledThreadPoolExecutor DEADLINES = deadlines();

    private final Socket plain;
    private final Socket socket;
    private final PinLater.Client client;
    private final RequestContext context;
    final Cluster.Server server;
    volatile boolean usable = true;
    long usedNanos = System.nanoTime();

    private Connection(Cluster cluster, Cluster.Server server, Socket plain) throws IOException, TException {
        this.server = server;
        this.plain = plain;
        plain.setTcpNoDelay(true);
        plain.setKeepAlive(true);
        InetSocketAddress address = server.address() == null
                ? new InetSocketAddress(server.host(), server.port())
                : new InetSocketAddress(server.address(), server.port());
        plain.connect(address, CONNECT_MS);
        socket = cluster.tls() == null ? plain : encrypted(cluster, plain, server.host());
        client = new PinLater.Client(new TBinaryProtocol(new TFramedTransport(new TSocket(socket), FRAME_BYTES)));
        context = new RequestContext(cluster.source());
        context.setToken(cluster.token());
    }

    /** A new connection, made within that time. IOException: none could be made, and nothing was sent. */
    static Connection open(Cluster cluster, Cluster.Server server, long timeoutMs) throws IOException {
        Socket plain = new Socket();
        ScheduledFuture<?> deadline = closeLater(plain, timeoutMs);
        boolean opened = false;
        try {
            Connection connection = new Connection(cluster, server, plain);
            opened = true;
            return connection;
        } catch (TException | IllegalArgumentException error) { // the latter: the file has no token now
            throw new IOException(error.getMessage(), error);
        } finally {
            deadline.cancel(false);
            if (!opened) {
                closeQuietly(plain);
            }
        }
    }

    private static SSLSocket encrypted(Cluster cluster, Socket plain, String host) throws IOException {
        SSLSocket socket = (SSLSocket) cluster.tls().getSocketFactory().createSocket(plain, host, plain.getPort(), true);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS"); // else any name of the authority would do
        socket.setSSLParameters(parameters);
        socket.startHandshake();
        return socket;
    }

    /** One call, or a part of one. TException: a refusal of the server, or the connection is of no use any more. */
    <T> T exchange(long timeoutMs, Exchange<T> exchange) throws TException {
        ScheduledFuture<?> deadline = closeLater(plain, timeoutMs);
        boolean whole = false;
        try {
            T answer = exchange.on(client, context);
            whole = true;
            return answer;
        } catch (PinLaterException refusal) {
            whole = true;
            throw refusal;
        } finally {
            usedNanos = System.nanoTime();
            if (!deadline.cancel(false) || !whole) {
                close(); // of an answer that comes later nobody may take it for another call's
            }
        }
    }

    /** The token that this connection shows; null: none. */
    String token() {
        return context.getToken();
    }

    /** Whether the other side has neither closed nor broken the connection, as far as this side has heard. */
    boolean isAlive() {
        try {
            socket.setSoTimeout(PROBE_MS);
            socket.getInputStream().read(); // the end of the stream, or a byte that nobody asked for
            close();
        } catch (SocketTimeoutException nothing) {
            restoreTimeout();
        } catch (IOException error) {
            close();
        }
        return usable;
    }

    private void restoreTimeout() {
        try {
            socket.setSoTimeout(0);
        } catch (IOException error) {
            close();
        }
    }

    /**
     * Ends a long poll: closes the sending side, and the server answers what it can. TLS has no such thing; there the
     * connection is closed, and the server requeues what was not confirmed.
     */
    void halfClose() {
        usable = false;
        try {
            if (socket == plain) {
                plain.shutdownOutput();
            } else {
                plain.close();
            }
        } catch (IOException error) {
            closeQuietly(plain);
        }
    }

    @Override
    public void close() {
        usable = false;
        closeQuietly(plain); // not the one of TLS: its close would wait for a write that is stuck
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException ignored) {
            // it is of no use any more, whatever becomes of it
        }
    }

    private static ScheduledFuture<?> closeLater(Socket socket, long timeoutMs) {
        return DEADLINES.schedule(() -> closeQuietly(socket), Math.max(1, timeoutMs), TimeUnit.MILLISECONDS);
    }

    private static ScheduledThreadPoolExecutor deadlines() {
        ScheduledThreadPoolExecutor made = new ScheduledThreadPoolExecutor(1, Threads.named("pinlater-deadlines"));
        made.setRemoveOnCancelPolicy(true);
        return made;
    }
}
