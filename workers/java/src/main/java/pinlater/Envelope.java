package pinlater;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.RecordComponent;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.temporal.TemporalAccessor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The body of a job as every language writes and reads it (docs/workers-bodies.md): a first line, then one map of JSON.
 *
 * <p>{@code snoozes}: how often the job was put off. {@code attempts}: how many it has where its producer said so, else 0.
 */
record Envelope(
        String job,
        List<Object> args,
        Map<String, Object> kwargs,
        Map<String, String> headers,
        int snoozes,
        int attempts) {
    /** What the name of a type begins with where this kit cannot read the body: no type has a name with a slash. */
    private static final String UNREAD_TYPE = "PINLATER/";

    static final String RESULT_HEADER = "pinlater-result";

    private static final String SECRET_HEADER = "pinlater-secret";
    private static final int SHORTEST_SECRET = 4;

    private static final byte[] FIRST_LINE = "PINLATER/1 application/json\n".getBytes(StandardCharsets.US_ASCII);
    private static final Pattern ANY_FIRST_LINE = Pattern.compile("PINLATER/([0-9]{1,9}) +([^\\n]{1,100})\\n");
    private static final int LONGEST_LINE = 130;
    private static final JsonFactory JSON = new JsonFactory();

    /** A body with the first line of ours, and what follows cannot be read. */
    static final class BodyInvalid extends Exception {
        private static final long serialVersionUID = 1L;

        BodyInvalid(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** IllegalArgumentException: a value that JSON does not have. */
    byte[] written() {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("job", job);
        map.put("args", args);
        map.put("kwargs", kwargs);
        map.put("headers", headers);
        map.put("snoozes", snoozes);
        map.put("attempts", attempts);
        map.values().removeIf(each -> each instanceof List<?> list && list.isEmpty()
                || each instanceof Map<?, ?> some && some.isEmpty()
                || each instanceof Integer number && number == 0);
        return writtenValue(map);
    }

    Envelope snoozed() {
        return new Envelope(job, args, kwargs, headers, snoozes + 1, attempts);
    }

    /** The text without the values of arguments that no display shows: the header names them. */
    String masked(String text) {
        List<String> secrets = new ArrayList<>();
        for (String key : headers.getOrDefault(SECRET_HEADER, "").split(" ")) {
            boolean isIndex = key.matches("[0-9]{1,6}") && Integer.parseInt(key) < args.size();
            addTexts(isIndex ? args.get(Integer.parseInt(key)) : kwargs.get(key), secrets);
        }
        secrets.sort(Comparator.comparing(String::length).reversed());
        String shown = text;
        for (String secret : secrets) {
            shown = shown.replace(secret, "***");
        }
        return shown;
    }

    /** Those in a value that are long enough to be told from other text. */
    private static void addTexts(Object value, List<String> found) {
        if (value instanceof Map<?, ?> map) {
            map.values().forEach(each -> addTexts(each, found));
        } else if (value instanceof List<?> list) {
            list.forEach(each -> addTexts(each, found));
        } else if ((value instanceof String || value instanceof Number) && value.toString().length() >= SHORTEST_SECRET) {
            found.add(value.toString());
        }
    }

    /** One value behind a first line, as results are. IllegalArgumentException: a value that JSON does not have. */
    static byte[] writtenValue(Object value) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.writeBytes(FIRST_LINE);
        try (JsonGenerator json = JSON.createGenerator(out)) {
            write(json, value);
        } catch (IOException error) {
            throw new IllegalArgumentException("it cannot be written as JSON: " + error.getMessage(), error);
        }
        return out.toByteArray();
    }

    /**
     * The envelope; null: a body of another format. One of a later version or in MessagePack is a job of a type that no
     * worker of this kit knows.
     *
     * @throws BodyInvalid the first line is ours, and what follows cannot be read
     */
    static Envelope read(byte[] body) throws BodyInvalid {
        Matcher line = firstLine(body);
        if (line == null) {
            return null;
        }
        if (Integer.parseInt(line.group(1)) > 1) {
            return unread(line.group(1));
        }
        String type = contentType(line);
        if (type.equals("application/msgpack")) {
            return unread(line.group(1) + " " + type);
        }
        if (!type.equals("application/json") || Integer.parseInt(line.group(1)) < 1) {
            throw new BodyInvalid("a body that begins with " + line.group().strip(), null);
        }
        Map<String, Object> map = map(readJson(body, line.end()), "the body");
        if (!(map.get("job") instanceof String job)) {
            throw new BodyInvalid("a body without the name of its job", null);
        }
        Map<String, String> headers = new LinkedHashMap<>();
        map(map.get("headers"), "headers").forEach((name, value) -> headers.put(name, String.valueOf(value)));
        if (map.get("args") != null && !(map.get("args") instanceof List)) {
            throw new BodyInvalid("a body whose args are no list", null);
        }
        List<Object> args = map.get("args") instanceof List<?> list ? Collections.unmodifiableList(list) : List.of();
        return new Envelope(
                job, args, map(map.get("kwargs"), "kwargs"), headers, count(map, "snoozes"), count(map, "attempts"));
    }

    /** The value of a result; bytes without a readable first line are given as they are. */
    static Object readValue(byte[] result) {
        Matcher line = firstLine(result);
        if (line == null || !contentType(line).equals("application/json")) {
            return result;
        }
        try {
            return readJson(result, line.end());
        } catch (BodyInvalid error) {
            return result;
        }
    }

    private static Matcher firstLine(byte[] body) {
        String begin = new String(body, 0, Math.min(body.length, LONGEST_LINE), StandardCharsets.ISO_8859_1);
        Matcher line = ANY_FIRST_LINE.matcher(begin);
        return line.lookingAt() ? line : null;
    }

    private static String contentType(Matcher line) {
        return line.group(2).split(";", 2)[0].strip().toLowerCase(Locale.ROOT);
    }

    private static Envelope unread(String what) {
        return new Envelope(UNREAD_TYPE + what, List.of(), Map.of(), Map.of(), 0, 0);
    }

    @SuppressWarnings("unchecked") // the reader below makes no other maps
    private static Map<String, Object> map(Object value, String what) throws BodyInvalid {
        if (value == null) {
            return Map.of();
        }
        if (!(value instanceof Map)) {
            throw new BodyInvalid("a body in which " + what + " is no map", null);
        }
        return Collections.unmodifiableMap((Map<String, Object>) value);
    }

    private static int count(Map<String, Object> map, String name) throws BodyInvalid {
        Object value = map.get(name);
        if (value == null) {
            return 0;
        }
        if (value instanceof Long number && number >= 0 && number <= Integer.MAX_VALUE) {
            return number.intValue();
        }
        throw new BodyInvalid("a body in which " + name + " is " + value, null);
    }

    private static Object readJson(byte[] bytes, int start) throws BodyInvalid {
        try (JsonParser json = JSON.createParser(bytes, start, bytes.length - start)) {
            if (json.nextToken() == null) {
                throw new BodyInvalid("a body without a value", null);
            }
            Object value = value(json);
            if (json.nextToken() != null) {
                throw new BodyInvalid("a body with more than one value", null);
            }
            return value;
        } catch (IOException error) {
            throw new BodyInvalid("a body of JSON that cannot be read: " + error.getMessage(), error);
        }
    }

    /** Jackson bounds how deep it goes. */
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
                Number whole = json.getNumberValue();
                return whole instanceof BigInteger ? whole : (Object) whole.longValue();
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

    /** As the table of docs/workers-bodies.md has values, with the types of Java in place of Python's. */
    private static void write(JsonGenerator json, Object value) throws IOException {
        if (value == null) {
            json.writeNull();
        } else if (value instanceof Boolean flag) {
            json.writeBoolean(flag);
        } else if (value instanceof Double || value instanceof Float) {
            double number = ((Number) value).doubleValue();
            if (Double.isNaN(number) || Double.isInfinite(number)) {
                throw new IllegalArgumentException(number + " cannot be written as JSON");
            }
            json.writeNumber(number);
        } else if (value instanceof BigInteger number) {
            json.writeNumber(number);
        } else if (value instanceof Number number && !(value instanceof BigDecimal)) {
            json.writeNumber(number.longValue());
        } else if (value instanceof byte[] bytes) {
            json.writeString(Base64.getEncoder().encodeToString(bytes));
        } else if (value instanceof Map<?, ?> map) {
            json.writeStartObject();
            for (Map.Entry<?, ?> each : map.entrySet()) {
                json.writeFieldName(checked(String.valueOf(each.getKey())));
                write(json, each.getValue());
            }
            json.writeEndObject();
        } else if (value instanceof Iterable<?> list && !(value instanceof Path)) {
            json.writeStartArray();
            for (Object each : list) {
                write(json, each);
            }
            json.writeEndArray();
        } else if (value instanceof Object[] array) {
            write(json, Arrays.asList(array));
        } else if (value instanceof Enum<?> constant) {
            json.writeString(constant.name());
        } else if (value instanceof Record) {
            write(json, components((Record) value));
        } else if (value instanceof CharSequence || isText(value)) {
            json.writeString(checked(value.toString()));
        } else {
            throw new IllegalArgumentException("a " + value.getClass().getName() + " cannot be part of a body; allowed: "
                    + "null, booleans, numbers, texts, bytes, maps, lists, records, enums, times, UUIDs, paths");
        }
    }

    /** Jackson would write half of a character as bytes that are no UTF-8, and no worker could read the body. */
    private static String checked(String text) {
        if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            throw new IllegalArgumentException("a text with half of a character (an unpaired surrogate)");
        }
        return text;
    }

    private static boolean isText(Object value) {
        return value instanceof TemporalAccessor
                || value instanceof Duration
                || value instanceof UUID
                || value instanceof BigDecimal
                || value instanceof Path
                || value instanceof Character;
    }

    private static Map<String, Object> components(Record value) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (RecordComponent each : value.getClass().getRecordComponents()) {
            try {
                each.getAccessor().setAccessible(true);
                map.put(each.getName(), each.getAccessor().invoke(value));
            } catch (ReflectiveOperationException error) {
                throw new IllegalArgumentException("record " + value.getClass().getName() + " cannot be read", error);
            }
        }
        return map;
    }
}
