package pinlater;

import com.pinterest.pinlater.thrift.ErrorCode;
import com.pinterest.pinlater.thrift.PinLaterException;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TException;

/**
 * Calls that may be sent again, over connections that are kept, to whichever of the servers answers.
 *
 * <p>All calls of the kit may be sent twice: enqueues have send ids, acks and checkpoints name their claims, and the others
 * read. (A dequeue may not; it goes by a connection of its own.) So a call whose outcome is unknown is sent to the next
 * server, until its time is over.
 */
final class Calls implements AutoCloseable {
    /** One unused for longer is not used again: what lies between may have forgotten it. As in the Python client. */
    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(20);

    /** One in steady use is not probed before each call. */
    private static final long PROBED_NANOS = TimeUnit.SECONDS.toNanos(1);

    private static final long LEAST_ATTEMPT_MS = 1_000;
    private static final long FIRST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 2_000;

    private final Cluster cluster;
    private final ConcurrentLinkedDeque<Connection> idle = new ConcurrentLinkedDeque<>();
    private final AtomicInteger next;
    private final Runnable broken;
    private volatile boolean closed;

    /** {@code broken}: a connection is gone that claims may be bound to. */
    Calls(Cluster cluster, Runnable broken) {
        this.cluster = cluster;
        this.broken = broken;
        this.next = new AtomicInteger(ThreadLocalRandom.current().nextInt(1 << 16)); // not all ask the first
    }

    <T> T call(Connection.Exchange<T> exchange) {
        return call(0, exchange);
    }

    /** With the cluster's time-out. {@code waitMs}: how long the server may hold back its answer. */
    <T> T call(long waitMs, Connection.Exchange<T> exchange) {
        return call(cluster.callTimeout().toMillis(), waitMs, Integer.MAX_VALUE, exchange);
    }

    /** One attempt, for callers that try again by themselves. */
    <T> T once(long timeoutMs, Connection.Exchange<T> exchange) {
        return call(timeoutMs, 0, 1, exchange);
    }

