"""Permits of groups in SQL (see permit_store.py).

The permits of a queue are changed under a lock, that of the row without a name among those of its groups. Another row
is there for a group while it has a token bucket that is not full, or shards wait for its permits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.group_store import ENTERED
from pinlater.backends.permit_store import (
    FreedPermits,
    GroupRoom,
    Permit,
    PermitAnswer,
    PermitKey,
    PermitRequest,
    permit_holder,
)
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.group_lines import Turns, first_in_lines, rules_of, wait_again
from pinlater.backends.sql.session import Row, Session
from pinlater.backends.token_bucket import BucketLevel, capacity_of, take
from pinlater.model import MAX_TIME_MS

_FORGOTTEN_AT_ONCE = 500
_LOCK = b""


class _GroupState(NamedTuple):
    """What a group has beside its permits: its bucket, None for a new one, when that is full, the shards that wait, in
    order, and until when all this was of use.
    """

    bucket: BucketLevel | None = None
    full_at_ms: int = 0
    waiting: tuple[str, ...] = ()
    until_ms: int = 0

    def row(self, queue_id: int, group: bytes) -> Row:
        tokens, at_ms = self.bucket or (0.0, 0)
        until_ms = max(self.full_at_ms, self.until_ms) if self.waiting else self.full_at_ms
        return queue_id, group, tokens, at_ms, self.full_at_ms, ",".join(self.waiting).encode(), until_ms


def _locked(session: Session, queue: str) -> int:
    """The id of the queue, whose permits nobody else changes until the commit."""
    queue_id = session.queue_id(queue, "queue_id_for_enqueue")
    if not session.rows("lock_permits", (queue_id, _LOCK)):
        session.put("put_permit_groups", [_GroupState(full_at_ms=MAX_TIME_MS).row(queue_id, _LOCK)])
        session.rows("lock_permits", (queue_id, _LOCK))
    return queue_id


def _states(session: Session, queue_id: int, groups: Collection[bytes]) -> dict[bytes, _GroupState]:
    found = dict.fromkeys(groups, _GroupState())
    for group, tokens, at_ms, full_at_ms, waiting, until_ms in session.rows_in("permit_groups", (queue_id,), groups):
        shards = tuple(bytes(waiting).decode().split(",")) if waiting else ()
        bucket = BucketLevel(tokens, at_ms) if at_ms else None
        found[bytes(group)] = _GroupState(bucket, full_at_ms, shards, until_ms)
    return found


def _counts(session: Session, queue_id: int, groups: Collection[bytes]) -> dict[bytes, int]:
    rows = session.rows_in("permit_counts", (queue_id,), groups)
    return dict.fromkeys(groups, 0) | {bytes(group): count for group, count in rows}


def _holders(keys: Iterable[PermitKey]) -> list[bytes]:
    return [permit_holder(shard_id, job_id).encode() for shard_id, _, job_id, _ in keys]


def take_permits(
    session: Session, queue: str, requests: Sequence[PermitRequest], check_at_ms: int, now_ms: int
) -> list[PermitAnswer]:
    queue_id = _locked(session, queue)
    counted = {each.group.encode() for each in requests if each.concurrency is not None}
    held = _counts(session, queue_id, counted)
    holders = [_holders(each.keys) for each in requests]
    some = [own for each, own in zip(requests, holders, strict=True) if not _fits(each, held)]
    known = {
        bytes(holder): bytes(group)
        for holder, group, *_ in session.rows_in("permits", (queue_id,), [each for own in some for each in own])
    }
    states = _states(session, queue_id, {each.group.encode() for each in requests if each.per_second is not None})
    answers: list[PermitAnswer] = []
    new: list[Row] = []
    replaced: list[bytes] = []
    changed: list[Row] = []
    for request, own in zip(requests, holders, strict=True):
        group, wanted, retry_after_ms = request.group.encode(), len(request.keys), 0
        if request.concurrency is not None:
            of_group = [known.get(holder) == group for holder in own]
            wanted = _first_that_fit(of_group, request.concurrency - held[group])
        granted = wanted
        if request.per_second is not None and wanted:
            state, capacity = states[group], capacity_of(request.per_second)
            level, granted, wait_ms = take(state.bucket, wanted, request.per_second, capacity, now_ms)
            retry_after_ms = max(1, wait_ms) if granted < wanted else 0
            missing_ms = (capacity - level.tokens) * 1000 / request.per_second if request.per_second else 0
            full_at_ms = level.at_ms + round(missing_ms)
            changed.append(state._replace(bucket=level, full_at_ms=full_at_ms).row(queue_id, group))
        if request.concurrency is not None:
            new += [
                (queue_id, holder, group, priority, claim_descriptor, check_at_ms)
                for holder, (_, priority, _, claim_descriptor) in zip(own[:granted], request.keys, strict=False)
            ]
        else:
            replaced += [holder for holder in own[:granted] if holder in known]
        answers.append(PermitAnswer(granted, retry_after_ms))
    session.run_in("remove_permits", (queue_id,), replaced)
    session.put("put_permits", new)
    session.put("put_permit_groups", changed)
    return answers


def _fits(request: PermitRequest, held: Mapping[bytes, int]) -> bool:
    """Whether all claims can have permits, also if none of the jobs has one yet."""
    return request.concurrency is not None and held[request.group.encode()] + len(request.keys) <= request.concurrency


def _first_that_fit(have_permits: Sequence[bool], free: int) -> int:
    """How many of the first jobs can have permits, where so many are free beside those that they have."""
    for place, has_permit in enumerate(have_permits):
        if not has_permit:
            if free <= 0:
                return place
            free -= 1
    return len(have_permits)


def end_permits(session: Session, queue: str, keys: Sequence[PermitKey]) -> dict[str, FreedPermits]:
    queue_id = _locked(session, queue)
    by_holder = dict(zip(_holders(keys), keys, strict=True))
    ended: dict[bytes, list[bytes]] = {}
    for holder, group, claim_descriptor in session.rows_in("claims_of_permits", (queue_id,), by_holder):
        if by_holder[bytes(holder)].claim_descriptor in ("", claim_descriptor):
            ended.setdefault(bytes(group), []).append(bytes(holder))
    session.run_in("remove_permits", (queue_id,), [each for holders in ended.values() for each in holders])
    freed: dict[str, FreedPermits] = {}
    changed: list[Row] = []
    for group, state in sorted(_states(session, queue_id, ended.keys()).items()):
        if state.waiting:
            permits = len(ended[group])
            freed[group.decode()] = FreedPermits(permits, list(state.waiting))
            moved = state._replace(waiting=state.waiting[permits:] + state.waiting[:permits])
            changed.append(moved.row(queue_id, group))
    session.put("put_permit_groups", changed)
    return freed


def await_permits(
    session: Session, queue: str, shard_id: str, groups: Mapping[str, int], until_ms: int
) -> dict[str, int]:
    queue_id = _locked(session, queue)
    names = {group.encode(): most for group, most in groups.items()}
    held = _counts(session, queue_id, [group for group, most in names.items() if most])
    changed: list[Row] = []
    for group, state in sorted(_states(session, queue_id, names.keys()).items()):
        if not names[group]:
            state = state._replace(waiting=tuple(each for each in state.waiting if each != shard_id))
        elif shard_id not in state.waiting:
            state = state._replace(waiting=(*state.waiting, shard_id))
        if names[group]:
            state = state._replace(until_ms=max(until_ms, state.until_ms))
        changed.append(state.row(queue_id, group))
    session.put("put_permit_groups", changed)
    return {group.decode(): max(0, names[group] - count) for group, count in held.items()}


def _permit(row: Row) -> Permit:
    holder, group, priority, claim_descriptor = row
    return Permit(bytes(group).decode(), PermitKey.of_holder(bytes(holder).decode(), priority, claim_descriptor))


def read_permits(session: Session, queue: str, holders: Sequence[str]) -> list[Permit]:
    queue_id = session.queue_id(queue)
    return [_permit(row) for row in session.rows_in("permits", (queue_id,), [each.encode() for each in holders])]


def due_permits(session: Session, queue: str, limit: int, now_ms: int, next_check_ms: int) -> list[Permit]:
    queue_id = _locked(session, queue)
    rows = session.rows("due_permits", (queue_id, now_ms, limit))
    session.run_in("put_permits_off", (next_check_ms, queue_id), [bytes(row[0]) for row in rows])
    past = [bytes(group) for (group,) in session.rows("past_permit_groups", (queue_id, now_ms, _FORGOTTEN_AT_ONCE))]
    session.run_in("remove_permit_groups", (queue_id,), past)
    return [_permit(row) for row in rows]


def count_permits(session: Session, queue: str, groups: Sequence[str]) -> dict[str, int]:
    counts = _counts(session, session.queue_id(queue), [group.encode() for group in groups])
    return {group.decode(): count for group, count in counts.items() if count}


def put_rooms(session: Session, freed: Freed, queue: str, rooms: Mapping[str, GroupRoom], now_ms: int) -> list[str]:
    queue_id, rules_version = session.queue_with_groups(queue)
    if rules_version is None:
        return []
    rules, names = rules_of(session, queue, rules_version), {group.encode(): room for group, room in rooms.items()}
    priorities = [priority for (priority,) in session.rows("times_of_queue", (queue_id,)) if priority]
    times = Turns(session, queue_id, rules).enter_due(priorities, now_ms)
    with_jobs: set[bytes] = set()
    for priority, time in times.items():
        lines = first_in_lines(session, queue_id, priority, dict.fromkeys(names, 1))
        here = {group for group, jobs in lines.items() if jobs}
        with_jobs |= here
        wait_again(session, queue_id, priority, rules, time, [each for each in here if names[each].jobs], now_ms)
    before = {
        bytes(group): jobs
        for group, jobs, until_ms in session.rows_in(
            "rooms", (queue_id,), [each for each in with_jobs if names[each].jobs]
        )
        if until_ms > now_ms
    }
    kept = [
        (queue_id, group, jobs + before.get(group, 0), until_ms)
        for group, (jobs, until_ms) in sorted(names.items())
        if group in with_jobs or not jobs
    ]
    session.put("put_rooms", kept)
    past = [bytes(group) for (group,) in session.rows("past_rooms", (queue_id, now_ms, _FORGOTTEN_AT_ONCE))]
    gone = names.keys() - {group for _, group, *_ in kept}
    session.run_in("remove_rooms", (queue_id,), gone.union(past) - with_jobs)
    jobs = sum(names[group].jobs for group in with_jobs)
    if jobs:
        session.note_freed(queue_id)
        freed[queue] = [now_ms] * min(jobs, ENTERED)
    return sorted(group.decode() for group in with_jobs)


def forget(session: Session, queue_id: int, limit: int) -> bool:
    """Up to `limit` of each of what a deleted queue had of permits and rooms go; whether that were all."""
    is_all = True
    for of_queue, remove in _OF_QUEUE:
        names = [bytes(name) for (name,) in session.rows(of_queue, (queue_id, limit))]
        session.run_in(remove, (queue_id,), names)
        is_all &= len(names) < limit
    return is_all


_OF_QUEUE = (
    ("permits_of_queue", "remove_permits"),
    ("permit_groups_of_queue", "remove_permit_groups"),
    ("rooms_of_queue", "remove_rooms"),
)
