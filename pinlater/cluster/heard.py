"""What the leases on the shards say, as they were last read. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import structlog

from pinlater.backends.base import KvEntry
from pinlater.cluster.lease import Lease, decode

_log = structlog.get_logger("pinlater.cluster")


class _Seen(NamedTuple):
    lease: Lease
    expires_at_ms: int


class Heard:
    """The leases by shard. One that was put on several shards is decoded once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, _Seen]] = {}
        self._decoded: dict[str, tuple[bytes, Lease]] = {}

    def take(self, shard_id: str, notes: Mapping[str, KvEntry], ahead_ms: int) -> None:
        """All that is on a shard now, whose clock is so far ahead of ours."""
        self._seen[shard_id] = {
            name: _Seen(lease, note.expires_at_ms - ahead_ms)
            for name, note in notes.items()
            if (lease := self._read(name, note.body)) is not None
        }

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """What other shards said is old: a process that has left since would stay until its lease ends."""
        self._seen = {shard_id: leases for shard_id, leases in self._seen.items() if shard_id in shard_ids}
        names = {name for leases in self._seen.values() for name in leases}
        self._decoded = {name: known for name, known in self._decoded.items() if name in names}

    def newest(self, now_ms: int) -> dict[str, Lease]:
        """By name, the newest lease of each process that has one which has not expired."""
        found: dict[str, Lease] = {}
        for leases in self._seen.values():
            for name, (lease, expires_at_ms) in leases.items():
                if expires_at_ms > now_ms and (name not in found or found[name].age < lease.age):
                    found[name] = lease
        return found

    def _read(self, name: str, body: bytes) -> Lease | None:
        before = self._decoded.get(name)
        if before is not None and before[0] == body:
            return before[1]
        try:
            lease = decode(body)
        except ValueError:
            _log.warning("lease_not_understood", name=name)
            return None
        self._decoded[name] = (body, lease)
        return lease
