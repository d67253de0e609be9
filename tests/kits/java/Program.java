// The trial's program for the kit in Java: java -cp ... Program worker|producer CONFIG.json
//
// It uses the kit's public interface alone, and jackson-core, which the kit brings, for its own files and pipes.

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import pinlater.CallException;
import pinlater.Cluster;
import pinlater.Job;
import pinlater.JobSignal;
import pinlater.JobStatus;
import pinlater.NewJob;
import pinlater.Outcome;
import pinlater.Producer;
import pinlater.RetryPolicy;
import pinlater.StopReason;
import pinlater.Worker;
import pinlater.WorkerListener;

public final class Program {
    private static final JsonFactory JSON = new JsonFactory();
    private static final Duration LIMIT = Duration.ofSeconds(1);

    public static void main(String[] given) throws Exception {
        Map<String, Object> config = map(read(Files.readString(Path.of(given[1]))));
        if (given[0].equals("worker")) {
            work(config);
        } else {
            produce(config);
        }
    }

    private static Cluster cluster(Map<String, Object> config) {
        String[] servers = list(config.get("servers")).toArray(new String[0]);
        Cluster.Builder cluster = Cluster.builder(servers);
        if (config.get("token_file") != null) {
            cluster.tokenFile(Path.of((String) config.get("token_file")));
        }
        if (config.get("ca_file") != null) {
            cluster.ca(Path.of((String) config.get("ca_file")));
        }
        return cluster.build();
    }

    // -- the worker ------------------------------------------------------------------------------------------------

    private static void work(Map<String, Object> config) throws IOException {
        Ledger ledger = new Ledger(
                Path.of((String) config.get("ledger")),
                (String) config.get("name"),
                Boolean.TRUE.equals(config.get("failing_hooks")));
        Worker.Builder worker = Worker.builder(cluster(config)).listener(ledger);
        if (config.get("name") != null) {
            worker.name((String) config.get("name"));
        }
        if (config.get("slots") != null) {
            worker.slots(whole(config.get("slots")));
        }
        if (config.get("drain_ms") != null) {
            worker.drain(millis(config.get("drain_ms")));
        }
        if (config.get("queues") != null) {
            map(config.get("queues")).forEach((queue, weight) -> worker.queue(queue, whole(weight)));
        }
        for (Object queue : list(config.get("raw_queues"))) {
            worker.handleRaw((String) queue, job -> null);
        }
        worker.handle("trial.noop", job -> null)
                .handle("trial.sleep", job -> {
                    Thread.sleep(job.number("ms"));
                    return null;
                })
                .handle("trial.stubborn", job -> {
                    stubborn(job.number("ms"));
                    return null;
                })
                .handle("trial.limited", RetryPolicy.standard(), LIMIT, job -> {
                    try {
                        Thread.sleep(job.number("ms"));
                    } finally {
                        ledger.returned(job);
                    }
                    return null;
                })
                .handle("trial.limited_stubborn", RetryPolicy.standard(), LIMIT, job -> {
                    stubborn(job.number("ms"));
                    ledger.returned(job);
                    return null;
                })
                .handle("trial.fail_once", job -> {
                    if (job.attempt() == 1) {
                        throw new IOException("the first attempt fails");
                    }
                    return null;
                })
                .handle("trial.raise", job -> {
                    throw new IOException(job.text("message"));
                })
                .handle("trial.fail", job -> {
                    throw new JobSignal.Fail(job.text("message"));
                })
                .handle("trial.retry_after", job -> {
                    if (job.attempt() == 1) {
                        throw new JobSignal.RetryAfter(Duration.ofMillis(job.number("ms")));
                    }
                    return null;
                })
                .handle("trial.snooze", job -> {
                    if (job.snoozes() == 0) {
                        throw new JobSignal.Snooze(Duration.ofMillis(job.number("ms")));
                    }
                    return null;
                })
                .handle("trial.progress", job -> {
                    double percent = ((Number) job.kwargs().get("percent")).doubleValue();
                    job.progress(percent / 100, job.text("message"));
                    Thread.sleep(((Number) job.kwargs().getOrDefault("ms", 0L)).longValue());
                    return null;
                })
                .handle("trial.log", job -> {
                    list(job.kwargs().get("lines")).forEach(line -> job.log((String) line));
                    return null;
                })
                .handleWithResult("trial.result", RetryPolicy.standard(), job -> job.kwargs().get("value"))
                .handle("trial.text", job -> null);
        worker.build().run();
    }

