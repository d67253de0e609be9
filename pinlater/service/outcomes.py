"""What the outcome of acks means for those who wait: jobs that are eligible again now, and when others will be."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckOutcome


def retries(acks: Acks, outcomes: Sequence[AckOutcome], now_ms: int) -> tuple[int, list[int]]:
    """How many jobs went back to PENDING without delay, and the times of those that did with one."""
    now = start = 0
    later: list[int] = []
    for kind, ids in acks.runs:
        amount = outcomes[start : start + len(ids)].count(AckOutcome.RETRIED)
        start += len(ids)
        if kind.retry_delay_ms:
            later += [now_ms + kind.retry_delay_ms] * amount
        else:
            now += amount
    return now, later
