"""Maintenance: expired claims, dead letters, jobs that ended long ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pinlater.backends.base import DeadLetterTarget, EndRules, ExpiryCounts, PerQueue, Retention, expired_status
from pinlater.backends.redis.calling import Calling, lowest_id
from pinlater.backends.redis.packing import Args
from pinlater.backends.redis.wording import MARK, buried_words, lapse_rules, lapse_words


class Maintaining(Calling):
    async def expire_claims(self, limit: int, now_ms: int, rules: PerQueue[EndRules]) -> Mapping[str, ExpiryCounts]:
        args: Args = [limit, now_ms, *lapse_words(expired_status(now_ms, MARK)), *lapse_rules(rules.default)]
        for queue, own in rules.of.items():
            args += (queue, *lapse_rules(own))
        parts = iter(await self._store.call("expire_claims", (self._root,), args))
        return {queue.decode(): ExpiryCounts(*counts) for queue, *counts in zip(parts, parts, parts, strict=True)}

    async def dead_letter(self, limit: int, now_ms: int, targets: Mapping[str, DeadLetterTarget]) -> Mapping[str, int]:
        args: Args = [limit, now_ms, lowest_id(now_ms), self.shard_id, *buried_words(now_ms)]
        for queue, grave in targets.items():
            args += (queue, grave.queue, grave.attempts_allowed)
        parts = iter(await self._store.call("bury", (self._root,), args))
        return {queue.decode(): count for queue, count in zip(parts, parts, strict=True)}

    async def prune(
        self, limit: int, now_ms: int, retention: PerQueue[Retention], *, tombstones_before: str = ""
    ) -> Mapping[str, int]:
        args: Args = [limit, *_before(now_ms, retention.default), tombstones_before]
        for queue, own in retention.of.items():
            args += (queue, *_before(now_ms, own))
        parts = iter(await self._store.call("collect", (self._root,), args))
        counts: Counter[str] = Counter()
        for queue, count in zip(parts, parts, strict=True):
            counts[queue.decode()] += count
        return dict(counts)


def _before(now_ms: int, retention: Retention) -> tuple[int, int]:
    """What ended before these times is collected."""
    return now_ms - retention.succeeded_ms, now_ms - retention.failed_ms
