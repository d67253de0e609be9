"""The layout of what a shard keeps in Redis: keys, packed records, and the arguments and answers of scripts.

Every key begins with the root, whose braces are a hash tag. Numbers in records are big-endian.

    ROOT = {PREFIX}               hash    shard, store: the identity
    ROOT:last                     string  the last id given out
    ROOT:queues                   hash    queue -> created_at; exactly the queues that are there (GROUPS_MARK)
    ROOT:records                  hash    configuration entry -> version, deleted version, text (_config.lua)
    ROOT:revisions                zset    entry -> revision: the order in which they came
    ROOT:revision                 string  the last revision given out
    ROOT:marks                    zset    entry that is a tombstone -> the time in its version
    ROOT:claimed                  zset    queue -> lower bound of its earliest claim expiry
    ROOT:ended:2, ROOT:ended:3    zset    queue -> no job in it succeeded (2) or failed (3) before this

    ROOT:trails                   set     queues that have trails of jobs (_trails.lua)
    ROOT:tiered                   set     queues that have references in place of bodies (_references.lua)
    ROOT:shared                   hash    reference -> how many further jobs share it
    ROOT:dropped                  set     references that no job has any more

    ROOT:dead                     zset    queue -> no job in it became dead-letter pending before this
    ROOT:shares                   hash    queue -> quota, version; missing where none was set
    ROOT:buckets                  hash    queue -> tokens, as of when; only of queues with a rate limit
    ROOT:notes:NAMESPACE          hash    key -> version (8 bytes), body
    ROOT:until:NAMESPACE          zset    key -> when the entry expires

    BASE = ROOT:q:QUEUE           in these, an id is its eight bytes, so that the order of bytes is that of age
    BASE:s:STATE:PRIORITY         zset    id -> run_after; every job is in exactly one of these
    BASE:jobs                     hash    id -> what never changes but for a new body (HEAD, first status, body)
    BASE:changed                  hash    id -> what changes (CHANGED, status); missing while all is as enqueued
    BASE:claims                   hash    id -> the claim (CLAIM, descriptor); kept when the job has ended
    BASE:expiry                   zset    id -> when the claim expires; exactly the jobs in progress
    BASE:ended:2, BASE:ended:3    zset    id -> finished_at; what is dead-letter pending is not in there, but in
    BASE:dead                     zset    id -> finished_at
    BASE:news                     channel: what becomes pending in the queue (pubsub.py); nothing is kept
    BASE:undelivered              hash    id -> how often in a row nobody received it (requeue_undelivered.lua)
    BASE:tiered                   string  how many references the jobs and results of the queue have; else missing
    BASE:trails                   hash    id -> bytes of its record of attempts, that (packed_trails.py), its log lines
    BASE:links                    hash    id -> where the job came from and went to (_links.lua); missing for most jobs

What few jobs have (extended.py); none of it is there while no job has it:

    BASE:extra                    hash    id -> EXTRA, keys, who asked it to stop, progress
    BASE:s:4:PRIORITY             zset    id -> run_after of WAITING jobs, and of those whose time is over (_sweep.lua)
    BASE:s:5:PRIORITY             zset    id -> run_after of CANCELLED jobs; they are in BASE:ended:3 too
    BASE:s:6:PRIORITY             zset    the same of REPLAYED jobs
    BASE:keys                     hash    dedupe key or send id -> the job that it names (KEY_ENTRY; _keys.lua)
    BASE:s:8:PRIORITY             zset    id -> run_after of jobs in the lines of their groups (_lines.lua)
    BASE:lines:PRIORITY           zset    the jobs of each line: group, a zero byte, run_after, id; one score
    BASE:turns:PRIORITY           zset    group with jobs in line -> its next turn
    BASE:ahead:PRIORITY           zset    group without -> its next turn, while that is ahead of the virtual time
    BASE:turn                     hash    priority -> the virtual time (CLEARING_MARK -> when it was set)
    BASE:rules                    hash    group -> GROUP_RULE; "" -> the rules of patterns (put_config.lua)
    BASE:held:PRIORITY            zset    group that is held back -> until when its pause lasts, or it has no room
    BASE:rooms                    hash    group -> how many jobs claims may hand out, until when that counts
    BASE:rooms:until              zset    group -> until when its room counts
    BASE:permits                  hash    SHARD:id of a job that has a permit -> PERMIT, group, claim (_permits.lua)
    BASE:permits:checks           zset    the same -> when somebody is to look whether its claim has ended
    BASE:permits:counts           hash    group with permits -> how many
    BASE:permits:groups           hash    group -> level of its token bucket, when that is full, the shards that wait
    BASE:permits:past             zset    the same groups -> when the bucket is full, and no shard need wait
    BASE:tagged                   hash    id -> its tags, a line each
    BASE:tags                     zset    the jobs of each tag: tag, a zero byte, id, a byte of priority; one score
    BASE:until                    zset    id -> expires_at of all PENDING jobs that have one (and of some that were)
    BASE:expired                  zset    the same of those that were set aside
    BASE:results                  hash    id -> RESULT, result
    BASE:watched                  zset    id -> until when somebody waits for its end; it goes away by itself

    ROOT:heads                    hash    serialize key -> CHAIN_HEAD, the first of its jobs (_chain.lua) or a shard id
    ROOT:chain:KEY                zset    the jobs behind it -> place; only of keys where some wait
    ROOT:waiting, ROOT:since      zset    serialize key -> how many wait; since when its first job is the first
    ROOT:barriers                 hash    serialize key -> the shard where its jobs end first
    ROOT:slots                    hash    slot -> how many entries of BASE:keys and live jobs in chains it has
    ROOT:windows                  zset    QUEUE:name in BASE:keys -> when it ends to count
    ROOT:results                  zset    QUEUE:id -> until when the result is kept
    ROOT:until                    zset    queue -> lower bound of its earliest expires_at
    ROOT:fired                    hash    config entry of a schedule -> its highest mark
    ROOT:orphan:QUEUE:KIND:N      hash    BASE:extra or BASE:keys of a deleted queue, which `prune` undoes; with
                                          references BASE:jobs and BASE:results too
    ROOT:orphans:KIND             set     what stands behind ROOT:orphan: in the names of these
    ROOT:ends                     channel: the ends that somebody waits for

Stored names are older than some words of the code: `shares` are quotas, `notes` key-value entries, `marks` tombstones,
and `news` notifications.

A pending job that nobody claimed yet has one entry in `jobs` and one in its state's zset, and nothing else. Scripts get
ROOT and, where they work on one queue, BASE as KEYS, and derive the rest: all in one slot of a Redis Cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Any

from pinlater.backends.acks import AckKind, Acks
from pinlater.backends.aged_levels import Level, split_levels
from pinlater.backends.base import (
    SLICE_BYTES,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ExpiryRequest,
    JobKey,
    SilentClaim,
    UnrenewedClaim,
    highest_limit,
)
from pinlater.backends.group_rules import GROUP_RULES_PREFIX, read_group_rules
from pinlater.backends.group_store import ENTERED, HELD_AT_ONCE, WEIGHED
from pinlater.backends.redis.key_records import CHAIN_HEAD, lua_format, show_extra
from pinlater.backends.redis.store_version import GROUPS_VERSION, REFERENCES_VERSION
from pinlater.backends.requests import MOST_OVERTAKEN_MS, STORED_STATES
from pinlater.model import MAX_STATUS_CHARS, MAX_TIME_MS, DequeuedJob, Job, JobInfo, JobState, descriptor_prefix
from pinlater.model.body_reference import BodyReference
from pinlater.model.jobs import GroupedJob, give_groups
from pinlater.model.status_text import CUT_MARK, MAX_WITH_MARK

MAX_PRIORITY = 127
"""A byte on the wire; deleting a queue frees the keys of so many priorities."""


def root_key(prefix: str) -> bytes:
    return b"{%s}" % prefix.encode()


def base_key(root: bytes, queue: str) -> bytes:
    return b"%s:q:%s" % (root, queue.encode())


TIERED = 128
"""Is added to the priority of a HEAD or a RESULT: a reference stands in place of the body (_references.lua)."""

HEAD = Struct(">QIBH")
"""created_at, attempts_allowed, priority, bytes of the first status; the first status and the body follow."""

CHANGED = Struct(">QIII")
"""updated_at, attempts_remaining, attempts_allowed, crashes; the status follows."""

CLAIM = Struct(">QQIB")
"""claimed_at, time-out, attempts_allowed when enqueued, priority; the descriptor follows."""

ID = Struct(">Q")
"""An id as Redis holds it: shorter than its 16 digits by half, and sorted by age just so."""


@lru_cache(maxsize=1024)
def _ids(count: int) -> Struct:
    """So many ids in a row; to make a Struct takes longer than to pack with it."""
    return Struct(f">{count}Q")


_prefix = lru_cache(maxsize=1024)(descriptor_prefix)
"""What stands before the id in the descriptors of a queue and priority."""

LAST_DIGITS = [f"{number:03}" for number in range(1000)]
"""The last digits of ids as text. Looking them up costs a third of formatting them."""

_CLAIM_START, _CLAIM_END = Struct(">QQ"), Struct(">IB")
"""A claim in two parts: what its request says, and what the script adds of the job."""

_REQUEST = Struct(">qIqQQBB")
"""What a script is told of a claim: limit, prefetch, max_bytes, the start of the claim, its time-out, whether a job's
own one counts before that, number of bytes of the levels; behind it the levels, and the descriptor.
"""

_AGED_LEVELS = Struct(">BQ")
"""What stands before the priorities of aged levels: the number of the last level, with AGED added, and the aging."""

_AGED = 128
"""Above all priorities."""

_ACK_KIND = Struct(">BBqI")
"""What a script is told of acks of one kind: 1 succeeded or 0 failed or 2 failed for good or 3 succeeded with a result
(4: that is a reference), priority, retry delay, bytes of the claim descriptor; that and the status to append follow.
With a result _ACK_RESULT stands before the status, and the result behind it.
"""

_ACK_RESULT = Struct(">QI")
"""How long the result is kept, bytes of the status."""

_CREATED = Struct(">Q")
"""What HEAD begins with; behind it stands what jobs of one kind have in common."""

GROUPS_MARK, CLEARING_MARK = "g", "c"
"""Behind the time of a queue in ROOT:queues: a job of it had a group; before that mark, groups are taken off now."""

RESULT = Struct(">QQQIIB")
"""created_at, run_after, finished_at, attempts_allowed, attempts_remaining, priority; the result follows."""

_GROUP_RULE = Struct(">IQ")
"""The weight of a group, and until when it is paused."""


def group_rule_fields(text: str) -> list[bytes]:
    """What BASE:rules has of the text of an entry, names and values in turn, as put_config.lua makes it."""
    rules = read_group_rules(text)
    fields = [part for name, rule in rules.names.items() for part in (name, _GROUP_RULE.pack(*rule))]
    patterns = [[[part.decode() for part in parts], rule.weight] for parts, rule in rules.patterns]
    return [*fields, b"", json.dumps(patterns).encode()] if patterns else fields


LUA_LAYOUT = {
    "HEAD": lua_format(HEAD),
    "CHANGED": lua_format(CHANGED),
    "CLAIM": lua_format(CLAIM),
    "CLAIM_START": lua_format(_CLAIM_START),
    "CLAIM_END": lua_format(_CLAIM_END),
    "REQUEST": lua_format(_REQUEST),
    "ACK_KIND": lua_format(_ACK_KIND),
    "ID": lua_format(ID),
    "HEAD_BYTES": str(HEAD.size),
    "CHANGED_BYTES": str(CHANGED.size),
    "CLAIM_BYTES": str(CLAIM.size),
    "CREATED_BYTES": str(_CREATED.size),
    "REQUEST_BYTES": str(_REQUEST.size),
    "AGED_LEVELS": lua_format(_AGED_LEVELS),
    "AGED_LEVELS_BYTES": str(_AGED_LEVELS.size),
    "AGED": str(_AGED),
    "ACK_KIND_BYTES": str(_ACK_KIND.size),
    "MOST_OVERTAKEN_MS": str(MOST_OVERTAKEN_MS),
    "MAX_STATUS_CHARS": str(MAX_STATUS_CHARS),
    "MAX_WITH_MARK": str(MAX_WITH_MARK),
    "CUT_MARK": CUT_MARK.replace("\n", "\\n"),
    "SLICE_BYTES": str(SLICE_BYTES),
    "ACK_RESULT": lua_format(_ACK_RESULT),
    "GROUPS_MARK": GROUPS_MARK,
    "CLEARING_MARK": CLEARING_MARK,
    "ENTERED": str(ENTERED),
    "HELD_AT_ONCE": str(HELD_AT_ONCE),
    "WEIGHED": str(WEIGHED),
    "GROUP_RULE": lua_format(_GROUP_RULE),
    "GROUP_RULES_PREFIX": GROUP_RULES_PREFIX,
    "MAX_TIME_MS": str(MAX_TIME_MS),
    "RESULT": lua_format(RESULT),
    "RESULT_BYTES": str(RESULT.size),
    "REFERENCES_VERSION": str(REFERENCES_VERSION),
    "GROUPS_VERSION": str(GROUPS_VERSION),
    "TIERED": str(TIERED),
    "PRIORITY_AT": str(Struct(">QI").size + 1),
    "LENGTH": lua_format(Struct(">I")),
}
"""What scripts have in place of `$NAME`, so that the layout is written once."""

_BODY, _ATTEMPTS, _MOVE, _REFERENCE = 1, 2, 4, 8

Arg = str | bytes | int
Args = list[Arg]


def enqueue_args(jobs: Sequence[Job], now_ms: int) -> tuple[Args, list[int]]:
    """The arguments per job, and the priorities in the order in which they come (see enqueue.lua)."""
    priority = jobs[0].priority
    if len(jobs) > 1:
        priorities = [job.priority for job in jobs]
        if priorities.count(priority) != len(jobs):
            return _args_of_priorities(jobs, priorities, now_ms)
    about, lists = listed_values(jobs, priority, now_ms)
    return [1, *about, *lists, *_references(jobs)], [priority]


def _references(jobs: Sequence[Job]) -> list[int]:
    """How many there are, where there are any."""
    count = [type(job.body) for job in jobs].count(BodyReference)
    return [count] if count else []


def _args_of_priorities(jobs: Sequence[Job], priorities: list[int], now_ms: int) -> tuple[Args, list[int]]:
    places: dict[int, list[int]] = {}
    for place, priority in enumerate(priorities):
        places.setdefault(priority, []).append(place)
    heads: Args = [len(places)]
    tails: Args = []
    for priority, own in places.items():
        about, lists = listed_values([jobs[place] for place in own], priority, now_ms)
        heads += about
        tails += lists
        tails += own
    return heads + tails + _references(jobs), priorities


def listed_values(jobs: Sequence[Job], priority: int, now_ms: int) -> tuple[Args, Args]:
    """What is said of all jobs of a priority; what BASE:jobs gets of each, and their run_afters where they differ."""
    heads: dict[int, bytes] = {}
    lists: Args = []
    first_ms, are_alike = jobs[0].run_after_ms, True
    for job in jobs:
        if job.run_after_ms != first_ms:
            are_alike = False
        attempts = job.attempts_allowed
        if job.custom_status or type(job.body) is BodyReference:
            status = job.custom_status[:MAX_STATUS_CHARS].encode()
            level = priority + TIERED if type(job.body) is BodyReference else priority
            lists.append(HEAD.pack(now_ms, attempts, level, len(status)) + status + job.body)
            continue
        head = heads.get(attempts)
        if head is None:
            head = heads[attempts] = HEAD.pack(now_ms, attempts, priority, 0)
        lists.append(head + job.body)
    if are_alike:
        return [priority, len(jobs), now_ms if first_ms is None else first_ms], lists
    lists += [now_ms if job.run_after_ms is None else job.run_after_ms for job in jobs]
    return [priority, len(jobs), b""], lists


def descriptors(queue: str, shard: str, priorities: list[int], first: int, count: int) -> list[str]:
    """A descriptor per id from `first` on; one priority stands for all."""
    end = first + count
    if len(priorities) == 1:
        prefix = _prefix(queue, shard, priorities[0])
        if count == 1:
            return [f"{prefix}{first}"]
        texts: list[str] = []
        for thousand in range(first - first % 1000, end, 1000):
            before = f"{prefix}{thousand // 1000}"
            texts += [before + digits for digits in LAST_DIGITS[max(first - thousand, 0) : end - thousand]]
        return texts
    prefixes = {priority: _prefix(queue, shard, priority) for priority in set(priorities)}
    return [prefixes[priority] + str(each) for priority, each in zip(priorities, range(first, end), strict=True)]


def claim_args(requests: Sequence[ClaimRequest], now_ms: int, enforce_quota: bool) -> Args:
    """Its bounds, and then one per request (see _claim.lua): each argument costs the driver some 1,500 instructions."""
    args: Args = [int(enforce_quota)]
    for request in requests:
        if request.most_of_group or request.spread:
            args[0] = bounds_of(requests, enforce_quota)
        try:
            levels = bytes(request.priorities)  # type: ignore[arg-type]  # as nearly always: a call less for each claim
        except TypeError:
            levels = level_bytes(request.priorities)
        from_ms = now_ms + request.spare_ms
        times = (from_ms, request.claim_timeout_ms, request.is_default_timeout)
        about = _REQUEST.pack(request.limit, request.prefetch, request.max_bytes, *times, len(levels))
        args.append(about + levels + request.claim_descriptor.encode())
    return args


def bounds_of(requests: Sequence[ClaimRequest], enforce_quota: bool) -> Arg:
    """Whether a claim goes by the queue's quota; `most_of_group` and `spread` (see _claim.lua)."""
    most, spread = highest_limit(requests) or "", requests[0].spread
    return f"{enforce_quota:d}:{most}:{json.dumps(spread, ensure_ascii=False) if spread else ''}"