    /** Waits without heeding interrupts. */
    private static void stubborn(long millis) {
        long endNanos = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        for (long leftNanos; (leftNanos = endNanos - System.nanoTime()) > 0; ) {
            try {
                TimeUnit.NANOSECONDS.sleep(leftNanos);
            } catch (InterruptedException ignored) {
                // it goes on
            }
        }
    }

    /** One line of JSON for each event, by one write each. */
    private static final class Ledger implements WorkerListener {
        private final FileChannel file;
        private final String worker;
        private final boolean fails;

        Ledger(Path path, String worker, boolean fails) throws IOException {
            this.fails = fails;
            this.file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            this.worker = worker;
        }

        private synchronized void write(String event, Object... more) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("at_ms", System.currentTimeMillis());
            line.put("worker", worker);
            line.put("event", event);
            for (int index = 0; index < more.length; index += 2) {
                line.put((String) more[index], more[index + 1]);
            }
            try {
                file.write(ByteBuffer.wrap((written(line) + "\n").getBytes(StandardCharsets.UTF_8)));
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            if (fails) {
                throw new IllegalStateException("this hook fails");
            }
        }

        /** A handler that has a time limit is about to end. */
        void returned(Job job) {
            boolean isLate = job.stopReason().orElse(null) == StopReason.TIME_LIMIT;
            write("returned", "job", job.descriptor(), "why", isLate ? "time_limit" : null);
        }

        @Override
        public void started() {
            write("started");
        }

        @Override
        public void begun(Job job) {
            if (job.name() == null) {
                byte[] body = job.body();
                write("begin", "job", job.descriptor(), "name", null, "attempt", job.attempt(), "sha256", sha256(body),
                        "length", body.length);
            } else {
                write("begin", "job", job.descriptor(), "name", job.name(), "arguments", job.kwargs(), "attempt",
                        job.attempt());
            }
        }

        @Override
        public void ended(Job job, Outcome outcome, Duration took) {
            write("end", "job", job.descriptor(), "outcome", outcome.name().toLowerCase(Locale.ROOT));
        }

        @Override
        public void stopped(Job job, StopReason reason) {
            if (reason == StopReason.CANCELLED) {
                write("cancel", "job", job.descriptor());
            } else if (reason == StopReason.LOST) {
                write("lost", "job", job.descriptor());
            }
        }

        @Override
        public void draining() {
            write("draining");
        }

        @Override
        public void ended() {
            write("stopped");
        }
    }

    private static String sha256(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    // -- the producer ----------------------------------------------------------------------------------------------

    private static void produce(Map<String, Object> config) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (Producer producer = new Producer(cluster(config))) {
            for (String line; (line = commands.readLine()) != null; ) {
                answers.println(written(answer(producer, line)));
            }
        }
    }

