"""The health of a shard: the verdict over its calls.

`Health` is pure: it is told what happened and when, and holds no timer.

    IN ──(too few good outcomes, or failures in a row)──> OUT ──(pause over: some pings)──> IN with a fresh window
                                                           ^                |
                                                           └──(one fails)───┘ twice the pause

Only pings bring a shard back: the late success of a call that was under way when it went out does not.
Pauses begin short, so that a short fault costs little, and double, so that a store that answers pings but fails at work
is soon tried as rarely as one that is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class HealthSettings:
    window: int = 100
    """How many outcomes are remembered."""

    min_good: int = 75
    """Fewer good ones than that in a full window, and the shard is sick."""

    failures_in_a_row: int = 3
    """Failures in a row, of all calls or of one kind, that make it sick: a store can answer pings and take no job."""

    first_pause_ms: int = 1_000
    """A sick shard is left alone for so long at first, and whenever no other shard can serve in its place."""

    pause_ms: int = 60_000
    """For twice as long each time it fails again, but never for longer than this.

    A shard that was in for so long begins with the first pause again.
    """

    probes: int = 3
    """Pings that must succeed, one after the other, before it comes back."""

    probe_gap_ms: int = 500


class Pause:
    """A wait that is twice as long each time, between two bounds; how long it is now, and since when it runs."""

    __slots__ = ("_first_ms", "_length_ms", "_longest_ms", "since_ms")

    def __init__(self, first_ms: int, longest_ms: int) -> None:
        self._first_ms = min(first_ms, longest_ms)
        self._longest_ms = longest_ms
        self._length_ms = 0
        self.since_ms = 0

    def lengthen(self) -> None:
        self._length_ms = min(max(2 * self._length_ms, self._first_ms), self._longest_ms)

    def forget(self) -> None:
        """The next one is the first again."""
        self._length_ms = 0

    def ends_ms(self, *, first: bool = False) -> int:
        """The time at which it is over; `first`: as if it were the first pause."""
        return self.since_ms + min(self._length_ms, self._first_ms if first else self._longest_ms)

    def is_over(self, now_ms: int, *, first: bool = False) -> bool:
        """A clock that was set back ends it too: it must not last for as long as the clock was wrong."""
        return not self.since_ms <= now_ms < self.ends_ms(first=first)


class Good(NamedTuple):
    """How many of the outcomes that are remembered were good."""

    good: int
    samples: int


class Health:
    """The health of one shard. `is_healthy`: calls may go to it. It begins outside, and may be probed at once."""

    __slots__ = (
        "_bad",
        "_in_since_ms",
        "_outcomes",
        "_pause",
        "_probes_left",
        "_settings",
        "_slow",
        "_streak",
        "_streaks",
        "counts_good",
        "is_healthy",
        "on_change",
    )

    def __init__(self, settings: HealthSettings | None = None) -> None:
        self._settings = settings or HealthSettings()
        self._outcomes: deque[bool] = deque()
        self._bad = 0
        self._streak = self._slow = 0
        self._streaks: dict[str, int] = {}
        self._pause = Pause(self._settings.first_pause_ms, self._settings.pause_ms)
        self._in_since_ms = 0
        self._probes_left = self._settings.probes
        self.is_healthy = False
        self.counts_good = False
        """Whether one more good answer would change anything: once the window is full of them, none does."""
        self.on_change: Callable[[], None] | None = None
        """Called whenever `is_healthy` may have changed."""

    # -- while it is in ----------------------------------------------------------------------------------------------

    def answered(self, kind: str) -> None:
        """A call of that kind was answered in time."""
        if not self.is_healthy:
            return
        if self._streaks or self._slow:
            self._streak = self._slow = 0
            self._streaks.pop(kind, None)
        if self._bad or len(self._outcomes) < self._settings.window:  # else one more changes nothing
            self._remember(True)
        self.counts_good = bool(self._streaks or self._bad or len(self._outcomes) < self._settings.window)

    def succeeded(self, kind: str, now_ms: int, *, is_slow: bool = False) -> bool:
        """A call of that kind was answered; `is_slow`: too late to be good. True: with this it went out."""
        if not is_slow:
            self.answered(kind)
        if not is_slow or not self.is_healthy:
            return False
        self._slow += 1
        self._remember(False)
        return self._trip_if_sick(now_ms)

    def failed(self, kind: str, now_ms: int) -> bool:
        """It could not be reached, gave no answer in time, or could not do it. True: with this it went out."""
        if not self.is_healthy:
            return False
        self._streak += 1
        self._streaks[kind] = self._streaks.get(kind, 0) + 1
        self._remember(False)
        return self._trip_if_sick(now_ms)

    def _remember(self, is_good: bool) -> None:
        self.counts_good = True
        self._outcomes.append(is_good)
        self._bad += not is_good
        if len(self._outcomes) > self._settings.window:
            self._bad -= not self._outcomes.popleft()

    def _trip_if_sick(self, now_ms: int) -> bool:
        """More bad outcomes than a full window may have are enough, before it is full: good ones cannot follow.

        Slow answers count beside failures in a row, and do not end them: alone they make no row.
        """
        settings = self._settings
        in_a_row = max(self._streak and self._streak + self._slow, max(self._streaks.values(), default=0))
        if in_a_row < settings.failures_in_a_row and self._bad <= settings.window - settings.min_good:
            return False
        self.trip(now_ms)
        return True

    def good(self) -> Good:
        return Good(len(self._outcomes) - self._bad, len(self._outcomes))

    # -- while it is out ---------------------------------------------------------------------------------------------

    def trip(self, now_ms: int) -> None:
        """Out at once, for a pause. Told while a pause runs, it begins again, and is no longer for that."""
        pause, settings = self._pause, self._settings
        if self.is_healthy and now_ms - self._in_since_ms >= settings.pause_ms:
            pause.forget()
        if self.is_healthy or self.is_probing or pause.is_over(now_ms):
            pause.lengthen()
        pause.since_ms = now_ms
        self.is_healthy = self.counts_good = False
        self._probes_left = settings.probes
        if self.on_change is not None:
            self.on_change()

    @property
    def probe_gap_ms(self) -> int:
        return self._settings.probe_gap_ms

    @property
    def is_probing(self) -> bool:
        """It is out, and a ping succeeded since the pause."""
        return not self.is_healthy and self._probes_left < self._settings.probes

    def next_probe_ms(self, *, is_alone: bool) -> int:
        """The time from which a ping is welcome while it is out; `is_alone`: no other shard serves in its place."""
        if self.is_probing:
            return self._pause.since_ms + self._settings.probe_gap_ms
        return self._pause.ends_ms(first=is_alone)

    def is_due(self, now_ms: int, *, is_alone: bool) -> bool:
        """Whether a ping is welcome now."""
        return not self._pause.since_ms <= now_ms < self.next_probe_ms(is_alone=is_alone)

    def probe_now(self) -> None:
        """Let one ping bring it back, at once: what made it sick is gone."""
        if not self.is_healthy:
            self._pause.forget()
            self._pause.since_ms = 0
            self._probes_left = 1

    def probe_succeeded(self, now_ms: int) -> bool:
        """True: these were enough, and `admit` may follow."""
        self._pause.since_ms = now_ms
        self._probes_left = max(self._probes_left - 1, 0)
        return self._probes_left == 0

    def admit(self, now_ms: int) -> None:
        """Count it as in, with nothing held against it but the length of its last pause."""
        self.is_healthy = self.counts_good = True
        self._in_since_ms = now_ms
        self._outcomes.clear()
        self._bad = self._streak = self._slow = 0
        self._streaks.clear()
        if self.on_change is not None:
            self.on_change()
