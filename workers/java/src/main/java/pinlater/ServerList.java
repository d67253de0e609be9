package pinlater;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;

/**
 * The servers that there are just now: those whose addresses were given, and all addresses of names, each a server of its
 * own. As in the Python client, names are looked up with the first call, then by the first call after 15 s, or after 1 s
 * where a server failed; as long as a look-up fails, the last answer counts.
 */
final class ServerList {
    /** All addresses of a name: those of the system, but in tests. */
    interface Resolver {
        InetAddress[] addressesOf(String name) throws UnknownHostException;
    }

    private static final long EVERY_NANOS = TimeUnit.SECONDS.toNanos(15);
    private static final long SOON_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long FIRST_ANSWER_MS = 5_000;

    private final List<Cluster.Server> given;
    private final boolean hasNames;
    private final Resolver resolver;
    private final Map<Cluster.Server, List<Cluster.Server>> found = new ConcurrentHashMap<>();
    private CompletableFuture<Void> look = CompletableFuture.completedFuture(null);
    private long lookedNanos = System.nanoTime();
    private long dueNanos = lookedNanos;

    ServerList(List<Cluster.Server> given, Resolver resolver) {
        this.given = given;
        this.resolver = resolver;
        hasNames = given.stream().anyMatch(Cluster.Server::isName);
    }

    /** One at least: a name without a known address stands for itself, so that who connects learns what is wrong. */
    List<Cluster.Server> now() {
        if (!hasNames) {
            return given;
        }
        CompletableFuture<Void> underWay = lookWhenDue();
        if (known().isEmpty()) {
            await(underWay);
        }
        List<Cluster.Server> known = known();
        return known.isEmpty() ? given : known;
    }

    /** A server failed: perhaps the names have other addresses now. */
    synchronized void failed() {
        dueNanos = lookedNanos + Math.min(dueNanos - lookedNanos, SOON_NANOS);
    }

    private List<Cluster.Server> known() {
        return given.stream()
                .flatMap(each -> each.isName() ? found.getOrDefault(each, List.of()).stream() : Stream.of(each))
                .distinct()
                .toList();
    }

    private synchronized CompletableFuture<Void> lookWhenDue() {
        if (look.isDone() && System.nanoTime() - dueNanos >= 0) {
            look = CompletableFuture.runAsync(this::lookUp, work -> Threads.named("pinlater-names").newThread(work).start());
        }
        return look;
    }

    private void lookUp() {
        for (Cluster.Server each : given) {
            if (each.isName()) {
                try {
                    found.put(each, Arrays.stream(resolver.addressesOf(each.host())).map(each::at).toList());
                } catch (UnknownHostException none) {
                    // the last answer counts
                }
            }
        }
        synchronized (this) {
            lookedNanos = System.nanoTime();
            dueNanos = lookedNanos + (known().isEmpty() ? 0 : EVERY_NANOS);
        }
    }

    private static void await(CompletableFuture<Void> look) {
        try {
            look.get(FIRST_ANSWER_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException noAnswer) {
            // who connects says so
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