def level_args(levels: Sequence[Level]) -> Args:
    """For a script that is told of each priority apart; aged levels are one argument."""
    priorities, last = split_levels(levels)
    return [*priorities] if last is None else [level_bytes(levels)]


def level_bytes(levels: Sequence[Level]) -> bytes:
    """The priorities that are tried, a byte each; aged levels as _aging.lua reads them."""
    try:
        return bytes(levels)  # type: ignore[arg-type]  # priorities, as nearly always: to ask first costs each claim
    except TypeError:
        priorities, last = split_levels(levels)
    assert last is not None
    return _AGED_LEVELS.pack(_AGED + last.number, last.aging_ms) + bytes(priorities)


def dequeued(
    answer: Sequence[Any], queue: str, shard: str, claim_descriptor: str, expires_at_ms: int
) -> list[DequeuedJob]:
    """Jobs from ids, run_afters, values, what has changed, their own expiries and, if any, groups (see claim.lua)."""
    if not answer:
        return []
    packed_ids, scores, values, changes, own_expiries, *groups = answer
    ids: Iterable[int] = _ids(len(values)).unpack(packed_ids)
    new: type[DequeuedJob] = GroupedJob if groups else DequeuedJob
    jobs: list[DequeuedJob] = []
    append, head_bytes = jobs.append, HEAD.size
    head = score = None
    is_reference = False
    run_after_ms = created_at_ms = attempts = priority = body_at = thousand = 0
    before = ""
    for job_id, own_score, value, changed in zip(ids, scores.split(b","), values, changes or repeat(b""), strict=False):
        if own_score != score:
            score, run_after_ms = own_score, int(own_score)
        own_head = value[:head_bytes]
        if own_head != head:
            head = own_head
            created_at_ms, attempts, priority, status_bytes = HEAD.unpack(head)
            body_at, thousand = head_bytes + status_bytes, 0
            is_reference = priority >= TIERED
            if is_reference:
                priority -= TIERED
        last_digits = job_id - thousand
        if not 0 <= last_digits < 1000:
            last_digits = job_id % 1000
            thousand = job_id - last_digits
            before = f"{_prefix(queue, shard, priority)}{job_id // 1000}"
        allowed = remaining = attempts
        if changed:
            _, remaining, allowed, _ = CHANGED.unpack_from(changed)
        append(
            new(
                before + LAST_DIGITS[last_digits],
                value[body_at:],
                priority,
                allowed,
                remaining,
                run_after_ms,
                created_at_ms,
                claim_descriptor,
                expires_at_ms,
            )
        )
        if is_reference:
            jobs[-1].body = BodyReference(jobs[-1].body)
    if own_expiries:
        own = iter(own_expiries)
        for place, own_expires_at_ms in zip(own, own, strict=True):
            jobs[place].claim_expires_at_ms = int(own_expires_at_ms)
    if groups:
        give_groups(jobs, map(bytes.decode, groups[0]))
    return jobs


