"""Records that a shard keeps beside jobs: config entries, small values, tokens, quotas; and statistics of jobs."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pinlater.backends.requests import StoredState
from pinlater.model.body_reference import BodyReference


class ConfigEntry(NamedTuple):
    """A queue, or something else that all shards should agree on (a name with "@"), as of one version.

    Versions are compared as texts; the highest one of a name is true everywhere. Versions are 16 digits (microseconds
    since the epoch), a dash and 8 hexadecimal digits, so no two changes have the same one. `deleted_version` is that of
    the queue's last deletion, "" where it never was deleted; what the queue held before that is gone. An entry whose
    two versions are equal is the tombstone of a deleted queue. `text` means nothing to a store.
    """

    name: str
    version: str
    text: str = "{}"
    deleted_version: str = ""

    @property
    def is_deleted(self) -> bool:
        return self.version == self.deleted_version


class ConfigPage(NamedTuple):
    """Config entries, and the revision of the shard up to which these are all."""

    revision: int
    entries: list[ConfigEntry]


class KvEntry(NamedTuple):
    """A small thing that servers tell each other through a store. `version` begins at 1."""

    body: bytes
    version: int
    expires_at_ms: int


class Tokens(NamedTuple):
    """The answer of a token bucket: `granted` jobs may be handed out; one more in `retry_after_ms` (0: at once)."""

    granted: int
    retry_after_ms: int


class Quota(NamedTuple):
    """How many claims of a queue may be alive on this shard, as of a version, and how many are."""

    quota: int
    version: int
    in_progress: int


class LevelCounts(NamedTuple):
    """The jobs of one priority of a queue. `oldest_ready_ms`: the smallest run_after of those eligible, or None.

    `waiting` are PENDING, and neither ready nor scheduled; `cancelled` and `replayed` are FAILED, and not in `failed`.
    `ready_limited` are those of the ready ones whose groups are held back, since they are paused or have no room: of
    groups that a claim has come to since.
    """

    ready: int
    scheduled: int
    in_progress: int
    succeeded: int
    failed: int
    oldest_ready_ms: int | None
    waiting: int = 0
    cancelled: int = 0
    replayed: int = 0
    ready_limited: int = 0

    @property
    def jobs(self) -> int:
        """All of them."""
        return sum(self[:5]) + self.waiting + self.cancelled + self.replayed

    def only(self, states: Collection[StoredState]) -> LevelCounts:
        """Those of the jobs that are in these states."""
        fields = {name for state in states for name in _COUNTED_IN[state]}
        return LevelCounts(0, 0, 0, 0, 0, None)._replace(**{name: getattr(self, name) for name in fields})


_COUNTED_IN = {
    StoredState.PENDING: ("ready", "scheduled", "oldest_ready_ms", "ready_limited"),
    StoredState.IN_PROGRESS: ("in_progress",),
    StoredState.SUCCEEDED: ("succeeded",),
    StoredState.FAILED: ("failed",),
    StoredState.WAITING: ("waiting",),
    StoredState.CANCELLED: ("cancelled",),
    StoredState.REPLAYED: ("replayed",),
    StoredState.IN_LINE: ("ready", "oldest_ready_ms", "ready_limited"),
}


class StatsPosition(NamedTuple):
    """Where a count of a queue goes on."""

    state: int
    priority: int
    run_after_ms: int
    id: int


class StatsPage(NamedTuple):
    """Counts by priority of the jobs behind a place; `after` None: those were the last."""

    levels: dict[int, LevelCounts]
    after: StatsPosition | None


class ReferencesPage(NamedTuple):
    """References to bodies, and where the next page begins; `continuation` "": there is none."""

    references: list[BodyReference]
    continuation: str
