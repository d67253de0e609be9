package pinlater;

import com.pinterest.pinlater.thrift.OnDuplicate;
import com.pinterest.pinlater.thrift.PinLaterJob;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A job to be enqueued: {@code NewJob.of("thumbnail", Map.of("path", "a.jpg")).delay(Duration.ofMinutes(5))}.
 *
 * <p>Not thread-safe; the same one may be enqueued several times, as a job of its own each time.
 */
public final class NewJob {
    /** One more than the retries of the default policy. The wire's default is 2. */
    private static final int ATTEMPTS = 11;

    private static final String NAMES = "[\\w.:-]{1,200}";

    private final String name;
    private final Map<String, Object> kwargs;
    private final byte[] raw;
    private List<Object> args = List.of();
    private final Map<String, String> headers = new LinkedHashMap<>();
    private final PinLaterJob wire = new PinLaterJob().setNumAttemptsAllowed(ATTEMPTS);
    private Duration delay;
    private Duration expiresAfter;
    private int attempts;

    private NewJob(String name, Map<String, Object> kwargs, byte[] raw) {
        this.name = name;
        this.kwargs = kwargs;
        this.raw = raw;
    }

    /**
     * A job of a type, with arguments by name.
     *
     * @throws IllegalArgumentException if no type has such a name
     */
    public static NewJob of(String name, Map<String, ?> kwargs) {
        if (!name.matches(NAMES)) {
            throw new IllegalArgumentException(
                    "\"" + name + "\" is no type of job; allowed: 1 to 200 letters, digits, _ . : -");
        }
        return new NewJob(name, new LinkedHashMap<>(kwargs), null);
    }

    /** A job with these bytes as its body, for a raw handler. */
    public static NewJob raw(byte[] body) {
        return new NewJob(null, Map.of(), body.clone());
    }

    /** Arguments by position, before those by name. */
    public NewJob args(Object... args) {
        this.args = Arrays.asList(args.clone());
        return this;
    }

    /** A text that travels with the job, such as {@code traceparent}. */
    public NewJob header(String header, String value) {
        headers.put(header, value);
        return this;
    }

    /** It is not run before so much time has passed from its enqueue, by this machine's clock. */
    public NewJob delay(Duration delay) {
        this.delay = delay;
        return this;
    }

    /** It is not run before this time. */
    public NewJob runAt(Instant time) {
        wire.setRunAfterTimestampMillis(time.toEpochMilli());
        return this;
    }

    /** 1 is the highest, and what it is unless set. */
    public NewJob priority(int priority) {
        wire.setPriority((byte) priority);
        return this;
    }

    /** How often it is tried in all; 11 unless set, or as its type says where that is less. */
    public NewJob attempts(int attempts) {
        this.attempts = attempts;
        wire.setNumAttemptsAllowed(attempts);
        return this;
    }

    /** Its name in its queue: while a job of that name has not ended there is no second one, and that one's descriptor is
     * the answer. */
    public NewJob dedupeKey(String key) {
        wire.setDedupeKey(key);
        return this;
    }

    /** What an enqueue does where the dedupe key is taken; KEEP unless set. */
    public NewJob onDuplicate(OnDuplicate what) {
        wire.setOnDuplicate(what);
        return this;
    }

    /** The dedupe key stays taken for so long after the job's end. */
    public NewJob dedupeFor(Duration window) {
        wire.setDedupeForMillis(window.toMillis());
        return this;
    }

    /** Jobs of one such key, in whichever queues, run one at a time, in the order of their enqueues. */
    public NewJob serializeKey(String key) {
        wire.setSerializeKey(key);
        return this;
    }

    /** Groups of a queue, such as its tenants, have fair shares of it. */
    public NewJob group(String group) {
        wire.setGroup(group);
        return this;
    }

    /** Up to ten texts by which operators find the job. */
    public NewJob tags(String... tags) {
        wire.setTags(List.of(tags));
        return this;
    }

    /** From so long after its enqueue on it is not begun any more, and fails. */
    public NewJob expiresAfter(Duration time) {
        this.expiresAfter = time;
        return this;
    }

    /** Whether it leaves a result for {@link Producer#await}, whatever its type says. The queue says for how long. */
    public NewJob keepResult(boolean keep) {
        return header(Envelope.RESULT_HEADER, keep ? "1" : "0");
    }

    boolean isKeyed() {
        return wire.isSetDedupeKey() || wire.isSetSerializeKey();
    }

    /** IllegalArgumentException: an argument that cannot be written. */
    PinLaterJob wire(String sendId) {
        PinLaterJob made = new PinLaterJob(wire).setSendId(sendId);
        long nowMs = System.currentTimeMillis();
        if (delay != null) {
            made.setRunAfterTimestampMillis(nowMs + delay.toMillis());
        }
        if (expiresAfter != null) {
            made.setExpiresAtMillis(nowMs + expiresAfter.toMillis());
        }
        byte[] body = raw != null ? raw
                : new Envelope(name, args, kwargs, headers, 0, attempts).written();
        return made.setBody(body);
    }
}
