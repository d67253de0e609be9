package pinlater;

import com.pinterest.pinlater.thrift.PinLaterJobInfo;
import com.pinterest.pinlater.thrift.PinLaterJobState;

/**
 * A job as a server describes it.
 *
 * @param descriptor names the job
 * @param state in the words that the command line and the pages use
 * @param result what the handler returned, where it was kept: a value of JSON (numbers are Long, BigInteger or Double), or
 *     the bytes of a result in another format; else null
 * @param text what was recorded of its attempts, as operators read it
 * @param attemptsAllowed how often it is tried in all
 * @param attemptsRemaining how many of these are left
 */
public record JobStatus(
        String descriptor, State state, Object result, String text, int attemptsAllowed, int attemptsRemaining) {
    /** The states of jobs. */
    public enum State {
        /** Its time is still to come. */
        SCHEDULED,
        /** Eligible now. */
        READY,
        /** Behind another job of its serialize key. */
        WAITING,
        /** A worker has it. */
        RUNNING,
        /** Ended well. */
        SUCCEEDED,
        /** Ended for good, without success. */
        FAILED,
        /** It was to stop, and did. */
        CANCELLED,
        /** Not there: never enqueued, or not kept any more. */
        NOT_FOUND;

        /** Whether the job has ended, or is not there. */
        public boolean isEnd() {
            return ordinal() >= SUCCEEDED.ordinal();
        }
    }

    static JobStatus of(String descriptor, PinLaterJobInfo info) {
        if (info == null) {
            return new JobStatus(descriptor, State.NOT_FOUND, null, "", 0, 0);
        }
        Object result = info.isSetResult() ? Envelope.readValue(info.getResult()) : null;
        return new JobStatus(descriptor, stateOf(info), result, info.getCustomStatus(), info.getAttemptsAllowed(),
                info.getAttemptsRemaining());
    }

    private static State stateOf(PinLaterJobInfo info) {
        if (info.getJobState() == PinLaterJobState.PENDING) {
            boolean later = info.getRunAfterTimestampMillis() > System.currentTimeMillis();
            return info.isSetWaitsFor() ? State.WAITING : later ? State.SCHEDULED : State.READY;
        }
        if (info.getJobState() == PinLaterJobState.IN_PROGRESS) {
            return State.RUNNING;
        }
        boolean succeeded = info.getJobState() == PinLaterJobState.SUCCEEDED;
        return succeeded ? State.SUCCEEDED : info.isCancelled() ? State.CANCELLED : State.FAILED;
    }
}
