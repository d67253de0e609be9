"""The course and the end of attempts: acks, checkpoints, and claims that expire or whose connection broke."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pinlater.backends.base import (
    NO_RULES,
    AckOutcome,
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    EndRules,
    ExpiredClaim,
    ExpiryCounts,
    ExpiryRequest,
    JobKey,
    PerQueue,
    SilentClaim,
    UnrenewedClaim,
)
from pinlater.backends.extended import HeartbeatRequest
from pinlater.backends.packed_trails import ENDS_JOB
from pinlater.backends.requests import changes_behind
from pinlater.backends.sql.chains import Freed
from pinlater.backends.sql.extensions import Extension, extend, extensions
from pinlater.backends.sql.group_lines import leave
from pinlater.backends.sql.held_references import RESULT, hold, replace_body, result_bytes
from pinlater.backends.sql.job_ends import End, Stays, end
from pinlater.backends.sql.records import DEAD_LETTER_PENDING_MS, IN_LINE, IN_PROGRESS, SHOWN, STOPPING
from pinlater.backends.sql.session import IDS_PER_STATEMENT, Row, Session, in_slices
from pinlater.backends.sql.successors import ends_cancelled, stop_requests
from pinlater.backends.sql.trails import add_log_lines, keep_attempts
from pinlater.backends.status_lines import crash_budget_status, expired_status, released_status
from pinlater.model import (
    MAX_PROGRESS_CHARS,
    MAX_TIME_MS,
    AttemptOutcome,
    HeartbeatAnswer,
    HeartbeatOutcome,
    claim_source,
)
from pinlater.model.body_reference import BodyReference
from pinlater.model.status_text import append_at, job_expired_status

Effects = dict[tuple[str, int, str], list[int]]
"""What to do, with which run_after and which status line, and the jobs it is done to."""

ID, PRIORITY, REMAINING, CRASHES, CLAIM, EXTENDED = range(len(IN_PROGRESS))
"""Where a row has these columns."""

LAST_SEEN_AT = EXPIRES_AT = len(IN_PROGRESS)
RUN_AFTER = EXPIRES_AT + 1
"""What comes behind them in `last_seen`, and in `when_claimed`."""


def jobs_in_progress(session: Session, queue: str, ids: Sequence[int]) -> dict[int, Row]:
    """The rows of these jobs that are IN_PROGRESS, by id, locked."""
    return {row[ID]: row for row in session.rows_of("in_progress", (queue,), sorted(set(ids)))}


def jobs_named(session: Session, queue: str, jobs: Sequence[JobKey]) -> dict[int, Row]:
    """The jobs that are there, by id, locked."""
    return {row[0]: row for row in session.rows_of("named", (queue,), sorted({job.id for job in jobs}))}


def claims_standing(session: Session, queue: str, claims: Sequence[ClaimKey]) -> dict[int, Row]:
    """The rows of the jobs that are under exactly the claims given, by id, locked."""
    rows = jobs_in_progress(session, queue, [claim.id for claim in claims])
    return {claim.id: row for claim in claims if (row := rows.get(claim.id)) is not None and _stands(claim, row)}


def claims_quiet(session: Session, queue: str, claims: Sequence[SilentClaim]) -> dict[int, Row]:
    """The rows of the jobs under exactly the claims given, which were not renewed since, by id, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("last_seen", (queue,), ids)}
    return {
        claim.id: row
        for claim in claims
        if (row := rows.get(claim.id)) is not None and _stands(claim, row) and row[LAST_SEEN_AT] == claim.last_seen_ms
    }


def claims_fresh(
    session: Session, queue: str, claims: Sequence[UnrenewedClaim] | Sequence[ExpiryRequest]
) -> dict[int, Row]:
    """The rows of the jobs under exactly the claims given, which still expire as they did at first, by id, locked."""
    ids = sorted({claim.id for claim in claims})
    rows = {row[ID]: row for row in session.rows_of("when_claimed", (queue,), ids)}
    return {claim.id: row for claim in claims if (row := rows.get(claim.id)) is not None and _is_fresh(claim, row)}