    private static Map<String, Object> answer(Producer producer, String line) {
        try {
            Map<String, Object> command = map(read(line));
            if (command.containsKey("enqueue")) {
                Map<String, Object> asked = map(command.get("enqueue"));
                return Map.of("descriptor", producer.enqueue((String) asked.get("queue"), job(asked)));
            }
            if (command.containsKey("enqueue_many")) {
                List<NewJob> jobs = new ArrayList<>();
                String queue = "";
                for (Object each : list(command.get("enqueue_many"))) {
                    queue = (String) map(each).get("queue");
                    jobs.add(job(map(each)));
                }
                return Map.of("descriptors", producer.enqueueMany(queue, jobs));
            }
            Map<String, Object> asked = map(command.get("wait"));
            JobStatus found = producer.await((String) asked.get("descriptor"), millis(asked.get("timeout_ms")));
            if (!found.state().isEnd()) {
                return failure("TIMEOUT", new IOException("it is " + found.state() + " when the time is over"), true);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("state", found.state().name().toLowerCase(Locale.ROOT));
            answer.put("result", found.result());
            return answer;
        } catch (CallException error) {
            return failure(error.reason(), error, error.retryable());
        } catch (IOException | RuntimeException error) {
            return failure(error.getClass().getSimpleName(), error, false);
        }
    }

    private static Map<String, Object> failure(String kind, Exception error, boolean retryable) {
        String message = String.valueOf(error.getMessage());
        return Map.of("error", Map.of("kind", kind, "message", message, "retryable", retryable));
    }

    private static NewJob job(Map<String, Object> asked) {
        String raw = (String) asked.get("body_base64");
        NewJob job = raw != null
                ? NewJob.raw(Base64.getDecoder().decode(raw))
                : NewJob.of((String) asked.get("name"), map(asked.get("kwargs")));
        map(asked.get("options")).forEach((option, value) -> {
            if (value == null) {
                return;
            }
            switch (option) {
                case "delay_ms" -> job.delay(millis(value));
                case "priority" -> job.priority(whole(value));
                case "attempts" -> job.attempts(whole(value));
                case "dedupe_key" -> job.dedupeKey((String) value);
                case "serialize_key" -> job.serializeKey((String) value);
                case "group" -> job.group((String) value);
                case "keep_result_ms" -> job.keepResult(whole(value) > 0);
                default -> throw new IllegalArgumentException("no option " + option);
            }
        });
        return job;
    }

    // -- JSON ------------------------------------------------------------------------------------------------------

    private static int whole(Object value) {
        return ((Number) value).intValue();
    }

    private static Duration millis(Object value) {
        return Duration.ofMillis(((Number) value).longValue());
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> map(Object value) {
        return value == null ? Map.of() : (Map<String, Object>) value;
    }

    private static List<?> list(Object value) {
        return value == null ? List.of() : (List<?>) value;
    }

    private static Object read(String text) throws IOException {
        try (JsonParser json = JSON.createParser(text)) {
            json.nextToken();
            return value(json);
        }
    }

    private static Object value(JsonParser json) throws IOException {
        switch (json.currentToken()) {
            case START_OBJECT:
                Map<String, Object> map = new LinkedHashMap<>();
                while (json.nextToken() != JsonToken.END_OBJECT) {
                    String name = json.currentName();
                    json.nextToken();
                    map.put(name, value(json));
                }
                return map;
            case START_ARRAY:
                List<Object> list = new ArrayList<>();
                while (json.nextToken() != JsonToken.END_ARRAY) {
                    list.add(value(json));
                }
                return list;
            case VALUE_NUMBER_INT:
                return json.getNumberValue();
            case VALUE_NUMBER_FLOAT:
                return json.getDoubleValue();
            case VALUE_TRUE:
                return true;
            case VALUE_FALSE:
                return false;
            case VALUE_NULL:
                return null;
            default:
                return json.getText();
        }
    }

    private static String written(Object value) {
        StringWriter text = new StringWriter();
        try (JsonGenerator json = JSON.createGenerator(text)) {
            write(json, value);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        return text.toString();
    }

    private static void write(JsonGenerator json, Object value) throws IOException {
        if (value instanceof Map<?, ?> map) {
            json.writeStartObject();
            for (Map.Entry<?, ?> each : map.entrySet()) {
                json.writeFieldName((String) each.getKey());
                write(json, each.getValue());
            }
            json.writeEndObject();
        } else if (value instanceof List<?> list) {
            json.writeStartArray();
            for (Object each : list) {
                write(json, each);
            }
            json.writeEndArray();
        } else if (value == null) {
            json.writeNull();
        } else if (value instanceof Number number) {
            json.writeNumber(number.toString());
        } else if (value instanceof Boolean flag) {
            json.writeBoolean(flag);
        } else if (value instanceof byte[] bytes) {
            json.writeString(Base64.getEncoder().encodeToString(bytes));
        } else {
            json.writeString((String) value);
        }
    }
}
