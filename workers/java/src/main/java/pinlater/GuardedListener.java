package pinlater;

import java.lang.System.Logger.Level;
import java.time.Duration;

/** A listener whose errors are logged: they change nothing of what becomes of jobs. */
final class GuardedListener implements WorkerListener {
    private static final System.Logger LOG = System.getLogger("pinlater.worker");

    private final WorkerListener listener;

    GuardedListener(WorkerListener listener) {
        this.listener = listener;
    }

    private static void guard(Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            LOG.log(Level.ERROR, "a listener of the worker failed", error);
        }
    }

    @Override
    public void started() {
        guard(listener::started);
    }

    @Override
    public void polled(int jobs, Duration took) {
        guard(() -> listener.polled(jobs, took));
    }

    @Override
    public void begun(Job job) {
        guard(() -> listener.begun(job));
    }

    @Override
    public void ended(Job job, Outcome outcome, Duration took) {
        guard(() -> listener.ended(job, outcome, took));
    }

    @Override
    public void stopped(Job job, StopReason reason) {
        guard(() -> listener.stopped(job, reason));
    }

    @Override
    public void ignored(Job job) {
        guard(() -> listener.ignored(job));
    }

    @Override
    public void unknown(String queue, String type) {
        guard(() -> listener.unknown(queue, type));
    }

    @Override
    public void draining() {
        guard(listener::draining);
    }

    @Override
    public void ended() {
        guard(listener::ended);
    }
}