def ack_args(acks: Acks, result_ttl_ms: int) -> Args:
    """Number of kinds, the kinds, which ack is of which kind, the ids (see _ack.lua)."""
    kinds: dict[AckKind, int] = {}
    which: list[int] = []
    for kind, ids in acks.runs:
        which += [kinds.setdefault(kind, len(kinds))] * len(ids)
    args: Args = [len(kinds)]
    for priority, succeeded, status, delay_ms, claim, permanent, result in kinds:
        holder, text = claim.encode(), status.encode()
        ending = 1 if succeeded else 2 if permanent else 0
        if succeeded and result is not None:
            ending = 4 if type(result) is BodyReference else 3
            text = _ACK_RESULT.pack(result_ttl_ms, len(text)) + text + result
        args.append(_ACK_KIND.pack(ending, priority, delay_ms, len(holder)) + holder + text)
    args.append(b"" if len(kinds) == 1 else Struct(f">{len(which)}H").pack(*which))
    args.append(_ids(len(which)).pack(*acks.ids))
    return args


def key_args(
    keys: Sequence[JobKey]
    | Sequence[ClaimKey]
    | Sequence[SilentClaim]
    | Sequence[UnrenewedClaim]
    | Sequence[ExpiryRequest],
) -> Args:
    """Priority, id, and what else there is: the claim, when it was last seen or expires, a delay."""
    args: Args = []
    for priority, job_id, *claim in keys:
        args += (priority, ID.pack(job_id), *claim)
    return args


