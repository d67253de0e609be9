package pinlater;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Locale;

/**
 * What operators read of a failed attempt in the job's status, as Python workers write it.
 *
 * <p>{@code attempt 1 of 11: IOException: mx1 refused (Mail.java:42 in deliver) [2026-11-23T00:09:12Z, 1.2s, web-1:4711]}
 */
final class FailureText {
    private static final int MOST_LINE = 500;
    private static final int LEAST_LINE = 160;
    private static final int LEAST_TEXT = 40;
    private static final int ALL_LINES = 2_300;
    private static final int MOST_TRACE = 2_000;
    private static final String WORKER = Cluster.processName();

    private FailureText() {}

    /** One line with its end. {@code took} null: the attempt did not run. */
    static String line(Job job, Throwable error, Duration took) {
        int most = Math.max(LEAST_LINE, Math.min(MOST_LINE, ALL_LINES / Math.max(1, job.attemptsAllowed())));
        String begin = "attempt " + job.attempt() + " of " + job.attemptsAllowed() + ": ";
        String end = where(error);
        if (took != null) {
            Instant begun = Instant.now().minus(took).truncatedTo(ChronoUnit.SECONDS);
            end += String.format(Locale.ROOT, " [%s, %.1fs, %s]", begun, took.toMillis() / 1000.0, WORKER);
        }
        String text = job.envelope == null ? describe(error) : job.envelope.masked(describe(error));
        return begin + oneLine(text, Math.max(LEAST_TEXT, most - begin.length() - end.length())) + end + "\n";
    }

    /** The stack of an attempt that none follows, as far as there is room for it. */
    static String trace(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (StackTraceElement each : error.getStackTrace()) {
            String frame = "  at " + each + "\n";
            if (isOwn(each) || text.length() + frame.length() > MOST_TRACE) {
                break;
            }
            text.append(frame);
        }
        return text.toString();
    }

    private static String describe(Throwable error) {
        String text = typeAndMessage(error);
        return error.getCause() == null ? text : text + ", from " + typeAndMessage(error.getCause());
    }

    private static String typeAndMessage(Throwable error) {
        String message = error.getMessage();
        String type = error.getClass().getSimpleName();
        return message == null || message.isBlank() ? type : type + ": " + message;
    }

    private static String where(Throwable error) {
        for (StackTraceElement each : error.getStackTrace()) {
            if (isOwn(each)) {
                break;
            }
            if (!each.getClassName().matches("(java|jdk|sun)\\..*")) {
                return " (" + each.getFileName() + ":" + each.getLineNumber() + " in " + each.getMethodName() + ")";
            }
        }
        return "";
    }

    /** The frames of the kit, from where it calls the handler on. */
    private static boolean isOwn(StackTraceElement frame) {
        return frame.getClassName().equals(JobRunner.class.getName());
    }

    static String oneLine(String text, int most) {
        return cut(text.replaceAll("\\p{Cntrl}+", " "), most);
    }

    private static String cut(String text, int most) {
        if (text.length() <= most) {
            return text;
        }
        int end = Character.isHighSurrogate(text.charAt(most - 2)) ? most - 2 : most - 1;
        return text.substring(0, end) + "…";
    }
}
