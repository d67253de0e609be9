"""An enqueue that a thread carries out, and the claims of its queue that were begun behind it (decision 352)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Any

from pinlater.backends.base import ClaimRequest
from pinlater.backends.sql.threads import CallResult, ThreadCall, answer, deliver
from pinlater.errors import NothingStored


class EnqueueInFlight:
    """Its methods are called on the event loop, but for `claims` and `ended`, which its thread calls."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._lock = Lock()
        self._claims: list[ThreadCall] | None = []
        self._claimed: list[tuple[ThreadCall, CallResult]] = []
        self._is_cancelled = False

    def may_have_behind(self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, enforce_quota: bool) -> bool:
        """Whether a claim may share its transaction: one under a quota locks that, which no enqueue does."""
        return queue == self.queue and not enforce_quota

    def put_behind(self, claim: ThreadCall) -> bool:
        """False: it is over, and a claim that begins now sees its jobs."""
        with self._lock:
            if self._claims is None:
                return False
            self._claims.append(claim)
            return True

    def claims(self, *, ends: bool = False) -> list[ThreadCall]:
        """Those that came since the last time. `ends`: where there are none, it is over."""
        with self._lock:
            claims = self._claims or []
            self._claims = None if ends and not claims else []
            return claims

    def ended(self, claimed: list[tuple[ThreadCall, CallResult]]) -> None:
        """What its thread made of the claims, which are answered behind it: so its jobs are announced by then."""
        with self._lock:
            if not self._is_cancelled:
                self._claimed, claimed = claimed, []
        deliver(claimed)

    def answered(self, storing: asyncio.Future[Any]) -> None:
        """Cancelled before it began, it never runs: the claims behind it may be made again."""
        with self._lock:
            self._is_cancelled = storing.cancelled()
            claimed = self._claimed
        if storing.cancelled():
            error = NothingStored("the enqueue before this claim was cancelled", retry_after_ms=1)
            claimed += [(claim, CallResult(error=error)) for claim in self.claims(ends=True)]
        if claimed:
            storing.get_loop().call_soon(answer, [(claim.future, outcome) for claim, outcome in claimed])
