package pinlater;

import java.util.concurrent.ThreadFactory;
import java.util.concurrent.atomic.AtomicInteger;

/** The threads of the kit: named, and daemons, so that a handler that never returns does not keep a program from ending. */
final class Threads {
    private Threads() {}

    static ThreadFactory named(String name) {
        AtomicInteger count = new AtomicInteger();
        return work -> {
            Thread thread = new Thread(work, name + "-" + count.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }
}