def _stands(claim: ClaimKey | SilentClaim | UnrenewedClaim | ExpiryRequest | HeartbeatRequest, row: Row) -> bool:
    return bool(row[PRIORITY] == claim.priority and row[CLAIM] == claim.claim_descriptor)


def _is_fresh(claim: UnrenewedClaim | ExpiryRequest, row: Row) -> bool:
    return _stands(claim, row) and bool(row[EXPIRES_AT] == claim.expires_at_ms)


def ack(
    session: Session, freed: Freed, queue: str, acks: Sequence[AckRequest], now_ms: int, rules: EndRules = NO_RULES
) -> list[AckOutcome]:
    rows = jobs_in_progress(session, queue, [each.id for each in acks])
    outcomes: list[AckOutcome] = []
    effects: Effects = defaultdict(list)
    ends = _Ends()
    results: list[tuple[AckRequest, Row]] = []
    for each in acks:
        row = rows.get(each.id)
        if row is None or row[PRIORITY] != each.priority or each.claim_descriptor not in ("", row[CLAIM]):
            outcomes.append(AckOutcome.IGNORED)
            continue
        del rows[each.id]  # named twice, the job is acked by the first
        outcome = _outcome(each, row[REMAINING])
        flags = row[EXTENDED]
        goes_on = outcome is AckOutcome.RETRIED
        if flags and outcome is not AckOutcome.SUCCEEDED and ends_cancelled(session, each.id, flags, goes_on=goes_on):
            outcome = AckOutcome.CANCELLED
        effect = _effect(each, outcome, now_ms, rules)
        effects[effect].append(each.id)
        outcomes.append(outcome)
        if flags and outcome is not AckOutcome.RETRIED:
            ends.add(each.id, flags, effect[0])
        if each.result is not None and outcome is AckOutcome.SUCCEEDED:
            results.append((each, row))
    ends.carry_out(session, now_ms, freed)
    for (name, *_), ids in effects.items():
        if name == "retry":
            keep_attempts(session, dict.fromkeys(ids, AttemptOutcome.FAILED), now_ms)
    carry_out(session, effects, now_ms)
    if results:
        _keep_results(session, queue, results, now_ms, rules)
    return outcomes


class _Ends:
    """The ends of extended jobs: of those that are kept, and of those that are not."""

    def __init__(self) -> None:
        self._kept: list[End] = []
        self._removed: list[End] = []

    def add(self, job_id: int, flags: int, effect: str) -> None:
        if flags == SHOWN and effect != "remove":  # as of a job with a group alone: nothing of that ends
            return
        (self._removed if effect == "remove" else self._kept).append(End(job_id, flags, True))

    def carry_out(self, session: Session, now_ms: int, freed: Freed) -> None:
        end(session, self._kept, Stays.JOB, now_ms, freed)
        end(session, self._removed, Stays.WINDOWS, now_ms, freed)


def _keep_results(
    session: Session, queue: str, results: Sequence[tuple[AckRequest, Row]], now_ms: int, rules: EndRules
) -> None:
    queue_id = session.queue_id(queue)
    expires_at_ms = min(now_ms + rules.result_ttl_ms, MAX_TIME_MS)
    rows = [
        (
            *(each.id, queue_id, each.priority, row[REMAINING], now_ms, expires_at_ms),
            *(result_bytes(each.result or b""), each.result),
        )
        for each, row in results
    ]
    session.put("put_results", rows)
    references = {each.id: each.result for each, _ in results if isinstance(each.result, BodyReference)}
    if references:
        hold(session, references, RESULT)


def _outcome(each: AckRequest, attempts_remaining: int) -> AckOutcome:
    if each.succeeded:
        return AckOutcome.SUCCEEDED
    return AckOutcome.FAILED if each.permanent or attempts_remaining <= 1 else AckOutcome.RETRIED


def _effect(each: AckRequest, outcome: AckOutcome, now_ms: int, rules: EndRules) -> tuple[str, int, str]:
    if outcome is AckOutcome.RETRIED:
        return "retry", min(now_ms + each.retry_delay_ms, MAX_TIME_MS), each.append_status
    if outcome is AckOutcome.SUCCEEDED:
        if not rules.keep_succeeded:
            return "remove", 0, ""
        return ("succeed_with_status" if each.append_status else "succeed"), 0, each.append_status
    if outcome is AckOutcome.CANCELLED:
        return ("end_cancelled", 0, each.append_status) if rules.keep_failed else ("remove", 0, "")
    if rules.dead_letters:
        return "fail_and_mark", 0, each.append_status
    return ("fail", 0, each.append_status) if rules.keep_failed else ("remove", 0, "")


