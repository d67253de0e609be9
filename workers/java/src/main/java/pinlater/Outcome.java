package pinlater;

/** What became of one run of a job. */
public enum Outcome {
    /** It returned. */
    SUCCEEDED,
    /** No attempt follows. */
    FAILED,
    /** This attempt failed, and another one follows. */
    RETRY,
    /** It comes back later, with no attempt spent. */
    SNOOZED,
    /** Somebody asked that it stops, and it did not succeed. */
    CANCELLED,
    /** Its claim was lost: another worker may have it, and nothing is reported. */
    LOST,
    /** The worker stops, and the job runs elsewhere with no attempt spent. */
    HANDED_BACK
}
