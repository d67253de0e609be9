"""The lease of a server process: its state and counts, as a key-value entry of JSON in the stores.

A LeaseTable holds the leases of all processes as they were last read from the shards; ShardOwners tells whose the
shards are by them, and LostLeases whose ran out. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import structlog

from pinlater.backends.base import KvEntry
from pinlater.model import MAX_TIME_MS, ServerView
from pinlater.shards.rendezvous import rendezvous_pick
from pinlater.stored_json import read_stored

_log = structlog.get_logger("pinlater.cluster")


MAX_QUEUES = 500
"""A lease has the counters of so many queues at most."""


DRAINING = "draining"
"""Why a process that is about to leave is not ready."""

LOST_FOR_MS = 3_600_000
"""A lease that ran out is remembered for so long."""

DASHED_NAMES = "dashed_queue_names"
KEYS = "keys"
FLOWS = "flows"
BOTH_PASSES = "both_passes"
"""Of an hour that comes twice: expressions for every hour fire in both."""
TAGS = "tags"
GROUPS = "groups"

REPLAYED_JOBS = "replayed_jobs"
"""Jobs that failed, and whose dead letters were sent back, are in a state of their own."""

FLOW_RETRIES = "flow_retries"
"""Flows that were over, and run again."""

BREAKERS = "breakers"
"""Queues that are paused while their circuit breaker is open."""

REPLACE_RULES = "replace_rules"
"""Successors of running jobs, and the bound of what replacements may postpone."""

GROUP_LIMITS = "group_limits"
"""Groups with limits of their own."""

KNOWS = (
    *(DASHED_NAMES, KEYS, FLOWS, BOTH_PASSES, REPLAYED_JOBS, TAGS, FLOW_RETRIES),
    *(GROUPS, GROUP_LIMITS, BREAKERS, REPLACE_RULES),
)
"""What earlier versions take for a mistake: nobody begins with it before every live process says that it knows it.

Upgrades go from versions that know dashes and flows, so these two are asked for no more; those versions look for them.
"""


class ServerName(NamedTuple):
    """A server process: its server's id, its own id there, where others reach it, and when it began."""

    server: str
    process: str
    address: str
    started_ms: int

    @property
    def lease_name(self) -> str:
        return f"{self.server}/{self.process}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A process as of `renewed_ms`, by its own clock; `renewal` counts. `trouble` says why it is not ready, or what is
    wrong with the clocks where it is.

    `maintains`, `shards_in` and `shards_out` are shard ids: one that a process was not configured with is in neither of
    the latter. `shards_full` are those in use that lack room for new jobs; an earlier version does not say which.
    `more` is what the parts of the process want others to know.
    """

    server: str
    process: str
    address: str
    started_ms: int
    renewed_ms: int
    renewal: int
    is_ready: bool
    trouble: str = ""
    maintains: tuple[str, ...] = ()
    shards_in: tuple[str, ...] = ()
    shards_out: tuple[str, ...] = ()
    shards_full: tuple[str, ...] = ()
    counters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.server}/{self.process}"

    @property
    def knows(self) -> Collection[str]:
        """Of KNOWS, what its version knows."""
        names = self.more.get("knows")
        return names if isinstance(names, list | tuple) else ()

    @property
    def tiers(self) -> Collection[str]:
        """The tiers of bodies that it has."""
        names = self.more.get("tiers")
        return names if isinstance(names, list | tuple) else ()

    @property
    def age(self) -> tuple[int, int]:
        """Of two leases of one name the one with the greater is newer, also where the clock was set back meanwhile."""
        return self.started_ms, self.renewal

    def view(self) -> ServerView:
        """For operators."""
        return ServerView(
            self.server,
            self.process,
            self.address,
            self.started_ms,
            self.renewed_ms,
            self.is_ready,
            self.trouble,
            list(self.maintains),
            list(self.shards_out),
            self.more.get("overflow_jobs"),
            list(self.shards_full),
            str(self.more.get("exposed", "")),
        )


_OWN = tuple(each.name for each in fields(Lease) if each.name != "more")


def encode(lease: Lease) -> bytes:
    """The body of its key-value entry."""
    plain = {name: getattr(lease, name) for name in _OWN}
    return json.dumps({**lease.more, **plain}, separators=(",", ":")).encode()


def decode(body: bytes) -> Lease:
    """What `encode` made, in this version or another one. ValueError."""
    try:
        plain = read_stored(body)
        own = {key: plain.pop(key) for key in _OWN if key in plain}
        return Lease(
            **own
            | {
                "maintains": tuple(own["maintains"]),
                "shards_in": tuple(own["shards_in"]),
                "shards_out": tuple(own["shards_out"]),
                "shards_full": tuple(own.get("shards_full", ())),
                "counters": {queue: tuple(numbers) for queue, numbers in own["counters"].items()},
                "more": plain,
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a lease") from error


class _Seen(NamedTuple):
    lease: Lease
    expires_at_ms: int


class LeaseTable:
    """The leases by shard. One that was put on several shards is decoded once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, _Seen]] = {}
        self._decoded: dict[str, tuple[bytes, Lease]] = {}
        self._newest: dict[str, Lease] | None = None
        """As of the last time that it was asked for, where nothing was taken since."""
        self._newest_at_ms = self._newest_until_ms = 0

    def take(self, shard_id: str, entries: Mapping[str, KvEntry], ahead_ms: int) -> None:
        """All that is on a shard now, whose clock is so far ahead of ours."""
        self._seen[shard_id] = {
            name: _Seen(lease, entry.expires_at_ms - ahead_ms)
            for name, entry in entries.items()
            if (lease := self._read(name, entry.body)) is not None
        }
        self._newest = None

    def keep_only(self, shard_ids: Collection[str]) -> None:
        """What other shards said is old: a process that has left since would stay until its lease ends."""
        if self._seen.keys() <= set(shard_ids):
            return
        self._seen = {shard_id: leases for shard_id, leases in self._seen.items() if shard_id in shard_ids}
        self._newest = None
        names = {name for leases in self._seen.values() for name in leases}
        self._decoded = {name: known for name, known in self._decoded.items() if name in names}

    def newest(self, now_ms: int) -> dict[str, Lease]:
        """By name, the newest lease of each process that has one which has not expired. Not to be changed: it is the
        same dictionary until one expires or others are taken, as it is asked for thousands of times a second.
        """
        if self._newest is not None and self._newest_at_ms <= now_ms < self._newest_until_ms:
            return self._newest
        found: dict[str, Lease] = {}
        until_ms = MAX_TIME_MS
        for leases in self._seen.values():
            for name, (lease, expires_at_ms) in leases.items():
                if expires_at_ms > now_ms:
                    until_ms = min(until_ms, expires_at_ms)
                    if name not in found or found[name].age < lease.age:
                        found[name] = lease
        self._newest, self._newest_at_ms, self._newest_until_ms = found, now_ms, until_ms
        return found

    def until_ms(self) -> dict[str, int]:
        """Until when the lease of each process counts, by name."""
        found: dict[str, int] = {}
        for leases in self._seen.values():
            for name, each in leases.items():
                found[name] = max(found.get(name, 0), each.expires_at_ms)
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