def carry_out(session: Session, effects: Effects, now_ms: int, crashes: int = 0) -> None:
    """One statement per kind of effect. The jobs are locked, so their state and claim still are what was looked at."""
    for (name, run_after_ms, status), ids in effects.items():
        if name == "remove":
            session.remove(sorted(ids))
        else:
            statement = "fail" if name == "fail_and_mark" else name
            session.run_of(statement, _values(name, run_after_ms, status, now_ms, crashes), sorted(ids))
        if name == "end_cancelled":
            session.run_of("note_cancelled", (), sorted(ids))


def _values(name: str, run_after_ms: int, status: str, now_ms: int, crashes: int) -> tuple[object, ...]:
    if name == "succeed":
        return now_ms, now_ms
    if name == "succeed_with_status":
        return now_ms, now_ms, *append_at(status)
    if name == "retry":
        return run_after_ms, now_ms, crashes, *append_at(status)
    mark = DEAD_LETTER_PENDING_MS if name == "fail_and_mark" else None
    return now_ms, now_ms, mark, crashes, *append_at(status)


def to_pending(session: Session, rows: Iterable[Row], now_ms: int, freed: Freed) -> int:
    """IN_PROGRESS to PENDING; those that are to stop end here instead. How many of both."""
    ids: list[int] = []
    stopped: list[Row] = []
    for row in rows:
        if row[EXTENDED] and ends_cancelled(session, row[ID], row[EXTENDED], goes_on=True):
            stopped.append(row)
        else:
            ids.append(row[ID])
    if stopped:
        carry_out(session, {("end_cancelled", 0, ""): [row[ID] for row in stopped]}, now_ms)
        end(session, [End(row[ID], row[EXTENDED], True) for row in stopped], Stays.JOB, now_ms, freed)
    return len(stopped) + session.run_of("requeue", (now_ms,), sorted(ids))


def checkpoint(
    session: Session, freed: Freed, queue: str, checkpoints: Sequence[CheckpointRequest], now_ms: int
) -> list[bool]:
    """See JobStore.checkpoint. Heartbeats that ask for nothing else and follow each other go in one statement, also
    where each names the run_after that its job has.
    """
    ids = sorted({each.id for each in checkpoints})
    rows = {row[ID]: row for row in session.rows_of("when_claimed", (queue,), ids)}
    changed: set[int] = set()
    matched: list[bool] = []
    beats = _Beats(session, now_ms)
    for each in checkpoints:
        row = rows.get(each.id)
        if row is None or not _matches(each, row):
            matched.append(False)
            continue
        matched.append(True)
        if each.run_after_ms == row[RUN_AFTER] and each.id not in changed:
            beats.add(each.id, None, each.latest_expiry_ms)
        else:
            changed.add(each.id)
            beats.add(each.id, now_ms if each.run_after_ms is None else each.run_after_ms, each.latest_expiry_ms)
        if not _is_plain(each):
            beats.send()
            row = rows[each.id] = _changed(session, each, row)
        if each.move_to_pending:
            to_pending(session, [row], now_ms, freed)
            del rows[each.id]
    beats.send()
    return matched


def _matches(each: CheckpointRequest, row: Row) -> bool:
    if row[PRIORITY] != each.priority:
        return False
    if each.claim_descriptor:
        return bool(row[CLAIM] == each.claim_descriptor)
    return claim_source(row[CLAIM]) == each.source


def _is_plain(each: CheckpointRequest) -> bool:
    return (
        each.new_body is None and each.attempts_allowed is None and not each.prepend_status and not each.move_to_pending
    )


