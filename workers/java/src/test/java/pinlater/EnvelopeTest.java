package pinlater;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class EnvelopeTest {
    record Size(int width, int height) {}

    enum Color {
        RED
    }

    @Test
    void secretArgumentsAreMaskedInTexts() {
        Map<String, Object> kwargs = Map.of("password", Map.of("old", "hunter22", "all", List.of("hunter22-2", 123456L)));
        Envelope envelope =
                new Envelope("a", List.of("0", "open sesame"), kwargs, Map.of("pinlater-secret", "1 password other"), 0, 0);
        assertEquals("*** is no ***, nor ***; 0 is", envelope.masked("hunter22-2 is no open sesame, nor 123456; 0 is"));
        assertEquals("hunter22", new Envelope("a", List.of(), kwargs, Map.of(), 0, 0).masked("hunter22"));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Object roundTrip(Object value) {
        return Envelope.readValue(Envelope.writtenValue(value));
    }

    @Test
    void writesWhatOtherLanguagesRead() {
        Envelope envelope = new Envelope("thumbnail", List.of("ä.jpg"), Map.of("size", 200), Map.of(), 0, 0);
        String written = new String(envelope.written(), StandardCharsets.UTF_8);
        assertEquals("PINLATER/1 application/json\n{\"job\":\"thumbnail\",\"args\":[\"ä.jpg\"],\"kwargs\":{\"size\":200}}",
                written);
    }

    @Test
    void readsWhatOtherLanguagesWrite() throws Exception {
        Envelope envelope = Envelope.read(bytes("PINLATER/1 application/json; charset=utf-8\r\n"
                + "{\"job\": \"a.b\", \"args\": null, \"kwargs\": {\"n\": 1, \"f\": 1.5, \"t\": [true, null, {}]},"
                + " \"headers\": {\"traceparent\": \"00\"}, \"snoozes\": 3, \"attempts\": 20, \"later\": 1}"));
        Map<String, Object> kwargs = new LinkedHashMap<>();
        kwargs.put("n", 1L);
        kwargs.put("f", 1.5);
        kwargs.put("t", Arrays.asList(true, null, Map.of()));
        assertEquals(new Envelope("a.b", List.of(), kwargs, Map.of("traceparent", "00"), 3, 20), envelope);
    }

    @Test
    void valuesAreThoseOfTheTable() {
        assertEquals(Map.of("width", 1L, "height", 2L), roundTrip(new Size(1, 2)));
        assertEquals("RED", roundTrip(Color.RED));
        assertEquals("AAH/", roundTrip(new byte[] {0, 1, -1}));
        assertEquals("2026-01-31T12:00:00Z", roundTrip(Instant.parse("2026-01-31T12:00:00Z")));
        assertEquals("PT1M30S", roundTrip(Duration.ofSeconds(90)));
        assertEquals("a/b", roundTrip(Path.of("a", "b")));
        UUID id = UUID.randomUUID();
        assertEquals(id.toString(), roundTrip(id));
        assertEquals(Long.MIN_VALUE, roundTrip(Long.MIN_VALUE));
        BigInteger large = BigInteger.TWO.pow(200);
        assertEquals(large, roundTrip(large));
        assertEquals(List.of(1L, "x"), roundTrip(new Object[] {(short) 1, 'x'}));
        assertEquals(0.1, roundTrip(0.1));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "ä ß 漢字 🦊", "\u0000\u0001\u001f\u007f\u2028\ufeff", "\ud7ff\ue000\udbff\udfff", "\"\\/"})
    void textsStayAsTheyAre(String text) throws Exception {
        Envelope read = Envelope.read(new Envelope("t", List.of(text), Map.of(text, text), Map.of(), 0, 0).written());
        assertEquals(List.of(text), read.args());
        assertEquals(Map.of(text, text), read.kwargs());
    }

    @Test
    void whatJsonDoesNotHaveIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> Envelope.writtenValue(Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> Envelope.writtenValue(List.of(Float.POSITIVE_INFINITY)));
        assertThrows(IllegalArgumentException.class, () -> Envelope.writtenValue(new Object()));
        assertThrows(IllegalArgumentException.class, () -> Envelope.writtenValue("\ud800"));
        List<Object> endless = new ArrayList<>();
        endless.add(endless);
        assertThrows(IllegalArgumentException.class, () -> Envelope.writtenValue(endless));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "plain", "PINLATER/1 application/json", "PINLATER/x application/json\n{}", "\u0000\u00ff"})
    void otherFormatsAreNone(String body) throws Exception {
        assertNull(Envelope.read(bytes(body)));
    }

    @Test
    void bodiesOfLaterVersionsAreOfATypeThatNobodyKnows() throws Exception {
        assertEquals("PINLATER/2", Envelope.read(bytes("PINLATER/2 application/json\n{\"job\": \"a\"}")).job());
        assertEquals("PINLATER/1 application/msgpack",
                Envelope.read(bytes("PINLATER/1 application/msgpack\n\u0080")).job());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "{", "[]", "{}", "{\"job\": 1}", "{\"job\": \"a\"} {}", "{\"job\": \"a\", \"args\": {}}",
            "{\"job\": \"a\", \"kwargs\": []}", "{\"job\": \"a\", \"snoozes\": -1}", "{\"job\": \"a\", \"snoozes\": 1.5}"})
    void whatCannotBeReadIsInvalid(String rest) {
        byte[] body = bytes("PINLATER/1 application/json\n" + rest);
        assertThrows(Envelope.BodyInvalid.class, () -> Envelope.read(body));
    }

    @Test
    void bodiesThatAreNestedTooDeepAreInvalid() {
        byte[] body = bytes("PINLATER/1 application/json\n{\"job\": \"a\", \"args\": " + "[".repeat(100_000));
        assertThrows(Envelope.BodyInvalid.class, () -> Envelope.read(body));
    }

    @Test
    void aSnoozeKeepsEverythingElse() throws Exception {
        Envelope envelope = new Envelope("a", List.of(1L), Map.of("b", 2L), Map.of("c", "d"), 4, 5);
        assertEquals(new Envelope("a", List.of(1L), Map.of("b", 2L), Map.of("c", "d"), 5, 5),
                Envelope.read(envelope.snoozed().written()));
    }

    @Test
    void resultsInAnotherFormatAreGivenAsTheyAre() {
        byte[] result = {0, 1, 2};
        assertArrayEquals(result, (byte[]) Envelope.readValue(result));
    }
}
