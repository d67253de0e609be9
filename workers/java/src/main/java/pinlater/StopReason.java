package pinlater;

/** Why a running job is to stop. The thread of its handler is interrupted. */
public enum StopReason {
    /** Somebody asked for it. A success still counts; any other end is final. */
    CANCELLED,
    /** Its claim is gone, and another worker may have it: nothing that it does counts any more. */
    LOST,
    /** It ran for longer than its type's time limit, and the attempt has failed: nothing that it does counts any more. */
    TIME_LIMIT,
    /** The worker ends, and has given the job back. */
    HANDED_BACK
}