def _changed(session: Session, each: CheckpointRequest, row: Row) -> Row:
    """The row, behind what is asked beyond the heartbeat itself."""
    attempts = each.attempts_allowed
    if attempts is not None or each.prepend_status:
        session.run("checkpoint", (attempts, attempts, each.prepend_status, each.id))
    if each.new_body is not None:
        flags = row[EXTENDED] or 0
        now = replace_body(session, each.id, flags, each.new_body)
        if now != flags:
            return (*row[:EXTENDED], now, *row[EXTENDED + 1 :])
    return row


class _Beats:
    """Heartbeats that wait to go together: all with the same times. `run_after_ms` None leaves it as it is."""

    def __init__(self, session: Session, now_ms: int) -> None:
        self._session = session
        self._now_ms = now_ms
        self._times: tuple[int | None, int] = (None, MAX_TIME_MS)
        self._ids: set[int] = set()

    def add(self, job_id: int, run_after_ms: int | None, latest_expiry_ms: int) -> None:
        times = (run_after_ms, latest_expiry_ms)
        if times != self._times or job_id in self._ids:
            self.send()
            self._times = times
        self._ids.add(job_id)

    def send(self) -> None:
        now_ms, (run_after_ms, latest_expiry_ms) = self._now_ms, self._times
        overtaken = changes_behind(now_ms)
        values = (now_ms, run_after_ms, latest_expiry_ms, *overtaken, *overtaken, now_ms, run_after_ms)
        self._session.run_of("heartbeat", values, sorted(self._ids))
        self._ids.clear()


StatusLine = Callable[[int, int], str]

LOOKS_PAST_LEFTOVERS = 10
"""One transaction looks so often for claims of queues that are still there; `prune` removes leftovers too."""


def expire_claims(
    session: Session, freed: Freed, limit: int, now_ms: int, rules: PerQueue[EndRules]
) -> Mapping[str, ExpiryCounts]:
    """The index of claims spans the shard, so a queue with nothing due is not even looked at.

    What deleted queues left is removed on the way: whoever calls takes an empty answer for the end of what is due.
    Queues whose claims are left alone are passed over by the statement itself where they fill a whole look.
    """
    passed_over: Sequence[int] = ()
    for _ in range(LOOKS_PAST_LEFTOVERS):
        if passed_over:
            rows = session.rows("expired_claims_of_others", (now_ms, session.bound(passed_over), limit))
        else:
            rows = session.rows("expired_claims", (now_ms, limit))
        if not rows:
            break
        names = queue_names_of(session, {row[1] for row in rows})
        remove(session, [End(row[0], row[4] or 0, True) for row in rows if row[1] not in names], now_ms, freed)
        left_alone = {queue_id for queue_id, name in names.items() if rules.get(name).lists_expired}
        rows = [row for row in rows if row[1] in names and row[1] not in left_alone]
        if rows:
            per_row = [(row, row[4], rules.get(names[row[1]]), now_ms) for row in rows]
            outcomes = _expire(session, per_row, now_ms, expired_status, freed)
            return _counts_per_queue(rows, names, outcomes)
        if left_alone:
            passed_over = sorted(queues_of(session, [queue for queue, own in rules.of.items() if own.lists_expired]))
    return {}


def expired_claims(session: Session, queues: Sequence[str], limit: int, now_ms: int) -> dict[str, list[ExpiredClaim]]:
    found: dict[str, list[ExpiredClaim]] = defaultdict(list)
    names, left = queues_of(session, queues), limit
    for some in in_slices(sorted(names), IDS_PER_STATEMENT):
        if left > 0:
            rows = session.rows("expired_claims_of", (now_ms, session.bound(some), left))
            left -= len(rows)
            stopping = [row[2] for row in rows if (row[-1] or 0) & STOPPING]
            to_stop = stop_requests(session, stopping) if stopping else frozenset[int]()
            for queue_id, *claim, _ in rows:
                found[names[queue_id]].append(ExpiredClaim._make((*claim, claim[1] in to_stop)))
    return dict(found)


def remove(session: Session, ends: Sequence[End], now_ms: int, freed: Freed, stays: Stays = Stays.NOTHING) -> int:
    """Remove jobs that this transaction has locked; how many."""
    leave(session, sorted(each.job_id for each in ends if each.is_in_line))
    end(session, [each for each in ends if each.flags], stays, now_ms, freed)
    return session.remove(sorted(each.job_id for each in ends))


