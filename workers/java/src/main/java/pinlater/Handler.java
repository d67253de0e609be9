package pinlater;

/** The code of one type of job. It is called in a thread of its own for each job that runs, several at once. */
@FunctionalInterface
public interface Handler {
    /**
     * Runs a job. Delivery is at least once: a job may run a second time after a crash.
     *
     * @return the result, kept for callers that wait where the job or its type keeps one; a
     *     {@link java.util.concurrent.CompletionStage} is waited for
     * @throws InterruptedException as it will where the thread is interrupted: the job is to stop
     * @throws JobSignal to fail for good, to come back later, or to be put off
     * @throws Exception anything else fails this attempt, and the retry policy decides
     */
    Object run(Job job) throws Exception;
}
