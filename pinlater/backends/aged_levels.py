"""Aging between priorities: a job counts one priority higher for each so much time since its run_after.

What a claim tries in order are *levels*. In a queue whose jobs do not age a level is a priority. Where they age, a
level is what jobs count as: `max(1, priority - (now - run_after) // aging)`. At one level the order is by run_after and
id, whatever the priorities. So a job that has come up stands before all that come later, and none waits for ever.

Where the jobs have groups, the groups of a priority take turns as ever (group_store.py), and a priority is as high as
the oldest of its jobs makes it: until that one is handed out, each hand-out of the priority counts as it does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from operator import itemgetter
from typing import NamedTuple, TypeVar

from pinlater.backends.group_store import ReadyCounts

T = TypeVar("T")


class AgedLevel(NamedTuple):
    """Jobs of these priorities that count as `number`."""

    number: int
    priorities: tuple[int, ...]
    aging_ms: int

    def of(self, priority: int, run_after_ms: int, now_ms: int) -> int:
        """The number of the level of a job.

        >>> [AgedLevel(1, (1, 2, 3), 600).of(3, 0, now_ms) for now_ms in (599, 600, 1200, 9000)]
        [3, 2, 1, 1]
        """
        return max(1, priority - max(0, now_ms - run_after_ms) // self.aging_ms)

    def reach_ms(self, priority: int, now_ms: int) -> int:
        """The latest run_after with which a job of a priority is at this level, or a higher one.

        >>> [AgedLevel(2, (1, 2, 3), 600).reach_ms(priority, 5000) for priority in (1, 2, 3)]
        [5000, 5000, 4400]
        """
        return now_ms - max(0, priority - self.number) * self.aging_ms

    def before_ms(self, priority: int, run_after_ms: int, now_ms: int) -> int:
        """The latest run_after of jobs of a priority that stand before a job of this level with that run_after.

        >>> level = AgedLevel(2, (1, 2, 3), 600)
        >>> [level.before_ms(priority, 4_300, now_ms=5_000) for priority in (1, 2, 3)]
        [5000, 4400, 4299]
        """
        if priority < self.number:
            return now_ms
        above_ms = now_ms - (priority - self.number + 1) * self.aging_ms if self.number > 1 else 0
        return max(above_ms, min(run_after_ms - 1, self.reach_ms(priority, now_ms)))


Level = int | AgedLevel


class JobPlace(NamedTuple):
    """Where a job stands among those of its queue."""

    priority: int
    run_after_ms: int
    id: int


def levels_of(priorities: tuple[int, ...], aging_ms: int | None) -> tuple[Level, ...]:
    """What a claim of these priorities tries in order.

    >>> levels_of((1, 2), None)
    (1, 2)
    >>> [level.number for level in levels_of((2, 3), 600)]
    [1, 2, 3]
    """
    return priorities if aging_ms is None else _aged_levels(priorities, aging_ms)


@lru_cache(maxsize=1_000)
def _aged_levels(priorities: tuple[int, ...], aging_ms: int) -> tuple[AgedLevel, ...]:
    return tuple(AgedLevel(number, priorities, aging_ms) for number in range(1, max(priorities, default=0) + 1))


def split_levels(levels: Sequence[Level]) -> tuple[Sequence[int], AgedLevel | None]:
    """The priorities of the jobs that are at these levels; and the last level, where they age.

    >>> split_levels((1, 2))
    ((1, 2), None)
    >>> split_levels(levels_of((2, 3), 600)[:1])
    ((2, 3), AgedLevel(number=1, priorities=(2, 3), aging_ms=600))
    """
    if levels and isinstance(last := levels[-1], AgedLevel):
        return last.priorities, last
    return levels, None  # type: ignore[return-value]  # they are priorities, and each claim asks


def order_by(levels: Sequence[Level], now_ms: int) -> Callable[[int, int], tuple[int, int]]:
    """A function of the priority and the run_after of a job: by what these levels sort it."""
    _, last = split_levels(levels)
    if last is None:
        return lambda priority, run_after_ms: (priority, run_after_ms)
    return lambda priority, run_after_ms: (last.of(priority, run_after_ms, now_ms), run_after_ms)


def by_level(
    last: AgedLevel, of_priorities: Iterable[Iterable[tuple[JobPlace, T]]], now_ms: int
) -> Iterator[tuple[int, T]]:
    """Jobs of several priorities, each in its own order, as they follow each other; with the numbers of their levels,
    down to the last one.
    """

    def ranked(jobs: Iterable[tuple[JobPlace, T]]) -> Iterator[tuple[tuple[int, int, int], T]]:
        for place, job in jobs:
            yield (last.of(place.priority, place.run_after_ms, now_ms), place.run_after_ms, place.id), job

    for (level, _, _), job in merge(*map(ranked, of_priorities), key=itemgetter(0)):
        if level > last.number:
            return
        yield level, job


def in_turn(jobs: Iterable[tuple[JobPlace, T]], oldest: Sequence[JobPlace]) -> Iterator[tuple[JobPlace, T]]:
    """Jobs of one priority by the turns of their groups, each at the place of the oldest that is not gone by then.
    `oldest`: the first ones by run_after, as many as there are jobs, if there are as many.

    >>> young, old = JobPlace(2, 9, 1), JobPlace(2, 1, 2)
    >>> [place.run_after_ms for place, _ in in_turn([(young, "a"), (old, "b"), (young, "c")], [old, young])]
    [1, 1, 9]
    """
    gone: set[int] = set()
    at = 0
    for own, job in jobs:
        while at < len(oldest) and oldest[at].id in gone:
            at += 1
        yield (oldest[at] if at < len(oldest) else own), job
        gone.add(own.id)


def count_levels(
    levels: Sequence[Level],
    times: Mapping[int, Sequence[int]],
    limit: int,
    now_ms: int,
    groups: Mapping[int, int] | None = None,
) -> list[int]:
    """What `count_ready` answers of levels, by the first `limit` run_afters of each priority, in order. `groups`: the
    weights of the groups of each priority that have jobs.

    >>> count_levels(levels_of((1, 2), 600), {1: [4_000], 2: [4_000, 4_400, 4_500]}, 10, now_ms=5_000)
    [3, 1]
    """

    def count(level: AgedLevel, priority: int) -> int:
        return bisect_right(times[priority], level.reach_ms(priority, now_ms))

    return sum_levels(levels, count, limit, groups)


def sum_levels(
    levels: Sequence[Level],
    count: Callable[[AgedLevel, int], int],
    limit: int,
    groups: Mapping[int, int] | None = None,
) -> list[int]:
    """The same, by how many jobs of a priority are at a level, or a higher one."""
    ready, giving = [], []
    before: dict[int, int] = {}
    for level in levels:
        assert isinstance(level, AgedLevel)
        until = {priority: min(limit, count(level, priority)) for priority in level.priorities}
        found = {priority: amount - before.get(priority, 0) for priority, amount in until.items()}
        before = until
        ready.append(min(limit, sum(found.values())))
        giving.append(sum((groups or {}).get(priority, 0) for priority, amount in found.items() if amount))
    return ready if groups is None else ReadyCounts(ready, giving)
