package pinlater;

import com.pinterest.pinlater.thrift.ErrorCode;
import com.pinterest.pinlater.thrift.PinLaterException;
import java.util.List;

/** A call that failed: no server answered, or one refused it. {@link #reason} is a stable word for programs. */
public final class CallException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** The reason where no connection could be made; nothing was changed. */
    public static final String SERVER_UNREACHABLE = "SERVER_UNREACHABLE";

    /** The reason where the call was sent and no answer came: perhaps it was carried out. */
    public static final String OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN";

    /** The reason where the answer is none of this interface, or of an older version of it. */
    public static final String PROTOCOL_ERROR = "PROTOCOL_ERROR";

    private final String reason;
    private final boolean retryable;
    private final long retryAfterMs;
    private final List<String> descriptors;

    CallException(String reason, String message, boolean retryable, Throwable cause) {
        super(reason + ": " + message, cause);
        this.reason = reason;
        this.retryable = retryable;
        this.retryAfterMs = 0;
        this.descriptors = List.of();
    }

    CallException(PinLaterException refusal) {
        super(text(refusal), refusal);
        this.reason = reasonOf(refusal);
        this.retryable = refusal.isRetryable();
        this.retryAfterMs = refusal.getRetryAfterMillis();
        this.descriptors = refusal.isSetJobDescriptors() ? List.copyOf(refusal.getJobDescriptors()) : List.of();
    }

    /** The word of the server's error, or of the constants here. docs/errors.md lists all of them. */
    public String reason() {
        return reason;
    }

    /** Whether the same call may succeed later, without any change. */
    public boolean retryable() {
        return retryable;
    }

    /** Milliseconds after which the server wants the call again; 0: it did not say. */
    public long retryAfterMs() {
        return retryAfterMs;
    }

    /** What of an enqueue is stored, in the order of its jobs ("" for one that is not), where it failed in part. */
    public List<String> descriptors() {
        return descriptors;
    }

    static String reasonOf(PinLaterException refusal) {
        return refusal.isSetReason() ? refusal.getReason() : String.valueOf(refusal.getErrorCode());
    }

    /** Whether the outcome is unknown although a server answered: a shard did not. */
    static boolean isUnknown(PinLaterException refusal) {
        return refusal.getErrorCode() == ErrorCode.SHARD_CONNECTION_FAILED && !refusal.isRetryable();
    }

    private static String text(PinLaterException refusal) {
        String reason = reasonOf(refusal);
        String message = String.valueOf(refusal.message);
        return message.startsWith(reason) ? message : reason + ": " + message;
    }
}
