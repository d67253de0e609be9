"""What is different between two configurations, for the log and for who must check it."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.config.settings import SETTINGS, Config
from pinlater.config.stores import StoreConfig


@dataclass(frozen=True, slots=True)
class Changes:
    """Shard ids, and names of settings."""

    shards_added: list[str]
    shards_removed: list[str]
    shards_moved: list[str]
    """With another address."""
    dequeue_only: list[str]
    takes_jobs_again: list[str]
    settings: list[str]

    def facts(self) -> dict[str, list[str]]:
        """Those there are, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name)}


def changes(before: Config, after: Config) -> Changes:
    """Both with the ids that their stores turned out to have."""
    old, new = _by_id(before), _by_id(after)
    both = sorted(old.keys() & new.keys())
    return Changes(
        shards_added=sorted(new.keys() - old.keys()),
        shards_removed=sorted(old.keys() - new.keys()),
        shards_moved=[each for each in both if old[each].url != new[each].url],
        dequeue_only=[each for each in both if new[each].dequeue_only and not old[each].dequeue_only],
        takes_jobs_again=[each for each in both if old[each].dequeue_only and not new[each].dequeue_only],
        settings=[
            setting.name
            for setting in SETTINGS
            if setting.field != "dequeue_only" and getattr(before, setting.field) != getattr(after, setting.field)
        ],
    )


def _by_id(config: Config) -> dict[str, StoreConfig]:
    return {store.id: store for store in config.stores if store.id}
