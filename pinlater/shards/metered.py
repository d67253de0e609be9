"""A shard whose every call is counted: how long the store took, what failed, how many jobs went in one call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeVar

from pinlater.backends.base import ClaimRequest, Shard
from pinlater.backends.operations import OPERATIONS
from pinlater.errors import PinLaterError
from pinlater.metrics import Metrics
from pinlater.model import DequeuedJob
from pinlater.shards.passing import Passing

R = TypeVar("R")
_NOT_METERED = ("open", "close")


class Metered(Passing):
    """Stands outside of the guard, so that waiting for a turn counts, and inside of the joining."""

    def __init__(self, inner: Shard, metrics: Metrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    async def claim(
        self, queue: str, requests: Sequence[ClaimRequest], now_ms: int, *, enforce_quota: bool = False
    ) -> list[list[DequeuedJob]]:
        """What was handed out, not what was asked for, is the size of a claim."""
        claimed = await self._metered("claim", self._inner.claim(queue, requests, now_ms, enforce_quota=enforce_quota))
        self._metrics.observe(sum(map(len, claimed)), "shard_batch_jobs", self.shard_id, "claim")
        return claimed

    async def _metered(self, name: str, call: Coroutine[Any, Any, R]) -> R:
        began = perf_counter()
        try:
            answer = await call
        except PinLaterError as error:
            self._metrics.add(1, "shard_call_errors", self.shard_id, name, type(error).reason or type(error).__name__)
            raise
        finally:
            self._metrics.observe(perf_counter() - began, "shard_call_seconds", self.shard_id, name)
        return answer


def _metering(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    operation = OPERATIONS[name]
    label, batch = operation.label, operation.batch

    def call(self: Metered, *arguments: Any, **named: Any) -> Coroutine[Any, Any, Any]:
        if batch is not None:
            self._metrics.observe(len(arguments[batch]), "shard_batch_jobs", self.shard_id, label)
        return self._metered(label, getattr(self._inner, name)(*arguments, **named))

    return call


for _name, _value in vars(Passing).items():
    if callable(_value) and not _name.startswith("_") and _name not in (*_NOT_METERED, *vars(Metered)):
        setattr(Metered, _name, _metering(_name))
