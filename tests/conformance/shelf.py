"""Shards that stay open from test to test of a module: opening a store anew costs a hundred times what a test does.

Between two tests all queues are deleted and everything they left is collected, by the shard's own calls. Notes, buckets
and records with "@" stay: tests name these by `new_name`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from pinlater.backends.base import PerQueue, Retention, Shard
from tests.conformance.subject import DAY_MS, START_MS
from tests.lent import Lent
from tests.queues import drop_queue, names_of

ALL_AT_ONCE = 10_000
ENDS_WITHIN_S = 60.0
NOTHING_KEPT = PerQueue(Retention(0, 0))
RESULTS_OVER_MS = START_MS + 400 * DAY_MS
"""No result of a test is kept for so long; of a deleted queue they may stay until their time has passed."""

EVERY_MARK = "9" * 16


class Shelf:
    """Sets of shards, each opened when it is first asked for."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._sets: dict[str, list[Shard]] = {}
        self._store_ids: dict[int, str] = {}
        self._threads = set(threading.enumerate())

    def take(self, name: str, make: Callable[[], Sequence[Shard]]) -> list[Shard]:
        """The open shards of this name, empty."""
        if name not in self._sets:
            self._sets[name] = list(make())
            for shard in self._sets[name]:
                self._store_ids[id(shard)] = self._runner.run(shard.open())
        return self._sets[name]

    def kept(self, shard: Shard) -> Shard:
        """What may be wrapped, opened and closed."""
        return Lent(shard, self._store_ids[id(shard)])

    def put_back(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            self._runner.run(emptied(shard))

    def close(self) -> None:
        """Close all shards. No thread may be left, but for the event loop's own, which end with it.

        A thread that was told to end may need a while: that of the admin password lets all others go first.
        """
        for shards in self._sets.values():
            for shard in shards:
                self._runner.run(shard.close())
        ours = (thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_"))
        started = [thread for thread in ours if thread not in self._threads]
        for thread in started:
            thread.join(ENDS_WITHIN_S)
        left = [thread for thread in started if thread.is_alive()]
        assert not left, f"threads left by close: {left}"


async def emptied(shard: Shard) -> None:
    """As if it were new, but for the ids it has used."""
    for queue in await names_of(shard):
        await drop_queue(shard, queue, START_MS)
    for now_ms in (START_MS, RESULTS_OVER_MS):
        while await shard.prune(ALL_AT_ONCE, now_ms, NOTHING_KEPT, tombstones_before=EVERY_MARK):
            pass
        assert not await shard.key_slots(), "a key is left"
    while dropped := await shard.dropped_references(ALL_AT_ONCE):
        await shard.forget_references(dropped)
    assert not (await shard.list_references("", 1)).references, "a reference is left"
    left = [record for record in (await shard.list_config(0, ALL_AT_ONCE)).entries if "@" not in record.name]
    assert left == []