def checkpoint_args(queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int) -> Args:
    args: Args = [queue, now_ms]
    for each in checkpoints:
        flags = _MOVE if each.move_to_pending else 0
        flags += _BODY if each.new_body is not None else 0
        flags += _REFERENCE if type(each.new_body) is BodyReference else 0
        flags += _ATTEMPTS if each.attempts_allowed is not None else 0
        args += (each.priority, ID.pack(each.id), each.source, each.claim_descriptor, flags)
        args += (now_ms if each.run_after_ms is None else each.run_after_ms, each.attempts_allowed or 0)
        args += (each.prepend_status, each.new_body or b"", each.latest_expiry_ms)
    return args


_HAS_BODY, _LACKS_RESULT = 1, 2


def described(flat: Sequence[Any], queue: str, shard: str, *, with_body: bool = False) -> list[tuple[int, JobInfo]]:
    """Places and jobs from fourteen values per job (see lookup.lua). `with_body`: bodies that are not there say so."""
    parts = iter(flat)
    return [
        (place, _described(queue, shard, state, job_id, score, rest, with_body))
        for place, state, job_id, score, *rest in zip(*[parts] * 14, strict=True)
    ]


_GONE = 7
STATES = {int(stored): state for state, some in STORED_STATES.items() for stored in some}