def _counts_per_queue(
    rows: Iterable[Row], names: Mapping[int, str], outcomes: Mapping[int, AckOutcome]
) -> dict[str, ExpiryCounts]:
    per_queue: dict[str, list[AckOutcome]] = defaultdict(list)
    for row in rows:
        per_queue[names[row[1]]].append(outcomes[row[0]])
    return {name: _counts(own) for name, own in per_queue.items()}


def _counts(outcomes: Iterable[AckOutcome]) -> ExpiryCounts:
    counts = Counter(outcomes)
    return ExpiryCounts(counts[AckOutcome.RETRIED], counts[AckOutcome.FAILED], counts[AckOutcome.CANCELLED])


def expire_disconnected(
    session: Session, freed: Freed, queue: str, claims: Sequence[SilentClaim], now_ms: int, rules: EndRules = NO_RULES
) -> ExpiryCounts:
    rows = claims_quiet(session, queue, claims).values()
    per_row = [(row, row[EXTENDED], rules, now_ms) for row in rows]
    outcomes = _expire(session, per_row, now_ms, released_status, freed)
    return _counts(outcomes.values())


def expire_listed(
    session: Session, freed: Freed, queue: str, claims: Sequence[ExpiryRequest], now_ms: int, rules: EndRules = NO_RULES
) -> list[AckOutcome]:
    rows = claims_fresh(session, queue, claims)
    ending: dict[int, int] = {}
    for place, claim in enumerate(claims):
        if claim.id not in ending and claim.id in rows and _is_fresh(claim, rows[claim.id]):
            ending[claim.id] = place
    per_row = [
        (row, row[EXTENDED], rules, min(now_ms + claims[ending[job_id]].retry_delay_ms, MAX_TIME_MS))
        for job_id, row in rows.items()
    ]
    became = _expire(session, per_row, now_ms, expired_status, freed)
    return [
        became[claim.id] if ending.get(claim.id) == place else AckOutcome.IGNORED for place, claim in enumerate(claims)
    ]


def _expire(
    session: Session,
    rows: Iterable[tuple[Row, int | None, EndRules, int]],
    now_ms: int,
    status_line: StatusLine,
    freed: Freed,
) -> dict[int, AckOutcome]:
    """End claims as failed acks do, with one crash more; a row comes with the time of its retry. The outcome of each,
    by id.
    """
    effects: Effects = defaultdict(list)
    outcomes: dict[int, AckOutcome] = {}
    ends = _Ends()
    for row, flags, rules, run_after_ms in rows:
        crashes = row[CRASHES] + 1
        used_up = 0 < rules.crash_budget <= crashes
        remaining = 0 if used_up else max(row[REMAINING] - 1, 0)
        line = status_line(now_ms, remaining) + (crash_budget_status(crashes) if used_up else "")
        effect = "retry" if remaining else "fail_and_mark" if rules.dead_letters else "fail"
        outcome = AckOutcome.RETRIED if remaining else AckOutcome.FAILED
        if flags and ends_cancelled(session, row[0], flags, goes_on=remaining > 0):
            effect, outcome = "end_cancelled", AckOutcome.CANCELLED
        effects[effect, run_after_ms, line].append(row[0])
        outcomes[row[0]] = outcome
        if flags and outcome is not AckOutcome.RETRIED:
            ends.add(row[0], flags, effect)
    expired = {job_id: _EXPIRED[outcome] for job_id, outcome in outcomes.items() if outcome in _EXPIRED}
    keep_attempts(session, expired, now_ms)
    carry_out(session, effects, now_ms, crashes=1)
    ends.carry_out(session, now_ms, freed)
    return outcomes


_EXPIRED = {
    AckOutcome.RETRIED: int(AttemptOutcome.EXPIRED),
    AckOutcome.FAILED: AttemptOutcome.EXPIRED + ENDS_JOB,
}
"""What is kept of an attempt that ends so when its claim expires. A job that was to stop tells that by itself."""


