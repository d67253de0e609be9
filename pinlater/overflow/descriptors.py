"""The descriptors of jobs in overflow shards, apart from those of shards, and grouped by overflow shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from pinlater.data_folder.identity import is_overflow_id
from pinlater.model import parse_descriptor

T = TypeVar("T")

MARK = ":so"
"""In every descriptor of an overflow shard, and in few others."""


def overflow_of(descriptor: str) -> str | None:
    """The id of the overflow shard that has the job; None: a shard has it, or nobody."""
    if MARK not in descriptor:
        return None
    ref = parse_descriptor(descriptor)
    return ref.shard if ref is not None and is_overflow_id(ref.shard) else None


def by_overflow(items: Iterable[T], descriptor: Callable[[T], str]) -> dict[str, list[T]]:
    """Those items whose jobs are in overflow shards, by shard."""
    groups: dict[str, list[T]] = {}
    for item in items:
        shard_id = overflow_of(descriptor(item))
        if shard_id is not None:
            groups.setdefault(shard_id, []).append(item)
    return groups


def elsewhere(items: Iterable[T], descriptor: Callable[[T], str]) -> list[T]:
    """The others."""
    return [item for item in items if overflow_of(descriptor(item)) is None]
