"""Whether what was measured of a long run stays flat: the median of its last third against that of its first.

Medians and thirds, since one sample says nothing: a collection of garbage, a burst behind a kill or a busy machine move
single samples by more than a leak moves an hour. Nothing is judged of a time in which things still fill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

LEAST_SAMPLES = 9
"""Of a series that is judged: three in each third."""

LEAST_LIVES = 6
"""Two in each third."""

LIFE_WARM_S = 60.0
"""So long a process still imports, connects and fills its caches; of a short life its first third."""


class Sample(NamedTuple):
    """`at_s` on the monotonic clock."""

    at_s: float
    value: float


@dataclass(frozen=True)
class Bound:
    """How much more there may be at the end than at the begin: so much, and this share of it. `why`: the reason."""

    absolute: float
    share: float
    why: str

    def allowed(self, first: float) -> float:
        return first + self.absolute + self.share * first


@dataclass(frozen=True)
class Trend:
    """Of one series. `first` and `last`: what it was, and what it came to."""

    name: str
    unit: str
    first: float
    last: float
    bound: Bound

    @property
    def is_flat(self) -> bool:
        return self.last <= self.bound.allowed(self.first)

    def line(self) -> str:
        text = f"{self.name}: {self.first:,.1f} to {self.last:,.1f} {self.unit}"
        if self.is_flat:
            return text
        return f"{text}, and {self.bound.allowed(self.first):,.1f} is allowed, since {self.bound.why}"


def thirds(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """The medians of the first and of the last third of the time. None: too few samples to say anything."""
    if len(samples) < LEAST_SAMPLES:
        return None
    begins_s, ends_s = samples[0].at_s, samples[-1].at_s
    third_s = (ends_s - begins_s) / 3
    first = [each.value for each in samples if each.at_s <= begins_s + third_s]
    last = [each.value for each in samples if each.at_s >= ends_s - third_s]
    return (median(first), median(last)) if first and last else None


def over_the_run(name: str, unit: str, samples: Sequence[Sample], warm_until_s: float, bound: Bound) -> Trend | None:
    """Of what outlives processes, from that moment on."""
    found = thirds([each for each in samples if each.at_s >= warm_until_s])
    return None if found is None else Trend(name, unit, *found, bound)


def warm(life: Sequence[Sample]) -> Sequence[Sample]:
    """What a process was when it had what it needs."""
    if not life:
        return life
    begins_s = life[0].at_s
    warm_s = min(LIFE_WARM_S, (life[-1].at_s - begins_s) / 3)
    return [each for each in life if each.at_s >= begins_s + warm_s]


def within_lives(name: str, unit: str, lives: Iterable[Sequence[Sample]], bound: Bound) -> Trend | None:
    """Of processes of one kind, which are killed and replaced, so that a leak shows within their lives alone.

    The lives that lasted at least half as long as the longest count, and of these the median of what they grew by.
    """
    warmed = [each for each in map(warm, lives) if len(each) >= LEAST_SAMPLES]
    longest_s = max((_lasted_s(each) for each in warmed), default=0.0)
    pairs = [found for each in warmed if _lasted_s(each) >= longest_s / 2 if (found := thirds(each))]
    if not pairs:
        return None
    first = median(first for first, _ in pairs)
    return Trend(name, unit, first, first + median(last - first for first, last in pairs), bound)


def from_life_to_life(name: str, unit: str, lives: Iterable[Sequence[Sample]], bound: Bound) -> Trend | None:
    """Of processes of one kind at the same age, which is in the second minute of each: those that begin late in the run
    need no more than those that began early. Of any age, one that lives on at the end would look like growth.
    """
    found: list[Sample] = []
    for life in lives:
        ages = [each.value for each in life if LIFE_WARM_S <= each.at_s - life[0].at_s < 2 * LIFE_WARM_S]
        if ages:
            found.append(Sample(life[0].at_s, median(ages)))
    if len(found) < LEAST_LIVES:
        return None
    values = [each.value for each in sorted(found)]
    third = len(values) // 3
    return Trend(name, unit, median(values[:third]), median(values[-third:]), bound)


def _lasted_s(life: Sequence[Sample]) -> float:
    return life[-1].at_s - life[0].at_s