def _described(
    queue: str, shard: str, state: int, job_id: bytes, score: bytes, rest: list[Any], with_body: bool
) -> JobInfo:
    has, *common, extra, head, result = rest
    lacks_result = has & _LACKS_RESULT > 0
    if state == _GONE:
        info = _gone(queue, shard, job_id, result)
        if lacks_result:
            info.result, info.result_left_out = None, True
        return info
    info = _info(queue, shard, STATES[state], job_id, int(score), has & _HAS_BODY, *common)
    if with_body and info.body is None:
        info.body_left_out = True
    if extra:
        show_extra(info, extra)
        info.cancelled = True if state == CANCELLED else None
    if state == _REPLAYED:
        info.moved_to, info.replayed_to = None, info.moved_to
    if head and info.state is JobState.IN_PROGRESS:
        info.successor = first_of_chain(head, shard)
    elif head:
        info.waits_for = first_of_chain(head, shard)
    if lacks_result:
        info.result_left_out = True
    else:
        info.result = _result(result) if result else None
    return info


CANCELLED, _REPLAYED = 5, 6


def _gone(queue: str, shard: str, job_id: bytes, result: bytes) -> JobInfo:
    """What the result tells of a job that is not kept."""
    created_at_ms, run_after_ms, finished_at_ms, allowed, remaining, priority = RESULT.unpack_from(result)
    priority %= TIERED
    return JobInfo(
        named(queue, shard, priority, job_id),
        JobState.SUCCEEDED,
        priority,
        allowed,
        remaining,
        "",
        created_at_ms,
        run_after_ms,
        finished_at_ms,
        finished_at_ms=finished_at_ms,
        result=_result(result),
    )


