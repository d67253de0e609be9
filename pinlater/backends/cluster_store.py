"""Queues, small values, tokens, quotas and statistics of jobs in a store: what servers share through it."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Collection, Sequence

from pinlater.backends.beside_jobs import ConfigEntry, ConfigPage, KvEntry, Quota, StatsPage, StatsPosition, Tokens
from pinlater.backends.operations import StorePart, operation
from pinlater.backends.requests import StoredState


class ClusterStore(StorePart):
    """Every store has it."""

    @operation("put_records")
    async def put_config(self, entries: Sequence[ConfigEntry], now_ms: int) -> list[bool]:
        """Take each entry, in order, that is newer than the one of its name here; True where it was.

        An entry without "@" in its name is a queue. Taking a live one makes the queue where it is not there. Taking one
        whose `deleted_version` is higher than the version here deletes the queue that is there, with its jobs in all
        states, before that: gone at once for every other call; what it held may be freed later in slices, by `prune`.
        Any other newer entry of a live queue changes its text alone: its jobs stay, and its quota.
        """

    @operation("records", reads=True)
    async def list_config(self, since: int, limit: int) -> ConfigPage:
        """Up to `limit` entries that came here after revision `since` (0: all), tombstones of deleted queues included,
        in the order in which they came; one that is replaced comes again, as the last. An empty page: there are no
        more. A page leaves out nothing up to its revision, also when others write at that moment. A store that was
        emptied: StoreRefused.
        """

    @operation("put_note")
    async def kv_put(
        self,
        namespace: str,
        name: str,
        body: bytes,
        expires_at_ms: int,
        now_ms: int,
        *,
        expected_version: int | None = None,
        keep: int = 100_000,
    ) -> int:
        """Write an entry; the version it has now. With `expected_version` (0: there is none) only where that is the
        version here, else 0 and nothing is changed. An entry that expires at or before now is removed, and the answer
        is as if it had been written. One that has expired counts as none: versions begin at 1 again.

        Some expired entries of the namespace are removed on the way, and those beyond `keep`, the first to expire
        first.
        """

    @operation("notes", reads=True)
    async def kv_list(self, namespace: str, now_ms: int) -> dict[str, KvEntry]:
        """The entries of a namespace by name, without expired ones."""

    @operation()
    async def take_tokens(self, queue: str, wanted: int, per_second: float, capacity: float, now_ms: int) -> Tokens:
        """As many of `wanted` tokens as the queue's bucket on this shard has, whole ones; see token_bucket.py.

        It fills by `per_second`, up to `capacity` (1.0 or more), by the largest now it was ever told, and begins with
        one token. A negative `wanted` gives tokens back, up to the capacity. The queue need not be there.
        """

    @operation("set_share")
    async def set_quota(self, queue: str, quota: int, version: int, now_ms: int) -> Quota:
        """Set the queue's quota where `version` is above the one here (0 where none was set); what it is then.

        A smaller quota takes no claim away: until enough have ended, `in_progress` in the answer is above it, and only
        falls. Version 0 only looks. Deleting the queue ends its quota. QueueNotFound.
        """

    @operation("census", reads=True, bulk=True)
    async def stats(
        self,
        queue: str,
        priorities: Sequence[int],
        now_ms: int,
        after: StatsPosition | None,
        limit: int,
        states: Collection[StoredState] = tuple(StoredState),
    ) -> StatsPage:
        """Count the queue's jobs of these priorities and states, looking at no more than about `limit` entries of an
        index per call; a store that keeps counts answers all at once. A level without jobs may be left out. The pages
        of one queue are of different moments. QueueNotFound.
        """
