"""What a shard holds, as its operations tell it; and what becomes of it when life goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pinlater.backends.base import (
    AckRequest,
    ClaimRequest,
    JobKey,
    ScanPosition,
    ScanRequest,
    Shard,
    StoredState,
)
from pinlater.model import KeyRef, parse_descriptor
from tests.transfers.population import KEEP, LETTERS, NAMES, QUEUES, RULES, SCHEDULE, WITH_GROUPS, key_of

PRIORITIES = (1, 3, 10)
PAGE = 500
NO_BOUND = 2**53 - 1


async def holdings(shard: Shard, now_ms: int) -> dict[str, Any]:
    """All that can be asked of a shard, in a form that can be compared."""
    found: dict[str, Any] = {}
    entries = (await shard.list_config(0, 100_000)).entries
    found["config"] = [tuple(each) for each in entries]
    for namespace in ("audit", "alarm", "odd-[1]", "import"):
        listed = await shard.kv_list(namespace, now_ms)
        found[f"kv {namespace}"] = {name: (each.body, each.expires_at_ms) for name, each in listed.items()}
    for queue in QUEUES:
        found[f"quota {queue}"] = tuple(await shard.set_quota(queue, 0, 0, now_ms))
        found[f"stats {queue}"] = await _stats(shard, queue, now_ms)
        jobs = await _jobs(shard, queue, now_ms)
        found[f"jobs {queue}"] = jobs
        found[f"order {queue}"] = [
            (each.descriptor, bytes(each.body), type(each.body).__name__)
            for each in await shard.peek(queue, PRIORITIES, 100_000, NO_BOUND, now_ms)
        ]
        if queue == WITH_GROUPS:
            found[f"order {queue}"].sort()
        refs = [KeyRef(name, "") for name in (*NAMES, "moved", "followed")]
        refs += [KeyRef(dedupe, serialize) for dedupe in (*NAMES[:9], "moved") for serialize in (*NAMES[:9], "s")]
        refs.append(KeyRef("followed", "followed"))
        refs += [KeyRef("", name) for name in NAMES]
        found[f"keys {queue}"] = await shard.find_keys(queue, refs)
        keys = [_key(each) for each in jobs]
        found[f"trails {queue}"] = await shard.read_trails(queue, keys)
        found[f"taken {queue}"] = await shard.taken_keys(queue, keys)
    found["chains"] = sorted(map(repr, await shard.blocked_chains(1_000, now_ms)))
    found["live"] = await shard.has_chains(NAMES)
    found["marks"] = await shard.last_firings([SCHEDULE, "none"])
    found["slots"] = sorted(set(await shard.key_slots()))
    found["barriers"] = sorted(await shard.list_barriers(1_000))
    found["windows"] = await _windows(shard, now_ms)
    found["references"] = await _references(shard)
    found["dropped"] = sorted(await shard.dropped_references(10_000))
    return found


def _key(descriptor: str) -> JobKey:
    ref = parse_descriptor(descriptor)
    assert ref is not None
    return JobKey(ref.priority, ref.id)


async def _stats(shard: Shard, queue: str, now_ms: int) -> dict[int, Any]:
    """Whether a job whose time is over counts as ready depends on the store, so those that are not ended are one."""
    totals: dict[int, list[int]] = {}
    after = None
    while True:
        page = await shard.stats(queue, PRIORITIES, now_ms, after, 100_000)
        for priority, level in page.levels.items():
            row = totals.setdefault(priority, [0] * 6)
            counts = (level.ready + level.scheduled + level.waiting, level.in_progress, level.succeeded, level.failed)
            for at, count in enumerate((*counts, level.cancelled, level.replayed)):
                row[at] += count
        after = page.after
        if after is None:
            return {priority: tuple(row) for priority, row in totals.items() if any(row)}


async def _jobs(shard: Shard, queue: str, now_ms: int) -> dict[str, Any]:
    """By descriptor; what is waited for is told by the chains."""
    found: dict[str, Any] = {}
    for state in StoredState:
        for future in (False, True):
            after = None
            while True:
                request = ScanRequest((state,), PRIORITIES, future, PAGE, after)
                page = await shard.scan(queue, request, now_ms)
                if not page:
                    break
                keys = [_key(each.descriptor) for each in page]
                infos = await shard.lookup(queue, keys, with_body=True, max_bytes=NO_BOUND, with_result=True)
                for info in infos:
                    assert info is not None
                    found[info.descriptor] = asdict(info) | {
                        "body_kind": type(info.body).__name__,
                        "result_kind": type(info.result).__name__,
                    }
                last = page[-1]
                after = ScanPosition(last.run_after_ms, _key(last.descriptor).id)
    return dict(sorted(found.items()))


async def _windows(shard: Shard, now_ms: int) -> list[Any]:
    found, after = [], ""
    while page := await shard.list_windows(500, after, now_ms):
        found += [(each.slot, each.until_ms, each.text) for each in page]
        after = page[-1].name
    return sorted(found)


async def _references(shard: Shard) -> list[bytes]:
    found: set[bytes] = set()
    after = ""
    while True:
        page = await shard.list_references(after, 100)
        found.update(page.references)
        after = page.continuation
        if not after:
            return sorted(found)


async def live_on(shard: Shard, now_ms: int) -> dict[str, Any]:
    """What happens when servers go on with the shard: who gets which job, and how all of it ends.

    In which order jobs become dead letters is the store's own, so these are told without their ids.
    """
    told: dict[str, Any] = {}
    for step in range(8):
        now_ms += 1_000 if step < 6 else 10**7
        for queue in QUEUES:
            claim = ClaimRequest(f"on:10.0.0.1:w{step}:1:s", 60, PRIORITIES, 1_500, NO_BOUND, is_default_timeout=True)
            (jobs,) = await shard.claim(queue, [claim], now_ms)
            is_letters = queue == "mail_dead"
            told[f"{step} {queue}"] = [
                ("" if is_letters else each.descriptor, bytes(each.body), each.attempts_remaining) for each in jobs
            ]
            if is_letters:
                told[f"{step} {queue}"].sort()
            acks = [
                AckRequest(*key_of(each), is_letters or at % 3 != 0, "x", claim_descriptor=each.claim_descriptor)
                for at, each in enumerate(jobs)
                if is_letters or at % 5
            ]
            told[f"{step} acks {queue}"] = await shard.ack(queue, acks, now_ms, RULES.get(queue))
        told[f"{step} expired claims"] = dict(await shard.expire_claims(100_000, now_ms, RULES))
        told[f"{step} expired jobs"] = dict(await shard.expire_jobs(100_000, now_ms, RULES))
        told[f"{step} letters"] = dict(await shard.dead_letter(100_000, now_ms, LETTERS))
        told[f"{step} pruned"] = dict(await shard.prune(100_000, now_ms, KEEP))
        if step == 3:
            await shard.lift_barriers(await shard.list_barriers(1_000), now_ms)
        told[f"{step} slots"] = sorted(set(await shard.key_slots()))
        told[f"{step} stats"] = {queue: await _stats(shard, queue, now_ms) for queue in QUEUES}
    return told


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Where two holdings differ, short enough to be read."""
    return {name: _first(one.get(name), other.get(name)) for name in one | other if one.get(name) != other.get(name)}


def _first(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one | other:
            if one.get(name) != other.get(name):
                return name, _first(one.get(name), other.get(name))
    if isinstance(one, Sequence) and isinstance(other, Sequence) and not isinstance(one, str | bytes):
        pairs = zip(one, other, strict=False)
        return len(one), len(other), next(((a, b) for a, b in pairs if a != b), None)
    return one, other
