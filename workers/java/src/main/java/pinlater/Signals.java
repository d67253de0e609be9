package pinlater;

import java.lang.System.Logger.Level;

/**
 * The signals that stop a worker. A shutdown hook would not do: a second signal does nothing there, and the exit code is
 * not 0.
 */
final class Signals {
    private Signals() {}

    /** Calls {@code stop} at each SIGTERM and SIGINT, where this Java lets programs have them. */
    static void onStop(Runnable stop) {
        for (String name : new String[] {"TERM", "INT"}) {
            try {
                sun.misc.Signal.handle(new sun.misc.Signal(name), signal -> stop.run());
            } catch (IllegalArgumentException taken) { // as under java -Xrs
                System.getLogger("pinlater.worker").log(Level.WARNING, "SIG{0} does not drain this worker: {1}", name,
                        taken.getMessage());
            }
        }
    }
}