    /**
     * The answer. {@code waitMs}: how long the server may hold it back, on top of {@code timeoutMs} for everything.
     *
     * <p>An attempt that others follow has half of the time that is left, so that one hung server does not take all of it.
     *
     * @throws CallException the last error, when the time is over or another attempt would not help
     */
    private <T> T call(long timeoutMs, long waitMs, int attempts, Connection.Exchange<T> exchange) {
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs + waitMs);
        String refusedToken = null;
        boolean sent = false;
        for (int attempt = 1; ; attempt++) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
            long shareMs = Math.max(LEAST_ATTEMPT_MS, (leftMs - waitMs) / 2) + waitMs;
            long attemptMs = attempts == 1 ? leftMs : Math.min(leftMs, shareMs);
            CallException failure;
            boolean pauses = attempt % cluster.servers().size() == 0; // all were tried
            Connection connection = null;
            try {
                connection = take(attemptMs);
                T answer = connection.exchange(attemptMs, exchange);
                put(connection);
                return answer;
            } catch (PinLaterException refusal) {
                failure = new CallException(refusal);
                if (mayKnowAnotherToken(refusal, connection.token(), refusedToken)) {
                    refusedToken = connection.token();
                    connection.close();
                    pauses = false;
                } else {
                    if (!isSentAgain(refusal)) {
                        put(connection);
                        throw failure;
                    }
                    sent |= CallException.isUnknown(refusal);
                    if (failure.reason().equals("DRAINING")) {
                        connection.close();
                        advance(connection.server);
                    } else {
                        put(connection);
                        pauses = true;
                    }
                }
            } catch (TApplicationException error) {
                connection.close();
                throw new CallException(CallException.PROTOCOL_ERROR, error.getMessage(), false, error);
            } catch (TException error) {
                sent = true;
                failure = lost(connection, error);
            } catch (IOException error) {
                pauses = true;
                String reason = sent ? CallException.OUTCOME_UNKNOWN : CallException.SERVER_UNREACHABLE;
                failure = new CallException(reason, error.getMessage(), true, error);
            }
            leftMs = TimeUnit.NANOSECONDS.toMillis(endNanos - System.nanoTime());
            long pauseMs = pauses ? Math.max(pauseMs(attempt / cluster.servers().size()), failure.retryAfterMs()) : 0;
            if (closed || attempt == attempts || leftMs <= pauseMs + 1) {
                throw failure;
            }
            if (!pause(pauseMs)) {
                throw failure;
            }
        }
    }

    private CallException lost(Connection connection, TException error) {
        connection.close();
        advance(connection.server);
        broken.run();
        String why = "no answer from " + connection.server + ": " + error.getMessage();
        return new CallException(CallException.OUTCOME_UNKNOWN, why, true, error);
    }

    /** An operator decided so, or the call itself is wrong: the caller gets to know at once. */
    private static boolean isSentAgain(PinLaterException refusal) {
        boolean decided = refusal.getErrorCode() == ErrorCode.ENQUEUE_REJECTED
                || "QUEUE_PAUSED".equals(CallException.reasonOf(refusal));
        return !decided && (refusal.isRetryable() || CallException.isUnknown(refusal));
    }

    private boolean mayKnowAnotherToken(PinLaterException refusal, String shown, String refused) {
        if (refusal.getErrorCode() != ErrorCode.PASSWORD_INVALID || !cluster.hasTokenFile() || refused != null) {
            return false;
        }
        try {
            return !cluster.token().equals(shown);
        } catch (IllegalArgumentException noToken) {
            return false;
        }
    }

    /** A connection that was kept, or a new one. IOException: no server can be reached; nothing was sent. */
    private Connection take(long timeoutMs) throws IOException {
        for (Connection kept; (kept = idle.pollFirst()) != null; ) {
            long unusedNanos = System.nanoTime() - kept.usedNanos;
            if (unusedNanos < PROBED_NANOS || unusedNanos < IDLE_NANOS && kept.isAlive()) {
                return kept;
            }
            kept.close();
            broken.run();
        }
        return open(timeoutMs);
    }

    /** A new connection to the next server that takes one. The caller closes it. */
    Connection open(long timeoutMs) throws IOException {
        StringBuilder why = new StringBuilder("no server can be reached:");
        List<Cluster.Server> servers = cluster.servers();
        for (int tried = 0; tried < servers.size(); tried++) {
            Cluster.Server server = servers.get(Math.floorMod(next.get(), servers.size()));
            try {
                return Connection.open(cluster, server, timeoutMs);
            } catch (IOException error) {
                why.append(' ').append(server).append(" (").append(error.getMessage()).append(')');
                advance(server);
            }
        }
        throw new IOException(why.toString());
    }

    /** The next connection goes to another server than this one. */
    void advance(Cluster.Server from) {
        cluster.serverFailed();
        int now = next.get();
        List<Cluster.Server> servers = cluster.servers();
        if (servers.get(Math.floorMod(now, servers.size())).equals(from)) {
            next.compareAndSet(now, now + 1);
        }
    }

    private void put(Connection connection) {
        if (connection.usable) {
            idle.addFirst(connection);
            if (closed) {
                close();
            }
        }
    }

    /** Notices connections that the other side has closed; those are where claims are bound to. */
    void probe() {
        for (Connection kept : idle) {
            if (idle.remove(kept)) {
                if (kept.isAlive()) {
                    idle.addFirst(kept);
                } else {
                    broken.run();
                }
            }
        }
    }

    @Override
    public void close() {
        closed = true;
        for (Connection kept; (kept = idle.pollFirst()) != null; ) {
            kept.close();
        }
    }

    /** After so many rounds in vain, with random parts, so that callers do not come back together. */
    static long pauseMs(int failures) {
        long bound = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << Math.min(Math.max(failures - 1, 0), 10));
        return ThreadLocalRandom.current().nextLong(bound / 2, bound + 1);
    }

    /** False: the thread was interrupted, and is so again. */
    static boolean pause(long pauseMs) {
        try {
            Thread.sleep(pauseMs);
            return true;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