def expire_jobs(
    session: Session, freed: Freed, limit: int, now_ms: int, rules: PerQueue[EndRules]
) -> Mapping[str, int]:
    """Jobs in progress keep theirs: they may come back. What deleted queues left is removed on the way."""
    for _ in range(LOOKS_PAST_LEFTOVERS):
        rows = session.rows("expired_jobs", (now_ms, limit))
        names = queue_names_of(session, {row[1] for row in rows})
        remove(session, [End.of(row[0], row[3], row[5]) for row in rows if row[1] not in names], now_ms, freed)
        rows = [row for row in rows if row[1] in names]
        if rows:
            break
    effects: Effects = defaultdict(list)
    ends = _Ends()
    leave(session, sorted(row[0] for row in rows if row[5] == IN_LINE))
    for job_id, queue_id, _, flags, expires_at_ms, _ in rows:
        own = rules.get(names[queue_id])
        effect = "fail_and_mark" if own.dead_letters else "fail"  # what is not kept is left to `prune`
        effects[effect, 0, job_expired_status(now_ms, expires_at_ms)].append(job_id)
        ends.add(job_id, flags, effect)
    carry_out(session, effects, now_ms)
    ends.carry_out(session, now_ms, freed)
    return Counter(names[row[1]] for row in rows)


def _each_once(ids: Iterable[int]) -> Iterator[list[int]]:
    """Ids for one statement after the other, none twice in one.

    >>> list(_each_once([5, 3, 3, 5]))
    [[3, 5], [3, 5]]
    """
    some: set[int] = set()
    for each in ids:
        if each in some:
            yield sorted(some)
            some.clear()
        some.add(each)
    if some:
        yield sorted(some)


def heartbeat(
    session: Session, queue: str, heartbeats: Sequence[HeartbeatRequest], now_ms: int
) -> list[HeartbeatAnswer]:
    rows = jobs_in_progress(session, queue, [each.id for each in heartbeats])
    alive = [each for each in heartbeats if (row := rows.get(each.id)) is not None and _stands(each, row)]
    overtaken = changes_behind(now_ms)
    for ids in _each_once(each.id for each in alive):
        session.run_of("renew_claims", (now_ms, *overtaken, *overtaken, now_ms), ids)
    flags = {each.id: rows[each.id][EXTENDED] or 0 for each in alive}
    reported = {each.id: each for each in alive if each.fraction is not None or each.text is not None}
    known = extensions(
        session, [job_id for job_id, own in flags.items() if own & STOPPING or (own and job_id in reported)]
    )
    progress: list[Row] = []
    for each in alive:
        if each.fraction is not None or each.text is not None:
            before = known.get(each.id, Extension(each.id))
            fraction = before.fraction if each.fraction is None else each.fraction
            text = before.progress if each.text is None else each.text[:MAX_PROGRESS_CHARS]
            known[each.id] = before._replace(fraction=fraction, progress=text)
            progress.append((each.id, fraction, text, now_ms))
    logging = [each for each in alive if each.log_lines]
    if logging:
        add_log_lines(session, logging)
    if progress:
        session.put("put_progress", list({row[0]: row for row in progress}.values()))
        extend(session, {job_id: flags[job_id] for job_id in reported}, SHOWN)
    answers: list[HeartbeatAnswer] = []
    for each in heartbeats:
        row = rows.get(each.id)
        if row is None or not _stands(each, row):
            answers.append(HeartbeatAnswer(HeartbeatOutcome.LOST))
        elif flags[each.id] & STOPPING and (cancelled_by := known[each.id].cancelled_by):
            answers.append(HeartbeatAnswer(HeartbeatOutcome.CANCEL, cancelled_by))
        else:
            answers.append(HeartbeatAnswer(HeartbeatOutcome.OK))
    return answers


def queues_of(session: Session, names: Sequence[str]) -> dict[int, str]:
    """The names of these queues that are there, by id."""
    return dict(session.rows("ids_of_queues", (session.bound_texts(names),))) if names else {}


def queue_names_of(session: Session, queue_ids: Iterable[int]) -> dict[int, str]:
    """The names of those queues that are not deleted."""
    rows = session.rows_of("names_of_queues", (), sorted(queue_ids))
    return {queue_id: name for queue_id, name in rows if name is not None}
