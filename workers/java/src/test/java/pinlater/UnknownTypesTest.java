package pinlater;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Map;
import org.junit.jupiter.api.Test;

class UnknownTypesTest {
    @Test
    void roundsAreThoseOfTheFramework() {
        UnknownTypes.FirstSeen seen = new UnknownTypes.FirstSeen(0, 10_000);
        Map.of(0L, 10L, 10_000L, 20L, 50_000L, 62L, 7_200_000L, 7_575L)
                .forEach((after, wanted) -> assertEquals(wanted, seen.nextRound(after) / 1000));
    }

    @Test
    void aStatusIsReadAsTheFrameworkWritesIt() {
        String line = "not run: type resize, unknown to the workers of queue pictures since 2026-11-23T00:09:12.345Z "
                + "(web-1:4711); looked for again after 1d2h, later less often; FAILED after 1d\n";
        UnknownTypes.FirstSeen wanted = new UnknownTypes.FirstSeen(1_795_392_552_345L, 93_600_000);
        assertEquals(wanted, UnknownTypes.FirstSeen.of("something newer\n" + line));
        assertNull(UnknownTypes.FirstSeen.of("attempt 1 of 11: wrong\n"));
        Map.of(86_400_000L, "1d", 5_400_000L, "1h30m", 10_000L, "10s", 250L, "250ms", 0L, "0s")
                .forEach((ms, text) -> assertEquals(text, UnknownTypes.durationText(ms)));
    }
}