class LostLease(NamedTuple):
    """One that ran out, and when that was noticed."""

    lease: Lease
    noticed_ms: int


class LostLeases:
    """The processes whose lease ran out, and none of whose server, or at whose address, has come since. Those that
    leave in order say that they drain, or take theirs away before.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Seen] = {}
        self._lost: dict[str, LostLease] = {}

    def update(self, alive: Iterable[Lease], until_ms: Mapping[str, int], now_ms: int) -> None:
        """These live now; `until_ms`: until when each lease counts, as the shards have just said."""
        here = {lease.name: _Seen(lease, until_ms.get(lease.name, 0)) for lease in alive}
        for name in self._known.keys() - here.keys():
            lease, expired_ms = self._known[name]
            if now_ms >= expired_ms and lease.trouble != DRAINING:
                self._lost[name] = LostLease(lease, now_ms)
        self._known = here
        in_place = {name for each in here.values() for name in (each.lease.server, each.lease.address)}
        self._lost = {
            name: each
            for name, each in self._lost.items()
            if in_place.isdisjoint((each.lease.server, each.lease.address)) and now_ms - each.noticed_ms < LOST_FOR_MS
        }

    def all(self) -> list[LostLease]:
        return [self._lost[name] for name in sorted(self._lost)]


class ShardOwners:
    """The process that owns each shard: one of those that are ready and can use it, the same for all who know the same
    leases (shards/rendezvous.py). It is worked out once, until other processes are able to own shards.
    """

    def __init__(self) -> None:
        self._able: list[tuple[str, tuple[str, ...]]] = []
        self._shards_in: list[tuple[str, frozenset[str]]] = []
        self._owners: dict[str, str | None] = {}

    def update(self, leases: Iterable[Lease]) -> None:
        """These live now."""
        able = [(lease.name, lease.shards_in) for lease in leases if lease.is_ready]
        if able != self._able:
            self._able = able
            self._shards_in = [(name, frozenset(shard_ids)) for name, shard_ids in able]
            self._owners = {}

    def of(self, shard_id: str) -> str | None:
        """As SERVER/PROCESS; None where none is ready and can use it."""
        if shard_id not in self._owners:
            able = [name for name, shard_ids in self._shards_in if shard_id in shard_ids]
            self._owners[shard_id] = rendezvous_pick(shard_id, able)
        return self._owners[shard_id]
