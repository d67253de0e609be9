"""Rows of an export, as commands that write them into a Redis store, which no server uses meanwhile."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pinlater.backends.group_rules import GROUP_RULES_PREFIX
from pinlater.backends.packed_trails import TOTAL
from pinlater.backends.redis.exported_keys import BARRIER, SHOWS_KEYS, STOPS, UNDELIVERED_ROW
from pinlater.backends.redis.key_records import CHAIN_HEAD, EXTRA, GROUPED, KEY_ENTRY, PROGRESS, SUCCESSOR, TAGGED
from pinlater.backends.redis.records import CHANGED, CLAIM, GROUPS_MARK, HEAD, ID, RESULT, TIERED, group_rule_fields
from pinlater.backends.requests import LIVE_STATES, StoredState
from pinlater.backends.store_transfer import (
    ChainRow,
    ConfigRow,
    ExportBlock,
    ExportedJob,
    JobMore,
    KeyRow,
    KvRow,
    QuotaRow,
    ResultRow,
)
from pinlater.model import MAX_TIME_MS

Command = tuple[Any, ...]

PENDING, IN_PROGRESS, SUCCEEDED, FAILED, WAITING, REPLAYED = map(
    int,
    (
        StoredState.PENDING,
        StoredState.IN_PROGRESS,
        StoredState.SUCCEEDED,
        StoredState.FAILED,
        StoredState.WAITING,
        StoredState.REPLAYED,
    ),
)
_LIVE = frozenset(map(int, LIVE_STATES))
_MARK_GROUPS = """
local entry = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], string.match(entry, '^%d+') .. ARGV[2])
"""
_NOBODY, _OTHERS = 0, 1
"""What is behind the first job of a chain."""


class ImportCommands:
    """The commands of one block, gathered so that each key is written once."""

    def __init__(self, root: bytes, now_ms: int) -> None:
        self._root = root
        self._now_ms = now_ms
        self._hashes: dict[bytes, list[Any]] = defaultdict(list)
        self._sets: dict[bytes, list[Any]] = defaultdict(list)
        self._members: dict[bytes, set[bytes]] = defaultdict(set)
        self._earliest: dict[bytes, dict[bytes, int]] = defaultdict(dict)
        self._slots: Counter[int] = Counter()
        self._tiered: Counter[bytes] = Counter()
        self._with_groups: set[bytes] = set()
        self._more: list[Command] = []
        self._revision = time.time_ns() // 1000

    def of(self, block: ExportBlock) -> list[Command]:
        """The commands that take this block."""
        take = getattr(self, f"take_{block.kind}")
        take(block.rows)
        commands: list[Command] = [("HSET", key, *values) for key, values in self._hashes.items()]
        commands += [("ZADD", key, *values) for key, values in self._sets.items()]
        commands += [("SADD", key, *sorted(members)) for key, members in self._members.items()]
        for key, times in self._earliest.items():
            commands.append(("ZADD", key, "LT", *[part for name, at_ms in times.items() for part in (at_ms, name)]))
        commands += [("HINCRBY", self._root + b":slots", slot, count) for slot, count in self._slots.items()]
        queues_key = self._root + b":queues"
        commands += [("EVAL", _MARK_GROUPS, 1, queues_key, each, GROUPS_MARK) for each in sorted(self._with_groups)]
        commands += [("INCRBY", self._base(queue) + b":tiered", count) for queue, count in self._tiered.items()]
        return commands + self._more

    def _base(self, queue: bytes) -> bytes:
        return b"%s:q:%s" % (self._root, queue)

    def _lowest(self, index: bytes, queue: bytes, at_ms: int) -> None:
        times = self._earliest[self._root + index]
        times[queue] = min(at_ms, times.get(queue, at_ms))

    def take_config(self, rows: Iterable[Sequence[Any]]) -> None:
        root = self._root
        entries = [ConfigRow(*row) for row in rows]
        deletions = {entry.name: entry.deleted_version for entry in entries}
        for entry in entries:
            queue = entry.name.removeprefix(GROUP_RULES_PREFIX)
            if queue != entry.name and entry.version > deletions.get(queue, ""):
                fields = group_rule_fields(entry.text)
                self._hashes[self._base(queue.encode()) + b":rules"] += fields
            version, deleted = entry.version.encode(), entry.deleted_version.encode()
            packed = b"%c%b%c%b%b" % (len(version), version, len(deleted), deleted, entry.text.encode())
            revision = self._revision = self._revision + 1
            self._hashes[root + b":records"] += (entry.name, packed)
            self._sets[root + b":revisions"] += (revision, entry.name)
            self._more.append(("SET", root + b":revision", revision))
            if entry.version == entry.deleted_version:
                self._sets[root + b":marks"] += (int(entry.version.partition("-")[0]), entry.name)
            if entry.created_at_ms is not None:
                self._hashes[root + b":queues"] += (entry.name, entry.created_at_ms)

    def take_quota(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            quota = QuotaRow(*row)
            self._hashes[self._root + b":shares"] += (quota.queue, f"{quota.quota} {quota.version}")

    def take_kv(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            entry = KvRow(*row)
            namespace = entry.namespace.encode()
            self._hashes[b"%s:notes:%s" % (self._root, namespace)] += (entry.name, ID.pack(1) + entry.body)
            self._sets[b"%s:until:%s" % (self._root, namespace)] += (entry.expires_at_ms, entry.name)

    def take_job(self, rows: Iterable[Sequence[Any]]) -> None:
        hashes, sets, bases = self._hashes, self._sets, dict[str, bytes]()
        for row in rows:
            job_id, queue, state, priority, run_after_ms, allowed, remaining, crashes = row[:8]
            created_at_ms, updated_at_ms, status, body, more = row[8], row[9], row[15].encode(), row[16], row[17]
            base = bases.get(queue)
            if base is None:
                base = bases[queue] = self._base(queue.encode())
            member = ID.pack(job_id)
            level = priority
            if more is not None and more[1]:
                level += TIERED
                self._tiered[queue.encode()] += 1
                self._members[self._root + b":tiered"].add(queue.encode())
            if state != PENDING or crashes or remaining != allowed or updated_at_ms != created_at_ms:
                hashes[base + b":changed"] += (
                    member,
                    CHANGED.pack(updated_at_ms, max(0, remaining), allowed, crashes) + status,
                )
                status = b""
            hashes[base + b":jobs"] += (member, HEAD.pack(created_at_ms, allowed, level, len(status)) + status + body)
            sets[b"%s:s:%d:%d" % (base, state, priority)] += (run_after_ms, member)
            if row[10] is not None:
                self._take_claim(base, member, row)
            if row[13] is not None:
                self._take_end(base, member, row)
            if more is not None:
                self._take_more(base, member, ExportedJob(*row), JobMore(*more))

    def _take_claim(self, base: bytes, member: bytes, row: Sequence[Any]) -> None:
        state, priority, allowed, claimed_at_ms, timeout_ms, expires_at_ms = row[2], row[3], row[5], *row[10:13]
        claim = CLAIM.pack(claimed_at_ms, timeout_ms or 0, allowed, priority) + (row[14] or "").encode()
        self._hashes[base + b":claims"] += (member, claim)
        if state == IN_PROGRESS:
            self._sets[base + b":expiry"] += (expires_at_ms, member)
            self._lowest(b":claimed", row[1].encode(), expires_at_ms)

    def _take_end(self, base: bytes, member: bytes, row: Sequence[Any]) -> None:
        more = row[17]
        index = b":ended:2" if row[2] == SUCCEEDED else b":dead" if more is not None and more[0] else b":ended:3"
        self._sets[base + index] += (row[13], member)
        self._lowest(index, row[1].encode(), row[13])

    def _take_more(self, base: bytes, member: bytes, job: ExportedJob, more: JobMore) -> None:
        root, hashes, queue = self._root, self._hashes, job.queue.encode()
        if more.origin or more.moved_to:
            attempts = "" if more.origin_attempts is None else more.origin_attempts
            hashes[base + b":links"] += (member, f"{more.origin or ''}\n{attempts}\n{more.moved_to or ''}")
        if more.undelivered:
            hashes[base + b":undelivered"] += (member, UNDELIVERED_ROW.pack(*more.undelivered))
        if more.attempts or more.log:
            attempts_record = more.attempts or b""
            trail = TOTAL.pack(len(attempts_record)) + attempts_record + (more.log or b"")
            hashes[base + b":trails"] += (member, trail)
            self._members[root + b":trails"].add(queue)
        if more.tags:
            hashes[base + b":tagged"] += (member, more.tags)
            for tag in more.tags.split(b"\n"):
                self._sets[base + b":tags"] += (0, tag + b"\0" + member + bytes([job.priority]))
        if more.group:
            self._with_groups.add(queue)
        extra = packed_extra(job.priority, more)
        if extra is not None:
            hashes[base + b":extra"] += (member, extra)
        if more.expires_at_ms is not None and job.state in (PENDING, WAITING):
            self._sets[base + b":until"] += (more.expires_at_ms, member)
            self._lowest(b":until", queue, more.expires_at_ms)
        if more.serialize_key and job.state in _LIVE and not more.shows_keys:
            self._slots[more.slot] += 1
            if job.state == WAITING:
                self._sets[b"%s:chain:%s" % (root, more.serialize_key)] += (
                    more.place,
                    member + bytes([job.priority]) + queue,
                )

    def take_result(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            result = ResultRow(*row)
            queue, member = result.queue.encode(), ID.pack(result.id)
            level = result.priority + (TIERED if result.is_reference else 0)
            times = (result.created_at_ms, result.run_after_ms, result.ended_at_ms)
            packed = RESULT.pack(*times, result.attempts_allowed, max(0, result.attempts_remaining), level)
            self._hashes[self._base(queue) + b":results"] += (member, packed + result.result)
            self._sets[self._root + b":results"] += (result.expires_at_ms, queue + b":" + member)
            if result.is_reference:
                self._tiered[queue] += 1
                self._members[self._root + b":tiered"].add(queue)

    def take_key(self, rows: Iterable[Sequence[Any]]) -> None:
        """What names a job by a dedupe key goes with that job, once its window has passed."""
        for row in rows:
            key = KeyRow(*row)
            queue, until_ms = key.queue.encode(), key.until_ms
            is_over = until_ms is not None and until_ms <= self._now_ms
            if is_over and not (key.is_kept and not key.send_id):
                continue
            name = b"i" + key.send_id if key.send_id else dedupe_entry(key.dedupe_key, key.serialize_key)
            record = KEY_ENTRY.pack(until_ms or 0, key.slot, key.priority, key.outcome)
            entry = ID.pack(0 if key.elsewhere else key.job_id) + record + (key.elsewhere or "").encode()
            if key.successor_id:
                entry += SUCCESSOR.pack(key.successor_id, key.successor_priority)
            self._hashes[self._base(queue) + b":keys"] += (name, entry)
            self._slots[key.slot] += 1
            if until_ms is not None and until_ms < MAX_TIME_MS and not is_over:
                self._sets[self._root + b":windows"] += (until_ms, queue + b":" + name)

    def take_chain(self, rows: Iterable[Sequence[Any]]) -> None:
        root = self._root
        for row in rows:
            chain = ChainRow(*row)
            if chain.barrier:
                head = CHAIN_HEAD.pack(chain.since_ms, BARRIER) + chain.barrier.encode()
                self._hashes[root + b":barriers"] += (chain.serialize_key, chain.barrier)
            else:
                member = ID.pack(chain.job_id) + bytes([chain.priority]) + chain.queue.encode()
                head = CHAIN_HEAD.pack(chain.since_ms, _OTHERS if chain.waiting else _NOBODY) + member
            self._hashes[root + b":heads"] += (chain.serialize_key, head)
            if chain.waiting:
                self._sets[root + b":waiting"] += (chain.waiting, chain.serialize_key)
                self._sets[root + b":since"] += (chain.since_ms, chain.serialize_key)

    def take_mark(self, rows: Iterable[Sequence[Any]]) -> None:
        for name, mark in rows:
            self._hashes[self._root + b":fired"] += (name, mark)

    def take_shared(self, rows: Iterable[Sequence[Any]]) -> None:
        for reference, others in rows:
            self._hashes[self._root + b":shared"] += (reference, others)

    def take_dropped(self, rows: Iterable[Sequence[Any]]) -> None:
        self._members[self._root + b":dropped"].update([reference for (reference,) in rows])


def dedupe_entry(dedupe_key: bytes, serialize_key: bytes) -> bytes:
    """The name of a dedupe key's entry."""
    return b"d%03d%b%b" % (len(serialize_key), serialize_key, dedupe_key)


