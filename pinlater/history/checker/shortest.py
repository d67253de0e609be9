"""The shortest part of a job's history that cannot be explained.

A call is left out by forgetting its answer: it may then have done what it asked for, or nothing. What is left when no
further answer can be forgotten are the calls that contradict each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.history.checker.job_history import Possibility, TooManyOrders, carry, rivals_of
from pinlater.history.checker.job_machine import Surroundings
from pinlater.history.checker.observations import Observation

_MOST_REPLAYED = 60
"""Calls before the contradiction whose answers are tried one by one; those before that are tried together."""


def shortest_part(
    base: Sequence[Possibility], log: Sequence[Observation], last: Observation, around: Surroundings
) -> list[Observation]:
    """Of these calls those that contradict each other, `last` among them, in the order in which they began."""
    calls = [*log, last]
    kept = [place for place, each in enumerate(calls) if not each.is_optional]
    for size in _sizes(len(log)):
        start = 0
        while start < len(kept) - 1:
            tried = kept[:start] + kept[start + size :] if start + size < len(kept) else [*kept[:start], kept[-1]]
            if _contradicts(base, calls, frozenset(tried), around):
                kept = tried
            else:
                start += size
    return sorted((calls[place] for place in kept), key=lambda each: (each.begin_ms, each.end_ms))


def _sizes(number: int) -> list[int]:
    """Many at first where there are many, then one by one."""
    sizes = [1]
    while number > _MOST_REPLAYED and sizes[0] * 4 < number:
        sizes.insert(0, sizes[0] * 4)
    return sizes


def _contradicts(
    base: Sequence[Possibility], calls: Sequence[Observation], kept: frozenset[int], around: Surroundings
) -> bool:
    """Whether the answers of these calls alone contradict each other."""
    tried = [each if place in kept or each.is_optional else each.relaxed() for place, each in enumerate(calls)]
    left = sorted((each for each in tried if each is not None), key=lambda each: each.end_ms)
    possible = list(base)
    try:
        while left and possible:
            observation = left.pop(0)
            possible = carry(possible, observation, rivals_of(observation, left, around), around)
    except TooManyOrders:
        return False
    return not possible
