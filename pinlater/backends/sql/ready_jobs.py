"""Jobs on their way to workers: enqueue, count ready ones, claim, peek, requeue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pinlater.backends.aged_levels import Level, split_levels
from pinlater.backends.base import (
    SLICE_BYTES,
    UNDELIVERED_IN_A_ROW,
    AckOutcome,
    AckRequest,
    ClaimKey,
    ClaimRequest,
    EndRules,
    JobKey,
    UnrenewedClaim,
    highest_limit,
)
from pinlater.backends.group_rules import GroupRules
from pinlater.backends.group_store import ReadyCounts
from pinlater.backends.sql import aged_jobs
from pinlater.backends.sql.attempts import EXTENDED as FLAGS
from pinlater.backends.sql.attempts import (
    ID,
    PRIORITY,
    REMAINING,
    RUN_AFTER,
    ack,
    claims_fresh,
    claims_standing,
    to_pending,
)
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.coordination import room_for_claims
from pinlater.backends.sql.extensions import extensions
from pinlater.backends.sql.group_lines import Turns, give_turns_back, leave, rules_of, sums_of_weights
from pinlater.backends.sql.held_references import hold
from pinlater.backends.sql.records import (
    CANDIDATE,
    EXPIRES,
    IN_LINE,
    OWN_TIMEOUT,
    SHOWN,
    STATES_OF,
    TIERED,
    WAITING,
    Descriptors,
    bodies,
    dequeued_jobs,
    how_many_fit,
    new_extended_job,
    new_jobs,
)
from pinlater.backends.sql.session import Row, Session
from pinlater.errors import QueueNotFound
from pinlater.model import ClaimAnswer, ClaimOutcome, DequeuedJob, Job, JobState
from pinlater.model.body_reference import BodyReference
from pinlater.model.jobs import GroupedJob, give_groups

SMALLEST_ID = 10**15
"""Ids are 16 digits wide, so that their text order is their age."""


def first_new_id(session: Session, count: int, now_ms: int) -> int:
    """The first of `count` ids that follow each other."""
    return session.allocate_ids(count, least_id(now_ms))


def least_id(now_ms: int) -> int:
    """No new id is under it."""
    return max(now_ms * 1000, SMALLEST_ID)


def enqueue(session: Session, queue: str, jobs: Sequence[Job], now_ms: int) -> list[str]:
    """The queue is locked against deletion first, so that no job comes in behind the last look at its leftovers."""
    has_references = BodyReference in [type(job.body) for job in jobs]
    first_id = None if has_references else session.store_at_once(queue, jobs, least_id(now_ms), now_ms)
    if first_id is None:
        queue_id = session.queue_id(queue, "queue_id_for_enqueue")
        if not jobs:
            return []
        first_id = first_new_id(session, len(jobs), now_ms)
        if has_references:
            _insert_with_references(session, jobs, queue_id, first_id, now_ms)
        else:
            session.insert_jobs(new_jobs(jobs, queue_id, first_id, now_ms))
    descriptors = Descriptors(queue, session.shard_id)
    return [f"{descriptors[job.priority]}{job_id}" for job_id, job in enumerate(jobs, first_id)]


def _insert_with_references(session: Session, jobs: Sequence[Job], queue_id: int, first_id: int, now_ms: int) -> None:
    rows, held = [], {}
    for job_id, job in enumerate(jobs, first_id):
        is_reference = type(job.body) is BodyReference
        rows.append(new_extended_job(job, None, TIERED if is_reference else 0, 0, queue_id, job_id, now_ms))
        if is_reference:
            held[job_id] = job.body
    session.insert_jobs(rows, "insert_extended_jobs")
    hold(session, held)


BODY = len(CANDIDATE) - 1
BODY_BYTES = CANDIDATE.index("body_bytes")
EXTENDED = CANDIDATE.index("extended")
"""Where a row of `candidates` has the size of the body, and last the body itself where it is small."""

FIRST_LOOK = 128
"""More than most callers ask for, so that mostly one select is enough."""

MOST_PASSED_OVER = 1_000
"""Expired jobs that one claim passes over; what it does not find behind those it does not find."""

NO_CAP = 2**53
JOBS_PER_SELECT = 10_000
"""Small bodies come with the select, so it must not grow with the number of callers that were joined."""


def count_ready(session: Session, queue: str, priorities: Sequence[Level], limit: int, now_ms: int) -> list[int]:
    """One statement for the queue and all its priorities, so one round trip."""
    wanted, last = split_levels(priorities)
    if last is not None:
        return aged_jobs.count_ready(session, queue, priorities, last, limit, now_ms)
    pieces = [session.statements[name] for name in ("ready", "any_expired")]
    pieces += [session.statements["ready_in_priority"]] * len(wanted)
    text = "\nUNION ALL\n".join(pieces)
    session.cursor.execute(text, (queue, now_ms, *_values_of_priorities(session, queue, wanted, limit, now_ms)))
    counts: dict[int, int] = dict(session.cursor.fetchall())
    if not counts[0]:
        raise QueueNotFound.of(queue)
    has_groups, has_rules = counts[0] >= HAS_GROUPS, counts[0] > HAS_GROUPS
    if not (counts[ANY_EXPIRED] or has_groups):
        return [counts[priority] for priority in wanted]
    expired: dict[int, int] = {}
    behind = limit
    if counts[ANY_EXPIRED]:
        expired = dict(session.rows("expired_ready", (now_ms, queue, now_ms)))
        # expired jobs stand among the first: count as many more, and take them off
        behind += max(expired.values(), default=0)
        session.cursor.execute(text, (queue, now_ms, *_values_of_priorities(session, queue, wanted, behind, now_ms)))
        counts = dict(session.cursor.fetchall())
    groups: dict[int, int] = {}
    if has_groups and wanted:
        text = "\nUNION ALL\n".join([session.statements["in_line_in_priority"]] * len(wanted))
        of_priorities = ((each, queue, each, limit, queue, each, queue, each, behind) for each in wanted)
        values = [value for some in of_priorities for value in some]
        session.cursor.execute(text, values)
        in_line = session.cursor.fetchall()
        some_held = [priority for priority, _, is_held, _ in in_line if is_held]
        for priority, groups[priority], _, count in in_line:
            if priority in some_held:
                ((_, count),) = session.rows("in_turn_in_priority", (priority, queue, priority, now_ms, behind))
            counts[priority] += count
    if has_rules:
        groups = sums_of_weights(session, queue, wanted)
    ready = [min(limit, max(0, counts[priority] - expired.get(priority, 0))) for priority in wanted]
    return ReadyCounts(ready, [groups[priority] for priority in wanted]) if groups else ready


HAS_GROUPS = 2
"""What the count of the queue itself says where its jobs have groups; more: there are rules for these."""

ANY_EXPIRED = -1
"""What the count of expired jobs stands under, beside those of priorities."""


def _values_of_priorities(
    session: Session, queue: str, priorities: Sequence[int], limit: int, now_ms: int
) -> list[object]:
    return [
        value
        for priority in priorities
        for value in (priority, queue, priority, now_ms, *session.begins_ms(queue, priority), limit)
    ]


def next_due(session: Session, queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
    """One statement for all of them."""
    if not queues:
        return {}
    priorities = priorities or (0,)
    pieces = [session.statements["next_due_in_priority"]] * len(priorities)
    names = sorted(set(queues))
    values = [value for each in priorities for value in (each, *session.bound_queues(names, each))]
    session.cursor.execute("\nUNION ALL\n".join(pieces), values)
    found = session.cursor.fetchall()
    rows = [(queue, time_ms) for queue, time_ms, _ in found]
    in_groups = sorted({queue for queue, _, has_groups in found if has_groups})
    if in_groups:
        pieces = [session.statements["next_in_line_in_priority"]] * len(priorities)
        values = [value for each in priorities for value in (each, session.bound_texts(in_groups))]
        session.cursor.execute("\nUNION ALL\n".join(pieces), values)
        rows += session.cursor.fetchall()
    earliest: dict[str, int | None] = {}
    for queue, time_ms in rows:
        known = (each_ms for each_ms in (earliest.get(queue), time_ms) if each_ms is not None)
        earliest[queue] = min(known, default=None)
    return earliest


def claim(
    session: Session, queue: str, requests: Sequence[ClaimRequest], now_ms: int, enforce_quota: bool
) -> list[list[DequeuedJob]]:
    """Requests for the same priorities, which joined calls mostly are, share a select."""
    queue_id, rules_version = session.queue_for_claim(queue, requests, now_ms)
    room = room_for_claims(session, queue_id) if enforce_quota and queue_id is not None else NO_CAP
    if queue_id is None or room == 0:
        return [[] for _ in requests]
    handed_out: list[list[DequeuedJob]] = []
    most, turns = 0, None
    if rules_version is not None:
        requests = [request.without_prefetch() for request in requests]
        most = highest_limit(requests)
        rules = rules_of(session, queue, rules_version)
        turns = Turns(session, queue_id, rules, most=most, spread=requests[0].spread)
    for group in _alike(requests):
        batches = _batches(session, queue_id, group, now_ms, room, turns)
        if turns is not None:
            turns.serve({row[0] for batch in batches for row in batch})
        room -= sum(map(len, batches))
        from_ms = now_ms + group[0].spare_ms
        served = group[: len(batches)]
        own_ms = _own_timeouts(session, served, batches)
        _put_under_claims(session, served, batches, from_ms, own_ms)
        handed_out += _hand_out(
            session, queue, served, batches, from_ms, own_ms, None if turns is None else turns.groups()
        )
        if sum(row[BODY_BYTES] for batch in batches for row in batch) >= SLICE_BYTES:
            break
    if turns is not None:
        turns.put_rooms()
    return handed_out


def ack_and_claim(
    session: Session,
    freed: Freed,
    queue: str,
    acks: Sequence[AckRequest],
    requests: Sequence[ClaimRequest],
    now_ms: int,
    rules: EndRules,
    enforce_quota: bool,
) -> tuple[list[AckOutcome], list[list[DequeuedJob]]]:
    """The outcomes of the acks, and the jobs of each request. In one transaction the claim sees what acks free."""
    outcomes = ack(session, freed, queue, acks, now_ms, rules)
    return outcomes, claim(session, queue, requests, now_ms, enforce_quota)


def _alike(requests: Sequence[ClaimRequest]) -> Iterator[list[ClaimRequest]]:
    """Requests that follow each other, are for the same priorities and begin their claims at the same time, and do not
    come to too many jobs at a time.
    """
    group: list[ClaimRequest] = []
    jobs = 0
    for request in requests:
        if group and (
            request.priorities != group[0].priorities
            or request.spare_ms != group[0].spare_ms
            or jobs + request.limit > JOBS_PER_SELECT
        ):
            yield group
            group, jobs = [], 0
        group.append(request)
        jobs += request.limit
    if group:
        yield group


def _batches(
    session: Session,
    queue_id: int,
    group: Sequence[ClaimRequest],
    now_ms: int,
    room: int = NO_CAP,
    turns: Turns | None = None,
) -> list[Sequence[Row]]:
    """Rows of candidates for each request; `turns` gives them where the jobs of the queue have groups.

    Reads a few candidates first, and more only where all of those are handed out.

    A candidate is locked, and others cannot claim it meanwhile; and MySQL reads even the large bodies that are not
    asked for. Where bodies are so large that few fit, that must not be a whole limit's worth.
    """
    limit = min(room, sum(request.limit for request in group))
    wanted = min(limit, FIRST_LOOK)
    passed_over = 0
    priorities, last = split_levels(group[0].priorities)
    while True:
        if last is None:
            found = (turns or session).candidates(queue_id, priorities, wanted + passed_over, now_ms)
        else:
            found = aged_jobs.candidates(session, turns, queue_id, last, wanted + passed_over, now_ms)
        rows = _without_expired(session, found, now_ms)
        over = {row[0] for row in found}.difference(row[0] for row in rows) if len(rows) < len(found) else ()
        if turns is not None and turns.pass_over(over, MOST_PASSED_OVER):
            continue
        batches = list(deal(rows[:wanted], group))
        if len(rows) < wanted and len(found) == wanted + passed_over < wanted + MOST_PASSED_OVER:
            passed_over = min(2 * (len(found) - len(rows)), MOST_PASSED_OVER)
            continue
        if wanted == limit or len(rows) < wanted or len(batches) < len(group) or sum(map(len, batches)) < len(rows):
            return batches
        mean_bytes = 1 + sum(row[BODY_BYTES] for row in rows) // len(rows)
        fitting = sum(request.max_bytes for request in group) // mean_bytes
        wanted = min(limit, max(2 * wanted, fitting))


def _without_expired(session: Session, rows: list[Row], now_ms: int) -> list[Row]:
    """The rows of jobs that have not expired; `expire_jobs` ends the others."""
    ids = [row[0] for row in rows if row[EXTENDED] and row[EXTENDED] & EXPIRES]
    if not ids:
        return rows
    found = extensions(session, ids).values()
    expired = {each.job_id for each in found if each.expires_at_ms is not None and each.expires_at_ms <= now_ms}
    return [row for row in rows if row[0] not in expired]


def deal(rows: Sequence[Row], requests: Sequence[ClaimRequest]) -> Iterator[Sequence[Row]]:
    """The rows of each request, in turn: up to its limit, and no more than fits its bytes. Requests behind a slice's
    worth get none.
    """
    start = given = 0
    for request in requests:
        if given >= SLICE_BYTES:
            return
        batch = rows[start : start + request.limit]
        batch = batch[: how_many_fit((row[BODY_BYTES] for row in batch), request.max_bytes)]
        start += len(batch)
        given += sum([row[BODY_BYTES] for row in batch])
        yield batch


def _own_timeouts(
    session: Session, requests: Sequence[ClaimRequest], batches: Sequence[Sequence[Row]]
) -> dict[int, int]:
    """The claim time-outs of jobs that have their own, where it counts."""
    ids = [
        row[0]
        for request, batch in zip(requests, batches, strict=True)
        if request.is_default_timeout
        for row in batch
        if row[EXTENDED] and row[EXTENDED] & OWN_TIMEOUT
    ]
    found = extensions(session, ids).values() if ids else ()
    return {each.job_id: each.claim_timeout_ms for each in found if each.claim_timeout_ms is not None}


def _put_under_claims(
    session: Session,
    requests: Sequence[ClaimRequest],
    batches: Sequence[Sequence[Row]],
    from_ms: int,
    own_ms: Mapping[int, int],
) -> None:
    claims = [
        (request.claim_descriptor, request.claim_timeout_ms, [row[0] for row in batch])
        for request, batch in zip(requests, batches, strict=True)
        if batch
    ]
    if own_ms:
        claims = [
            (descriptor, timeout_ms, [job_id for job_id in ids if own_ms.get(job_id, default_ms) == timeout_ms])
            for descriptor, default_ms, ids in claims
            for timeout_ms in sorted({own_ms.get(job_id, default_ms) for job_id in ids})
        ]
    if claims:
        session.claim(claims, from_ms)


def _hand_out(
    session: Session,
    queue: str,
    requests: Sequence[ClaimRequest],
    batches: Sequence[Sequence[Row]],
    from_ms: int,
    own_ms: Mapping[int, int],
    groups: Mapping[int, str] | None,
) -> list[list[DequeuedJob]]:
    """`groups` of the jobs, by id, where the queue has some; jobs that are left out have none."""
    descriptors = Descriptors(queue, session.shard_id)
    large = _large_bodies(session, [row for batch in batches for row in batch])
    new = DequeuedJob if groups is None else GroupedJob
    handed_out = [
        dequeued_jobs(batch, large, descriptors, request.claim_descriptor, from_ms + request.claim_timeout_ms, new)
        for request, batch in zip(requests, batches, strict=True)
    ]
    if groups is not None:
        for batch, jobs in zip(batches, handed_out, strict=True):
            give_groups(jobs, [groups.get(row[0], "") for row in batch])
    if own_ms:
        for batch, jobs in zip(batches, handed_out, strict=True):
            for row, job in zip(batch, jobs, strict=True):
                if row[0] in own_ms:
                    job.claim_expires_at_ms = from_ms + own_ms[row[0]]
    return handed_out


def _large_bodies(session: Session, rows: Sequence[Row]) -> dict[int, bytes]:
    """Large bodies are read only for what is handed out, so that a high limit does not read gigabytes."""
    ids = [row[0] for row in rows if row[BODY] is None]
    return bodies(session, ids) if ids else {}


def claim_listed(
    session: Session, queue: str, jobs: Sequence[JobKey], request: ClaimRequest, now_ms: int, enforce_quota: bool
) -> list[ClaimAnswer]:
    """The jobs are locked before the quota, as by acks with a claim: else the two could wait for each other."""
    queue_id, rules_version = session.queue_with_groups(queue)
    rows = {row[0]: row for row in session.rows_of("listed", (queue_id,), sorted({job.id for job in jobs}))}
    states = {job_id: row[-1] for job_id, row in rows.items()}
    room = room_for_claims(session, queue_id) if enforce_quota else NO_CAP
    alive = {row[0] for row in _without_expired(session, list(rows.values()), now_ms)}
    paused = _paused_jobs(session, rows, rules_of(session, queue, rules_version), now_ms)
    room_bytes = min(request.max_bytes, SLICE_BYTES)
    outcomes: list[ClaimOutcome] = []
    batch: list[Row] = []
    for job in jobs:
        *row, state = rows.get(job.id, _NO_ROW)
        if row and row[1] != job.priority:
            outcome = ClaimOutcome.NOT_FOUND
        elif state not in STATES_OF[JobState.PENDING]:
            outcome = _NOT_PENDING.get(state, ClaimOutcome.ENDED)
        elif job.id not in alive:
            outcome = ClaimOutcome.ENDED
        elif state == WAITING:
            outcome = ClaimOutcome.BEHIND
        elif row[2] > now_ms:
            outcome = ClaimOutcome.NOT_DUE
        elif len(batch) >= room or job.id in paused:
            outcome = ClaimOutcome.LIMITED
        else:
            outcome = ClaimOutcome.CLAIMED
            room_bytes -= row[BODY_BYTES]
            if room_bytes < 0 and batch:
                break
            batch.append(tuple(row))
            rows[job.id] = (*row, _IN_PROGRESS)
        outcomes.append(outcome)
    leave(session, [row[0] for row in batch if states[row[0]] == IN_LINE])
    batches, from_ms = [batch], now_ms + request.spare_ms
    own_ms = _own_timeouts(session, [request], batches)
    _put_under_claims(session, [request], batches, from_ms, own_ms)
    groups = None
    if rules_version is not None:
        groups = {
            job_id: group.decode() for job_id, group in _groups_of(session, {row[0]: row for row in batch}).items()
        }
    (handed_out,) = _hand_out(session, queue, [request], batches, from_ms, own_ms, groups)
    given = iter(handed_out)
    return [ClaimAnswer(each, next(given) if each is ClaimOutcome.CLAIMED else None) for each in outcomes]


def _paused_jobs(session: Session, rows: Mapping[int, Row], rules: GroupRules, now_ms: int) -> set[int]:
    """Those of the jobs whose groups are paused now."""
    if not rules.any_paused:
        return set()
    groups = _groups_of(session, rows)
    return {job_id for job_id, group in groups.items() if rules.of(group).paused_until_ms > now_ms}


def _groups_of(session: Session, rows: Mapping[int, Row]) -> dict[int, bytes]:
    """The groups of these jobs, by id; one without a group may be left out."""
    some = [job_id for job_id, row in rows.items() if row[EXTENDED] and row[EXTENDED] & SHOWN]
    known = extensions(session, some).values() if some else ()
    return {each.job_id: each.keys.group for each in known}


_NO_ROW = (None,)
(_IN_PROGRESS,) = STATES_OF[JobState.IN_PROGRESS]
_NOT_PENDING = {None: ClaimOutcome.NOT_FOUND, _IN_PROGRESS: ClaimOutcome.IN_PROGRESS}
"""The outcome of a job that is not PENDING, by its state; jobs of all other states have ended."""


def peek(
    session: Session, queue: str, priorities: Sequence[Level], limit: int, max_bytes: int, now_ms: int
) -> list[DequeuedJob]:
    request = ClaimRequest("", limit, priorities, 0, max_bytes)
    queue_id, rules_version = session.queue_with_groups(queue)
    has_groups = rules_version is not None
    turns = Turns(session, queue_id, rules_of(session, queue, rules_version), looks=True) if has_groups else None
    (rows,) = _batches(session, queue_id, [request], now_ms, turns=turns)
    large = _large_bodies(session, rows)
    descriptors = Descriptors(queue, session.shard_id)
    return dequeued_jobs(rows, large, descriptors, "", 0)


def requeue(session: Session, freed: Freed, queue: str, claims: Sequence[ClaimKey], now_ms: int) -> int:
    return _requeue(session, queue, claims_standing(session, queue, claims).values(), now_ms, freed)


def _requeue(session: Session, queue: str, rows: Collection[Row], now_ms: int, freed: Freed) -> int:
    """As `to_pending`; the turns of the jobs' groups go back."""
    some = [row[ID] for row in rows if row[FLAGS] and row[FLAGS] & SHOWN]
    known = extensions(session, some).values() if some else ()
    priorities = {row[ID]: row[PRIORITY] for row in rows}
    groups = [(each.queue_id, priorities[each.job_id], each.keys.group) for each in known if each.keys.group]
    if groups:
        _, rules_version = session.queue_with_groups(queue)
        give_turns_back(session, rules_of(session, queue, rules_version), groups)
    return to_pending(session, rows, now_ms, freed)


def requeue_undelivered(
    session: Session, freed: Freed, queue: str, claims: Sequence[UnrenewedClaim], now_ms: int
) -> int:
    """The count lies with the job's links, beside what the job was like meanwhile: nothing else reads or writes it."""
    fresh = claims_fresh(session, queue, claims)
    ids = sorted(fresh)
    counted = {row[0]: row[1:] for row in session.rows_of("undelivered", (), ids)}
    back: list[int] = []
    for job_id in ids:
        row = fresh[job_id]
        often, *before = counted.get(job_id, (0, None, None))
        now = [row[REMAINING], row[RUN_AFTER]]
        times = often + 1 if before == now else 1
        if times <= UNDELIVERED_IN_A_ROW:
            session.run("put_undelivered", (job_id, times, *now))
            back.append(job_id)
    return _requeue(session, queue, [fresh[job_id] for job_id in back], now_ms, freed)
