"""What the outcome of acks means for those who wait: jobs that are eligible again now, and when others will be."""

from __future__ import annotations

from collections.abc import Iterable

from pinlater.backends.base import AckOutcome, AckRequest


def retries(acks: Iterable[AckRequest], outcomes: Iterable[AckOutcome], now_ms: int) -> tuple[int, list[int]]:
    """How many jobs went back to PENDING without delay, and the times of those that did with one."""
    now = 0
    later: list[int] = []
    for ack, outcome in zip(acks, outcomes, strict=False):
        if outcome is AckOutcome.RETRIED:
            if ack.retry_delay_ms:
                later.append(now_ms + ack.retry_delay_ms)
            else:
                now += 1
    return now, later
