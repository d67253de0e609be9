"""The shortest plan that still fails: faults, parts, minutes, servers and shards are taken away while the run goes on
to break the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tests.simulation.plan import Plan

T = TypeVar("T")


def rule_of(violation: str) -> str:
    """What is broken, without whom it befell: up to the first colon."""
    return violation.partition(":")[0]


def shrink(plan: Plan, fails: Callable[[Plan], bool], tries: int = 200) -> Plan:
    """`fails`: whether a plan breaks the rule in question; it is asked at most `tries` times."""
    left = tries

    def still_fails(shorter: Plan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(shorter)

    is_shorter = True
    while is_shorter and left > 0:
        is_shorter = False
        for shorter in _shorter(plan):
            if still_fails(shorter):
                plan, is_shorter = shorter, True
                break
    return plan


def _shorter(plan: Plan) -> Iterator[Plan]:
    """Plans with less in them, those first that lack most."""
    for faults in _parts_left_out(plan.faults):
        yield plan.without(faults=faults)
    for name in plan.parts:
        if len(plan.parts) > 1:
            yield plan.without(parts={other: each for other, each in plan.parts.items() if other != name})
    last_s = max((fault.at_s + fault.lasts_s for fault in plan.faults), default=0.0)
    for minutes in sorted({round(plan.minutes / 2, 1), round(last_s / 60 + 0.5, 1)}):
        if 0 < minutes < plan.minutes:
            yield plan.without(minutes=minutes, faults=[each for each in plan.faults if each.at_s < minutes * 60])
    for servers in (1, plan.servers - 1):
        if 0 < servers < plan.servers:
            yield plan.without(servers=servers)
    for shards in (1, plan.shards - 1):
        if 0 < shards < plan.shards:
            yield plan.without(shards=shards)
    if plan.overflow:
        yield plan.without(overflow=False)


def _parts_left_out(items: Sequence[T]) -> Iterator[list[T]]:
    """The list without a half, a quarter, … one of it, each in its turn."""
    size = len(items)
    while size > 0:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2
