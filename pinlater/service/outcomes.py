"""The outcomes of acks: in the order of their call, and what they mean for those who wait for jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import overload

from pinlater.backends.acks import Acks
from pinlater.model import AckOutcome


def retries(acks: Acks, outcomes: Sequence[AckOutcome], now_ms: int) -> tuple[int, list[int]]:
    """How many jobs went back to PENDING without delay, and the times of those that did with one."""
    now = start = 0
    later: list[int] = []
    for kind, ids in acks.runs:
        amount = outcomes[start : start + len(ids)].count(AckOutcome.RETRIED)
        start += len(ids)
        if kind.retry_delay_ms > 0:
            later += [now_ms + kind.retry_delay_ms] * amount
        else:
            now += amount
    return now, later


class OrderedOutcomes(Sequence[AckOutcome]):
    """Put in the order of their acks when somebody looks at them, which most callers do not."""

    def __init__(self, count: int, in_order: Callable[[], list[AckOutcome]]) -> None:
        self._count = count
        self._in_order = in_order

    @cached_property
    def _outcomes(self) -> list[AckOutcome]:
        return self._in_order()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> AckOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AckOutcome]: ...
    def __getitem__(self, index: int | slice) -> AckOutcome | Sequence[AckOutcome]:
        return self._outcomes[index]

    def __eq__(self, other: object) -> bool:
        return self._outcomes == other

    __hash__ = None  # type: ignore[assignment]
