"""The checker of histories, where jobs have groups: turns, the order within a group, and what cannot be known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinlater.history.checker import Verdict, check
from pinlater.model import AckOutcome
from tests.conformance.reference_turns import RefTurns, Waiting
from tests.unit.checker_stand import (
    QUEUE,
    NoteRow,
    Row,
    ack,
    cancel,
    checkpoint,
    claim,
    claimed_at,
    dequeue_lost,
    enqueue,
    events,
    job,
    judged,
    ms,
    queue_settings,
)

Rows = list[Row | NoteRow]
FLOOD = "ABCDEFGHIJ"


def flood(at_s: float = 0, **fields: Any) -> Rows:
    return [enqueue(at_s, name, group="flood", **fields) for name in FLOOD]


def one_by_one(from_s: float, names: str, **fields: Any) -> Rows:
    return [claim(from_s + number, name, **fields) for number, name in enumerate(names)]


def rules(verdict: Verdict) -> list[str]:
    return [each.rule for each in verdict.violations]


TENANT = enqueue(4, "X", group="tenant")
BEFORE: Rows = [*flood(), *one_by_one(1, "AB"), TENANT]
"""The flood has had two turns, and then another tenant comes for the first time."""


def test_two_jobs_of_a_flood_beside_one_that_comes_for_the_first_time_are_found() -> None:
    assert judged(*BEFORE, *one_by_one(5, "CX")).is_explained
    verdict = judged(*BEFORE, *one_by_one(5, "CDX"))
    assert rules(verdict) == ["turn"], list(verdict.lines())
    assert "2 jobs of the group flood were handed out beside mail:s1:p1:" in verdict.violations[0].text
    assert "of the group tenant, which had 0 meanwhile" in verdict.violations[0].text
    assert verdict.violations[0].calls == (13, 14, 15)


def test_a_tenant_that_was_served_a_moment_ago_may_wait_for_one_more() -> None:
    again = [*BEFORE, *one_by_one(5, "X"), enqueue(7, "Y", group="tenant")]
    assert judged(*again, *one_by_one(8, "CD")).is_explained
    assert rules(judged(*again, *one_by_one(8, "CDE"))) == ["turn"]


def test_whoever_comes_before_anything_was_handed_out_may_have_had_turns_that_no_line_shows() -> None:
    rows: Rows = [*flood(), enqueue(1, "X", group="tenant")]
    assert judged(*rows, *one_by_one(2, "AB")).is_explained


def test_jobs_of_one_answer_count_each() -> None:
    assert rules(judged(*BEFORE, claim(5, "C", "D"))) == ["turn"]
    assert judged(*BEFORE, claim(5, "C", "D", "X")).is_explained


def test_what_its_own_group_had_meanwhile_counts_for_it() -> None:
    """The order within one answer is not known, and the bound is that of the whole time."""
    others = [enqueue(4, name, group="tenant") for name in "YZ"]
    assert judged(*BEFORE, *others, claim(5, "C"), claim(6, "X"), claim(7, "D"), claim(8, "Y")).is_explained
    assert rules(judged(*BEFORE, *others, claim(5, "X"), claim(6, "C"), claim(7, "D", "E", "F"))) == ["turn"]


def test_a_tenant_that_comes_back_gets_no_credit() -> None:
    """The flood waits all the time, and the tenant has four turns in a row."""
    tenants = [enqueue(6, name, group="tenant") for name in "UVWXY"]
    assert judged(*flood(), *one_by_one(1, "ABC"), *tenants, *one_by_one(7, "UDVEW")).is_explained
    assert rules(judged(*flood(), *one_by_one(1, "ABC"), *tenants, *one_by_one(7, "UVWX"))) == ["turn"]


def test_jobs_without_a_group_are_one_group() -> None:
    """They come into line with the next claim."""
    rows: Rows = [*flood(), *one_by_one(1, "AB"), enqueue(4, "X"), claim(5, "C")]
    assert judged(*rows, *one_by_one(6, "DX")).is_explained
    assert rules(judged(*rows, *one_by_one(6, "DE"))) == ["turn"]


def test_what_was_put_off_is_in_line_from_the_next_claim_on_behind_its_time() -> None:
    later = enqueue(4, "X", group="tenant", runAfterTimestampMillis=ms(6.5))
    rows: Rows = [*flood(), *one_by_one(1, "AB"), later, *one_by_one(5, "CDE")]
    assert judged(*rows, *one_by_one(8, "FX")).is_explained
    assert rules(judged(*rows, *one_by_one(8, "FG"))) == ["turn"]


def test_in_a_crowd_what_was_put_off_may_come_into_line_later() -> None:
    names = [chr(0x100 + number) for number in range(260)]
    request = {"queueName": QUEUE, "jobs": [{"body": "", "group": "flood"} for _ in names]}
    crowd = Row(0, 0.1, "producer", "enqueueJobs", request, {"jobDescriptors": [job(name) for name in names]})
    later = enqueue(1, "X", group="tenant", runAfterTimestampMillis=ms(2))
    assert judged(crowd, later, *one_by_one(3, "".join(names[:9]))).is_explained


SERVED = one_by_one(5, "CDEF")


@pytest.mark.parametrize(
    "rows",
    [
        [*BEFORE, dequeue_lost(4.5), *SERVED],
        [*BEFORE, NoteRow(4.5, "drain", "1"), *SERVED],
        [*BEFORE, NoteRow(4.5, "lost", "1"), *SERVED],
        [*BEFORE, cancel(4.5, "X", 1), *SERVED],
        [*BEFORE[:-1], replace(TENANT, end_s=30), *SERVED],
        [*BEFORE, replace(claim(4.5, "X"), end_s=30), *SERVED],
        [*BEFORE, claim(4.9, "Z"), *one_by_one(5, "C"), claim(6, "Q"), *one_by_one(7, "D")],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", serializeKey="k"), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", dedupeKey="k"), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", expiresAtMillis=ms(90)), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", runAfterTimestampMillis=ms(90)), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", priority=2), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="tenant", shard="2"), *SERVED],
        [*BEFORE[:-1], enqueue(4, "X", group="flood"), *SERVED],
        [*BEFORE, *[replace(each, request={**each.request, "releaseOnDisconnect": True}) for each in SERVED]],
        [*BEFORE, *[replace(each, request={**each.request, "confirmsReceipt": True}) for each in SERVED]],
        [*BEFORE, *[replace(each, request={**each.request, "dryRun": True}) for each in SERVED]],
        [queue_settings(-90, pause_on_failures="50%/100/1m/30s"), *BEFORE, *SERVED],
        [Row(-90, -89, "operator", "updateGroup", {"queueName": QUEUE, "group": "tenant"}), *BEFORE, *SERVED],
        [Row(-90, -89, "operator", "clearGroups", {"queueName": QUEUE}), *BEFORE, *SERVED],
    ],
    ids=[
        "a claim that nobody heard of",
        "a shard that is emptied",
        "a store that lost something",
        "the job was cancelled",
        "it is not known to be stored yet",
        "it was handed out meanwhile",
        "jobs of unknown groups",
        "a chain",
        "a dedupe key",
        "an expiry",
        "not due",
        "another priority",
        "another shard",
        "the same group",
        "claims of connections",
        "claims without a receipt",
        "nothing was claimed",
        "a circuit breaker",
        "a change of groups",
        "groups that were taken off",
    ],
)
def test_what_cannot_be_known_is_not_judged(rows: Rows) -> None:
    verdict = judged(*rows)
    assert "turn" not in rules(verdict), list(verdict.lines())


def test_a_hand_out_that_an_ack_ended_was_not_given_back() -> None:
    bound = [replace(each, request={**each.request, "releaseOnDisconnect": True}) for each in SERVED]
    acks = [ack(5.2 + number, name, claimed_at(5 + number)) for number, name in enumerate("CDEF")]
    assert rules(judged(*BEFORE, *bound, *acks)) == ["turn"]
    ignored = [replace(each, answer={"outcomes": [int(AckOutcome.UNKNOWN)]}) for each in acks]
    assert "turn" not in rules(judged(*BEFORE, *bound, *ignored))


def test_turns_that_went_back_are_made_up_for_by_as_many_hand_outs() -> None:
    """Two claims end with a connection; then the flood has these two turns once more, and is as far as before."""
    bound = {"releaseOnDisconnect": True}
    rows: Rows = [*flood(), claim(1, "A", "B", **bound), TENANT, claim(5, "A", "B"), claim(6, "C", "D")]
    assert judged(*rows).is_explained
    longer: Rows = [*rows, claim(7, "E", "F"), enqueue(8, "Y", group="other")]
    assert set(rules(judged(*longer, claim(9, "G", "H", "I")))) == {"turn"}


def test_a_checkpoint_that_moves_a_job_back_is_charged() -> None:
    back = checkpoint(5.5, "C", claimed_at(5), moveToPending=True)
    assert rules(judged(*BEFORE, claim(5, "C"), back, *one_by_one(7, "DE"))) == ["turn"]


def test_the_order_is_that_within_a_group() -> None:
    rows: Rows = [*flood(runAfterTimestampMillis=ms(-1)), enqueue(0.5, "X", group="tenant")]
    assert judged(*rows, claim(1, "X", run_after_s=0.5)).is_explained
    assert judged(*rows, claim(1, "A", run_after_s=-1), claim(2, "X", run_after_s=0.5)).is_explained
    assert rules(judged(*rows, claim(1, "B", run_after_s=-1))) == ["order"]


# -- a shard in miniature ----------------------------------------------------------------------------------------------

RUNS = settings(max_examples=60, deadline=None, derandomize=True)
Pick = Callable[[RefTurns, random.Random], int]


def lowest_turn(turns: RefTurns, rng: random.Random) -> int:
    """The first job of a group whose turn is the lowest."""
    lowest = min(turns.turns.values())
    return rng.choice([line[0].id for group, line in sorted(turns.lines.items()) if turns.turns[group] == lowest])


def first_group(turns: RefTurns, rng: random.Random) -> int:
    """As if no group was charged."""
    return turns.lines[min(turns.lines)][0].id


class Shard:
    """Calls that a shard with groups carries out, each at one moment between its begin and its end."""

    def __init__(self, rng: random.Random, pick: Pick, *, bound: float) -> None:
        """`bound`: so many claims of 1 end with the connection."""
        self._rng = rng
        self._bound = bound
        self._pick = pick
        self._turns = RefTurns()
        self._jobs: dict[int, Waiting] = {}
        self._held: dict[int, tuple[Waiting, str, bool]] = {}
        self._calls = 0

    def rows(self, steps: int) -> Iterator[Row]:
        at_s = 0.0
        for _ in range(steps):
            at_s += self._rng.expovariate(2)
            step = self._rng.choices((self._enqueue, self._dequeue, self._end), (5, 5, 4))[0]
            self._calls += 1
            yield from step(at_s)

    def _row(self, at_s: float, method: str, request: dict[str, Any], answer: Any) -> Row:
        rng = self._rng
        before_s, behind_s = rng.choice((0, 0.01, 2)) * rng.random(), rng.choice((0.001, 0.01, 2)) * rng.random()
        return Row(
            at_s - before_s, at_s + behind_s, f"caller-{self._calls}", method, {"queueName": QUEUE, **request}, answer
        )

    def _enqueue(self, at_s: float) -> Iterator[Row]:
        rng = self._rng
        sent, named = [], []
        for number in range(rng.choice((1, 1, 2, 6))):
            group = rng.choice(("", "a", "a", "a", "b", "c", "d"))
            due_s = at_s + rng.uniform(-2, 5) if rng.random() < 0.2 else None
            job_id = 1_790_000_000_000_000 + 100 * self._calls + number
            waiting = Waiting(ms(at_s if due_s is None else due_s), job_id, group)
            self._jobs[job_id] = waiting
            self._turns.enqueued(waiting, ms(at_s))
            fields = {} if due_s is None else {"runAfterTimestampMillis": ms(due_s)}
            sent.append({"body": "", **fields, **({"group": group} if group else {})})
            named.append(_name(job_id))
        yield self._row(at_s, "enqueueJobs", {"jobs": sent}, {"jobDescriptors": named})

    def _dequeue(self, at_s: float) -> Iterator[Row]:
        rng, turns = self._rng, self._turns
        turns.claim([], ms(at_s))
        is_bound, name = rng.random() < self._bound, f"shard:1:0:{self._calls}:worker"
        jobs: dict[str, Any] = {}
        for _ in range(rng.choice((1, 1, 2, 5))):
            if turns.lines:
                job_id = self._pick(turns, rng)
                (waiting,) = self._claim(job_id, at_s)
                self._held[job_id] = waiting, name, is_bound
                jobs[_name(job_id)] = {"claimDescriptor": name, "claimExpiresAtMillis": ms(at_s + 1e6)}
        request = {"limit": 5, "releaseOnDisconnect": is_bound}
        yield self._row(at_s, "dequeueJobs", request, {"jobs": dict.fromkeys(jobs, ""), "jobMetadata": jobs})

    def _claim(self, job_id: int, at_s: float) -> list[Waiting]:
        if self._pick is lowest_turn:
            return self._turns.claim([job_id], ms(at_s))
        return [self._turns.left(job_id)]

    def _end(self, at_s: float) -> Iterator[Row]:
        """One job of a worker is acked, or goes back with the connection, which no line shows."""
        if not self._held:
            return
        job_id = self._rng.choice(sorted(self._held))
        waiting, name, is_bound = self._held.pop(job_id)
        if is_bound and self._rng.random() < 0.5:
            self._turns.requeued(waiting)
            return
        acked = {"jobDescriptor": _name(job_id), "claimDescriptor": name}
        yield self._row(at_s, "ackJobs", {"jobsSucceeded": [acked]}, {"outcomes": [int(AckOutcome.SUCCEEDED)]})


def _name(job_id: int) -> str:
    return f"{QUEUE}:s1:p1:{job_id}"


def _verdict(seed: int, pick: Pick, *, bound: float) -> Verdict:
    rng = random.Random(seed)
    return check(events(Shard(rng, pick, bound=bound).rows(rng.choice((50, 300)))))


@RUNS
@given(st.integers(0, 2**32), st.sampled_from((0, 0, 0.1, 0.3)))
def test_turns_of_callers_at_once_are_explained(seed: int, bound: float) -> None:
    verdict = _verdict(seed, lowest_turn, bound=bound)
    assert verdict.is_explained, list(verdict.lines())


@pytest.mark.parametrize("bound", [0, 0.1])
def test_groups_that_are_never_charged_are_found(bound: float) -> None:
    """Where claims end with connections, what they may have given back hides some."""
    found = [seed for seed in range(20) if "turn" in rules(_verdict(seed, first_group, bound=bound))]
    assert len(found) >= 15
