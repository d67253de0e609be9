"""Claims that are in progress for certain: those that count against a limit of a queue or a group.

A claim is so from the answer that shows it to the begin of the first call that may end it, or to its expiry. Claims
that are bound to connections or await a receipt may end at any time, and do not count.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, NamedTuple

from pinlater.history.checker.history_judge import HistoryJudge, OpenCall
from pinlater.history.checker.observations import CallMark
from pinlater.history.checker.verdict import Violation

UNCERTAIN_MS = 600_000.0
"""So long after a call about many jobs claims of its queue are not counted."""

_UNDELIVERED_MS = 500.0
_MOST_SHOWN = 12


class HeldClaim(NamedTuple):
    """A claim that certainly stands, and the call that was handed it."""

    begin_ms: float
    until_ms: float
    mark: CallMark
    end_ms: float


def may_go_back(call: OpenCall) -> bool:
    """Whether the claims of a dequeue may end by themselves before their time is over."""
    return bool(call.request.get("releaseOnDisconnect") or call.request.get("confirmsReceipt"))


class HeldClaims:
    """Those of one queue, or of one group of one, by their jobs."""

    def __init__(self) -> None:
        self._claims: dict[str, HeldClaim] = {}
        self._until: list[tuple[float, str]] = []

    def hold(self, call: OpenCall, jobs: Mapping[str, Mapping[str, Any]], tolerance_ms: float) -> None:
        """A dequeue that has just ended was answered with these jobs, and what it says of each."""
        for descriptor, metadata in jobs.items():
            expires_ms = metadata.get("claimExpiresAtMillis")
            if expires_ms is None:
                continue
            until_ms = expires_ms - _UNDELIVERED_MS - tolerance_ms
            if until_ms > call.end_ms:
                self._claims[descriptor] = HeldClaim(call.begin_ms, until_ms, call.mark, call.end_ms)
                heapq.heappush(self._until, (until_ms, descriptor))

    def may_end(self, descriptor: str) -> None:
        """A call begins that may end the claim of this job."""
        self._claims.pop(descriptor, None)

    def clear(self) -> None:
        """Any may have ended."""
        self._claims.clear()
        self._until.clear()

    def at(self, at_ms: float) -> Mapping[str, HeldClaim]:
        """Those whose time is not over by then; the times that are asked for go up."""
        claims, until = self._claims, self._until
        while until and until[0][0] <= at_ms:
            until_ms, descriptor = heapq.heappop(until)
            claim = claims.get(descriptor)
            if claim is not None and claim.until_ms <= until_ms:
                del claims[descriptor]
        return claims

    def violation(self, rule: str, subject: str, text: str, at_ms: float, judge: HistoryJudge) -> Violation:
        """These claims contradict a limit: the calls that were handed the last of them."""
        shown = sorted(self._claims.items(), key=lambda each: each[1].end_ms)[-_MOST_SHOWN:]
        part = [
            judge.line(claim.begin_ms, claim.end_ms, claim.mark, f"was handed {descriptor}")
            for descriptor, claim in shown
        ]
        return Violation(rule, subject, text, at_ms, tuple(part), tuple(claim.mark.number for _, claim in shown))