def _result(entry: bytes) -> bytes:
    result = entry[RESULT.size :]
    return BodyReference(result) if entry[RESULT.size - 1] >= TIERED else result


def named(queue: str, shard: str, priority: int, job_id: bytes) -> str:
    """The descriptor of a job."""
    return f"{_prefix(queue, shard, priority)}{ID.unpack(job_id)[0]}"


def first_of_chain(head: bytes, shard: str) -> str | None:
    """The descriptor of the job that is the head of a chain; None for a barrier, or where there is none."""
    if not head or CHAIN_HEAD.unpack_from(head)[1] == _BARRIER:
        return None
    member = head[CHAIN_HEAD.size :]
    return named(member[ID.size + 1 :].decode(), shard, member[ID.size], member[: ID.size])


_BARRIER = 2


def _info(
    queue: str,
    shard: str,
    state: JobState,
    job_id: bytes,
    run_after_ms: int,
    full: int,
    value: bytes,
    changed: bytes,
    claim: bytes,
    expiry: bytes,
    finished: bytes,
    link: bytes,
) -> JobInfo:
    created_at_ms, allowed, priority, status_bytes = HEAD.unpack_from(value)
    body_at = HEAD.size + status_bytes
    reference = BodyReference(value[body_at:]) if priority >= TIERED else None
    priority %= TIERED
    updated_at_ms, remaining, crashes, status = created_at_ms, allowed, 0, value[HEAD.size : body_at]
    if changed:
        updated_at_ms, remaining, allowed, crashes = CHANGED.unpack_from(changed)
        status = changed[CHANGED.size :]
    info = JobInfo(
        named(queue, shard, priority, job_id),
        state,
        priority,
        allowed,
        remaining,
        status.decode(),
        created_at_ms,
        run_after_ms,
        updated_at_ms,
        crashes=crashes,
        body=(reference or value[body_at:]) if full else None,
        body_stored_at=None if reference is None else reference.described,
    )
    if claim:
        info.claimed_at_ms = CLAIM.unpack_from(claim)[0]
        info.claim_descriptor = claim[CLAIM.size :].decode()
    info.claim_expires_at_ms = int(expiry) if expiry else None
    info.finished_at_ms = int(finished) if finished else None
    if link:
        origin, _, moved_to = link.decode().split("\n")
        info.origin, info.moved_to = origin or None, moved_to or None
    info.date_last_change()
    return info
