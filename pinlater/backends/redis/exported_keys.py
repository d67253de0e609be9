"""All that a Redis store holds, read as rows of an export.

Redis shows no moment as a whole: nobody may write meanwhile. Sorted sets are read by rank and hashes by cursor, so the
same store gives the same blocks again.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import Any

from pinlater.backends.extended import SEND_ID_KEPT_MS
from pinlater.backends.packed_trails import TOTAL
from pinlater.backends.redis.key_records import (
    CHAIN_HEAD,
    EXTRA,
    GROUPED,
    KEY_AT,
    KEY_ENTRY,
    PROGRESS,
    TAGGED,
    successor_of,
)
from pinlater.backends.redis.records import (
    CANCELLED,
    CHANGED,
    CLAIM,
    CLEARING_MARK,
    GROUPS_MARK,
    HEAD,
    ID,
    MAX_PRIORITY,
    RESULT,
    TIERED,
)
from pinlater.backends.redis.scripts import RedisStore
from pinlater.backends.requests import StoredState
from pinlater.backends.store_transfer import (
    BYTES_PER_BLOCK,
    NOT_EXPORTED,
    ROWS_PER_BLOCK,
    ChainRow,
    ConfigRow,
    ExportBlock,
    JobMore,
    KeyRow,
    KvRow,
    QuotaRow,
    ResultRow,
    blocks_of_few,
)
from pinlater.errors import StoreRefused

STOPS, SHOWS_KEYS = 1, 2
"""Flags of EXTRA."""

BARRIER = 2
"""What is behind the head of a chain that is no job, but a shard."""

UNDELIVERED_ROW = Struct(">IIQ")
"""How often in a row nobody received a job, its attempts and run_after meanwhile (requeue_undelivered.lua)."""

_PENDING, _IN_PROGRESS, _SUCCEEDED, _FAILED, _WAITING, _IN_LINE = (
    int(state)
    for state in (
        StoredState.PENDING,
        StoredState.IN_PROGRESS,
        StoredState.SUCCEEDED,
        StoredState.FAILED,
        StoredState.WAITING,
        StoredState.IN_LINE,
    )
)
_STATES = tuple(map(int, StoredState))
_HASHES = ("changed", "claims", "extra", "links", "trails", "undelivered", "tagged")


@dataclass(slots=True)
class _Queue:
    name: str
    base: bytes
    has: frozenset[str]
    """Which of _HASHES there are."""


async def exported_blocks(store: RedisStore, now_ms: int) -> AsyncGenerator[ExportBlock, None]:
    """See StoreTransfer.blocks."""
    root = store.root
    created = dict(_pairs((await store.commands([("HGETALL", root + b":queues")]))[0]))
    async for block in _config(store, created):
        yield block
    quotas = sorted(_pairs((await store.commands([("HGETALL", root + b":shares")]))[0]))
    rows = [QuotaRow(name.decode(), *map(int, text.split())) for name, text in quotas if name in created]
    for block in blocks_of_few("quota", rows):
        yield block
    for block in blocks_of_few("kv", await _kv(store, now_ms)):
        yield block
    queues = [await _queue(store, name.decode()) for name in sorted(created)]
    for queue in queues:
        for state in _STATES:
            for priority in await _priorities(store, queue, state):
                async for block in _jobs(store, queue, state, priority):
                    yield block
    async for block in _results(store, created):
        yield block
    for queue in queues:
        async for block in _keys(store, queue):
            yield block
    async for block in _chains(store):
        yield block
    marks = sorted(_pairs((await store.commands([("HGETALL", root + b":fired")]))[0]))
    for block in blocks_of_few("mark", marks):
        yield block
    async for found in _scanned(store, "HSCAN", root + b":shared"):
        yield ExportBlock("shared", [(reference, int(others)) for reference, others in _pairs(found)])
    async for found in _scanned(store, "SSCAN", root + b":dropped"):
        yield ExportBlock("dropped", [(reference,) for reference in found])


def _pairs(flat: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    parts = iter(flat)
    return list(zip(parts, parts, strict=True))


async def _scanned(store: RedisStore, command: str, key: bytes) -> AsyncIterator[list[bytes]]:
    """All fields with their values, or members. StoreRefused where others than there are came."""
    size_of = "SCARD" if command == "SSCAN" else "HLEN"
    per_item = 1 if command == "SSCAN" else 2
    cursor, count = b"0", 0
    expected = (await store.commands([(size_of, key)]))[0]
    while expected:
        cursor, found = (await store.commands([(command, key, cursor, "COUNT", ROWS_PER_BLOCK)]))[0]
        count += len(found) // per_item
        if found:
            yield found
        if cursor == b"0":
            break
    if count != expected:
        raise StoreRefused("the store changed while it was read: stop what works on it, and begin again")


async def _config(store: RedisStore, created: dict[bytes, bytes]) -> AsyncIterator[ExportBlock]:
    start = 0
    while True:
        names = (await store.commands([("ZRANGE", store.root + b":revisions", start, start + ROWS_PER_BLOCK - 1)]))[0]
        if not names:
            return
        entries = (await store.commands([("HMGET", store.root + b":records", *names)]))[0]
        rows = []
        for name, entry in zip(names, entries, strict=True):
            at = 1 + entry[0]
            end = at + 1 + entry[at]
            made = (
                created[name].removesuffix(GROUPS_MARK.encode()).removesuffix(CLEARING_MARK.encode())
                if name in created
                else None
            )
            version, deleted, text = (part.decode() for part in (entry[1:at], entry[at + 1 : end], entry[end:]))
            rows.append(
                ConfigRow(
                    name.decode(),
                    version,
                    deleted,
                    text,
                    None if made is None else int(made),
                )
            )
        yield ExportBlock("config", rows)
        start += ROWS_PER_BLOCK


async def keys_behind(store: RedisStore, beginning: bytes) -> AsyncIterator[list[bytes]]:
    """The keys that begin so; one may come twice."""
    pattern = re.sub(rb"([*?\[\]\\^-])", rb"\\\1", beginning) + b"*"
    cursor: bytes | None = None
    while cursor != b"0":
        cursor, found = (await store.commands([("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", 10_000)]))[0]
        yield found


async def _kv(store: RedisStore, now_ms: int) -> list[KvRow]:
    """Entries of all namespaces; there is no list of these."""
    before = store.root + b":notes:"
    names: set[str] = set()
    async for found in keys_behind(store, before):
        names.update(each.removeprefix(before).decode() for each in found)
    rows = []
    for namespace in sorted(names - NOT_EXPORTED):
        parts = iter(await store.call("kv_list", namespace, now_ms))
        for name, expires, value in zip(parts, parts, parts, strict=True):
            rows.append(KvRow(namespace, name.decode(), value[8:], int(expires)))
    return rows


async def _queue(store: RedisStore, name: str) -> _Queue:
    base = b"%s:q:%s" % (store.root, name.encode())
    there = await store.commands([("EXISTS", b"%s:%s" % (base, each.encode())) for each in _HASHES])
    return _Queue(name, base, frozenset(each for each, is_there in zip(_HASHES, there, strict=True) if is_there))


async def _priorities(store: RedisStore, queue: _Queue, state: int) -> list[int]:
    keys = [b"%s:s:%d:%d" % (queue.base, state, priority) for priority in range(1, MAX_PRIORITY + 1)]
    there = await store.commands([("EXISTS", key) for key in keys])
    return [priority for priority, is_there in enumerate(there, 1) if is_there]


async def _jobs(store: RedisStore, queue: _Queue, state: int, priority: int) -> AsyncIterator[ExportBlock]:
    index, values = b"%s:s:%d:%d" % (queue.base, state, priority), queue.base + b":jobs"
    start = 0
    while True:
        end = start + ROWS_PER_BLOCK - 1
        found = _pairs((await store.commands([("ZRANGE", index, start, end, "WITHSCORES")]))[0])
        if not found:
            return
        start += len(found)
        sizes = await store.commands([("HSTRLEN", values, member) for member, _ in found])
        while found:
            count = _fitting(sizes)
            yield ExportBlock("job", await _described(store, queue, state, priority, found[:count]))
            found, sizes = found[count:], sizes[count:]


def _fitting(sizes: Sequence[int]) -> int:
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > BYTES_PER_BLOCK:
            return count
    return len(sizes)


async def _described(
    store: RedisStore, queue: _Queue, state: int, priority: int, found: Sequence[tuple[bytes, bytes]]
) -> list[tuple[Any, ...]]:
    base, ids = queue.base, [member for member, _ in found]
    names = [name for name in _HASHES if name in queue.has]
    commands: list[tuple[Any, ...]] = [("HMGET", base + b":jobs", *ids)]
    commands += [("HMGET", b"%s:%s" % (base, name.encode()), *ids) for name in names]
    if state == _IN_PROGRESS:
        commands.append(("ZMSCORE", base + b":expiry", *ids))
    elif state in (_SUCCEEDED, _FAILED, CANCELLED, _REPLAYED):
        commands.append(("ZMSCORE", base + (b":ended:2" if state == _SUCCEEDED else b":ended:3"), *ids))
    if state == _FAILED:
        commands.append(("ZMSCORE", base + b":dead", *ids))
    answers = await store.commands(commands)
    values, of = answers[0], dict(zip(names, answers[1:], strict=False))
    times: Any = answers[1 + len(names)] if state not in (_PENDING, _WAITING, _IN_LINE) else repeat(None)
    awaiting: Any = answers[2 + len(names)] if state == _FAILED else repeat(None)
    none = [None] * len(ids)
    columns = [of.get(name, none) for name in _HASHES]
    places = {}
    if state == _WAITING:
        places = await _places(store, queue, priority, ids, columns[2])
        places |= await _successors(store, queue, ids, columns[2])
    rows = []
    for (job_id, score), value, time, awaits, *own in zip(found, values, times, awaiting, *columns, strict=False):
        if value is None:
            raise StoreRefused("the store changed while it was read: stop what works on it, and begin again")
        rows.append(_row(queue.name, state, job_id, int(score), value, time, awaits, own, places))
    return rows


_REPLAYED = int(StoredState.REPLAYED)


async def _places(
    store: RedisStore, queue: _Queue, priority: int, ids: Sequence[bytes], extras: Sequence[bytes | None]
) -> dict[bytes, int]:
    """The places of those that wait; others that stand among them were set aside, since their time is over."""
    chained = [
        (job_id, key) for job_id, extra in zip(ids, extras, strict=True) if extra and (key := _serialize_key(extra))
    ]
    commands = [
        ("ZSCORE", b"%s:chain:%s" % (store.root, key), job_id + bytes([priority]) + queue.name.encode())
        for job_id, key in chained
    ]
    scores = await store.commands(commands)
    return {job_id: int(score) for (job_id, _), score in zip(chained, scores, strict=True) if score is not None}


async def _successors(
    store: RedisStore, queue: _Queue, ids: Sequence[bytes], extras: Sequence[bytes | None]
) -> dict[bytes, int]:
    """Those that wait in no chain, but for the running job of their dedupe key. They have no place."""
    alone = [(job_id, _dedupe_name(extra)) for job_id, extra in zip(ids, extras, strict=True) if extra]
    alone = [(job_id, name) for job_id, name in alone if name.startswith(_IN_NO_CHAIN) and name != _IN_NO_CHAIN]
    entries = await store.commands([("HGET", queue.base + b":keys", name) for _, name in alone])
    return {
        job_id: 0
        for (job_id, _), entry in zip(alone, entries, strict=True)
        if entry and successor_of(entry)[:1] == ID.unpack(job_id)
    }


_IN_NO_CHAIN = b"d000"
"""How the names of dedupe keys without a serialize key begin."""


def _dedupe_name(extra: bytes) -> bytes:
    dedupe_bytes, serialize_bytes = EXTRA.unpack_from(extra)[6:8]
    return extra[EXTRA.size : EXTRA.size + KEY_AT + serialize_bytes + dedupe_bytes]


def _serialize_key(extra: bytes) -> bytes:
    size = EXTRA.unpack_from(extra)[7]
    return extra[EXTRA.size + KEY_AT : EXTRA.size + KEY_AT + size]


def _row(
    queue: str,
    state: int,
    job_id: bytes,
    run_after_ms: int,
    value: bytes,
    time: bytes | None,
    awaits: bytes | None,
    own: Sequence[bytes | None],
    places: dict[bytes, int],
) -> tuple[Any, ...]:
    changed, claim, extra, link, trail, undelivered, tags = own
    created_at_ms, allowed, priority, status_bytes = HEAD.unpack_from(value)
    body_at = HEAD.size + status_bytes
    is_reference = priority >= TIERED
    updated_at_ms, remaining, crashes, status = created_at_ms, allowed, 0, value[HEAD.size : body_at]
    if changed:
        updated_at_ms, remaining, allowed, crashes = CHANGED.unpack_from(changed)
        status = changed[CHANGED.size :]
    claimed_at_ms = timeout_ms = descriptor = expires_at_ms = ended_at_ms = None
    if claim:
        claimed_at_ms, timeout_ms = CLAIM.unpack_from(claim)[:2]
        descriptor = claim[CLAIM.size :].decode()
    if state == _IN_PROGRESS and time is not None:
        expires_at_ms = int(time)
    elif time is not None or awaits is not None:
        ended_at_ms = int(time or awaits or 0)
    more = None
    if extra or link or trail or undelivered or awaits is not None or is_reference:
        more = _more(awaits is not None, is_reference, extra, link, trail, undelivered, tags, places.get(job_id, 0))
        more = None if more == _NO_MORE else more
    if state == _IN_LINE or (state == _WAITING and job_id not in places):
        state = _PENDING
    return (
        *(ID.unpack(job_id)[0], queue, state, priority % TIERED, run_after_ms, allowed, remaining, crashes),
        *(created_at_ms, max(updated_at_ms, claimed_at_ms or 0, ended_at_ms or 0), claimed_at_ms, timeout_ms),
        *(expires_at_ms, ended_at_ms, descriptor, status.decode(), value[body_at:], more),
    )


_NO_MORE = JobMore()


def _more(
    awaits_letter: bool,
    is_reference: bool,
    extra: bytes | None,
    link: bytes | None,
    trail: bytes | None,
    undelivered: bytes | None,
    tags: bytes | None,
    place: int,
) -> JobMore:
    more = JobMore(awaits_letter, is_reference, place=place)
    if link:
        origin, attempts, moved_to = link.decode().split("\n")
        more = more._replace(
            origin=origin or None, origin_attempts=int(attempts) if attempts else None, moved_to=moved_to or None
        )
    if undelivered:
        more = more._replace(undelivered=UNDELIVERED_ROW.unpack(undelivered))
    if trail:
        at = TOTAL.size + TOTAL.unpack_from(trail)[0]
        more = more._replace(attempts=trail[TOTAL.size : at] or None, log=trail[at:] or None)
    return _with_extra(more, extra, tags) if extra else more


def _with_extra(more: JobMore, extra: bytes, tags: bytes | None) -> JobMore:
    timeout_ms, expires_at_ms, dedupe_for_ms, slot, _, flags, *sizes = EXTRA.unpack_from(extra)
    dedupe_bytes, serialize_bytes, send_bytes, by_bytes = sizes
    serialize_at = EXTRA.size + KEY_AT
    dedupe_at = serialize_at + serialize_bytes
    send_at = dedupe_at + dedupe_bytes + 1
    by_at = send_at + send_bytes
    end = by_at + by_bytes
    fraction = progress = progress_at_ms = None
    cancelled_by, group = extra[by_at:end].decode() if flags & STOPS else None, b""
    if flags & GROUPED:
        group_at, end = end + 1, end + 1 + extra[end]
        group = extra[group_at:end]
    if end < len(extra):
        fraction, progress_at_ms = PROGRESS.unpack_from(extra, end)
        fraction = None if fraction < 0 else fraction
        progress = extra[end + PROGRESS.size :].decode()
    return more._replace(
        dedupe_key=extra[dedupe_at : send_at - 1],
        serialize_key=extra[serialize_at:dedupe_at],
        send_id=extra[send_at:by_at],
        slot=slot,
        dedupe_for_ms=dedupe_for_ms,
        shows_keys=bool(flags & SHOWS_KEYS and dedupe_bytes + serialize_bytes + send_bytes),
        own_timeout_ms=timeout_ms or None,
        expires_at_ms=expires_at_ms or None,
        cancelled_by=cancelled_by,
        fraction=fraction,
        progress=progress,
        progress_at_ms=progress_at_ms,
        tags=tags if flags & TAGGED else None,
        group=group,
    )


def _queue_and_id(member: bytes) -> tuple[bytes, bytes]:
    queue, _, job_id = member.partition(b":")
    return queue, job_id


async def _results(store: RedisStore, created: dict[bytes, bytes]) -> AsyncIterator[ExportBlock]:
    start = 0
    while True:
        end = start + ROWS_PER_BLOCK - 1
        answer = (await store.commands([("ZRANGE", store.root + b":results", start, end, "WITHSCORES")]))[0]
        found = [(*_queue_and_id(member), score) for member, score in _pairs(answer)]
        if not found:
            return
        start += len(found)
        found = [each for each in found if each[0] in created]
        keys = [b"%s:q:%s:results" % (store.root, queue) for queue, _, _ in found]
        sizes = await store.commands([("HSTRLEN", key, each[1]) for key, each in zip(keys, found, strict=True)])
        while found:
            count = _fitting(sizes)
            read = [("HGET", key, each[1]) for key, each in zip(keys[:count], found[:count], strict=True)]
            rows = [
                _result(*each, entry)
                for each, entry in zip(found[:count], await store.commands(read), strict=True)
                if entry is not None
            ]
            if rows:
                yield ExportBlock("result", rows)
            found, keys, sizes = found[count:], keys[count:], sizes[count:]


def _result(queue: bytes, job_id: bytes, until: bytes, entry: bytes) -> ResultRow:
    created_at_ms, run_after_ms, ended_at_ms, allowed, remaining, priority = RESULT.unpack_from(entry)
    return ResultRow(
        *(ID.unpack(job_id)[0], queue.decode(), priority % TIERED, created_at_ms, run_after_ms, ended_at_ms),
        *(allowed, remaining, int(until), priority >= TIERED, entry[RESULT.size :]),
    )


async def _keys(store: RedisStore, queue: _Queue) -> AsyncIterator[ExportBlock]:
    async for found in _scanned(store, "HSCAN", queue.base + b":keys"):
        entries = _pairs(found)
        ids = [entry[: ID.size] for _, entry in entries]
        extras, values = await store.commands(
            [("HMGET", queue.base + b":extra", *ids), ("HMGET", queue.base + b":jobs", *ids)]
        )
        yield ExportBlock(
            "key",
            [
                _key(queue.name, name, entry, extra, value is not None)
                for (name, entry), extra, value in zip(entries, extras, values, strict=True)
            ],
        )


def _key(queue: str, name: bytes, entry: bytes, extra: bytes | None, is_kept: bool) -> KeyRow:
    job_id = ID.unpack_from(entry)[0]
    until_ms, slot, priority, outcome = KEY_ENTRY.unpack_from(entry, ID.size)
    dedupe, serialize, send, window_ms = b"", b"", b"", SEND_ID_KEPT_MS
    if name[:1] == b"i":
        send = name[1:]
    else:
        at = KEY_AT + int(name[1:KEY_AT])
        serialize, dedupe = name[KEY_AT:at], name[at:]
        window_ms = EXTRA.unpack_from(extra)[2] if extra else 0
    elsewhere = entry[ID.size + KEY_ENTRY.size :].decode() if job_id == 0 else ""
    return KeyRow(
        *(queue, dedupe, serialize, send, job_id, priority, slot, window_ms, outcome),
        *(until_ms or None, is_kept, elsewhere or None),
        *successor_of(entry),
    )


async def _chains(store: RedisStore) -> AsyncIterator[ExportBlock]:
    root = store.root
    async for found in _scanned(store, "HSCAN", root + b":heads"):
        heads = _pairs(found)
        waiting = await store.commands([("ZCARD", b"%s:chain:%s" % (root, key)) for key, _ in heads])
        rows = []
        first = [
            (b"%s:q:%s:extra" % (root, head[CHAIN_HEAD.size + 9 :]), head[CHAIN_HEAD.size : CHAIN_HEAD.size + 8])
            for _, head in heads
        ]
        extras = await store.commands([("HGET", *each) for each in first])
        for (key, head), count, extra in zip(heads, waiting, extras, strict=True):
            since_ms, behind = CHAIN_HEAD.unpack_from(head)
            member = head[CHAIN_HEAD.size :]
            if behind == BARRIER:
                rows.append(ChainRow(key, since_ms, member.decode(), "", 0, 0, 0, 0, count))
                continue
            slot = EXTRA.unpack_from(extra)[3] if extra else 0
            job = (member[9:].decode(), ID.unpack(member[:8])[0], member[8], 0, slot)
            rows.append(ChainRow(key, since_ms, "", *job, count))
        yield ExportBlock("chain", rows)
