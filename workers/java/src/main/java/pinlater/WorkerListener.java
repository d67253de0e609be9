package pinlater;

import java.time.Duration;

/**
 * Hooks for metrics and logs of a worker. Each does nothing unless it is overridden. They are called in the worker's
 * threads, so they return soon; what they throw is logged.
 */
public interface WorkerListener {
    /** The first dequeue was answered. */
    default void started() {}

    /** A dequeue was answered with so many jobs, after so long. */
    default void polled(int jobs, Duration took) {}

    /** A job begins. */
    default void begun(Job job) {}

    /** A run of a job has ended, as the worker knows it; the server has it soon after. */
    default void ended(Job job, Outcome outcome, Duration took) {}

    /** A running job was told to stop. */
    default void stopped(Job job, StopReason reason) {}

    /** The report of a job had no effect, since its claim had ended: it may run again, or has run twice. */
    default void ignored(Job job) {}

    /** A job that this worker does not run was requeued; {@code type} is null where the body names none. */
    default void unknown(String queue, String type) {}

    /** The worker takes no more jobs, and ends when those it has have ended. */
    default void draining() {}

    /** The worker has ended. */
    default void ended() {}
}