def packed_extra(priority: int, more: JobMore) -> bytes | None:
    """EXTRA of a job, with what follows it; None for a job that has nothing extra."""
    stops, progresses = more.cancelled_by is not None, more.progress_at_ms is not None
    if not (
        more.has_keys or more.tags or more.group or more.own_timeout_ms or more.expires_at_ms or stops or progresses
    ):
        return None
    flags = STOPS if stops else 0
    flags |= SHOWS_KEYS if more.shows_keys else 0
    flags |= TAGGED if more.tags else 0
    flags |= GROUPED if more.group else 0
    by = (more.cancelled_by or "").encode()
    record = EXTRA.pack(
        *(more.own_timeout_ms or 0, more.expires_at_ms or 0, more.dedupe_for_ms, more.slot, priority, flags),
        *(len(more.dedupe_key), len(more.serialize_key), len(more.send_id), len(by)),
    )
    names = dedupe_entry(more.dedupe_key, more.serialize_key) + b"i" + more.send_id + by
    if more.group:
        names += bytes([len(more.group)]) + more.group
    if more.progress_at_ms is None:
        return record + names
    fraction = -1.0 if more.fraction is None else more.fraction
    return record + names + PROGRESS.pack(fraction, more.progress_at_ms) + (more.progress or "").encode()
