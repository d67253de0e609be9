"""The checker of histories, over several jobs and whole queues: each rule by a history that is explained and one, other
by one line, that is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pinlater.history.call_events import CallError
from pinlater.history.checker.verdict import RULES
from pinlater.model import (
    AckOutcome,
    CancelOutcome,
    EnqueueOutcome,
    HeartbeatOutcome,
    JobState,
    OnDuplicate,
    ReplaceRunning,
)
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
    end,
    enqueue,
    enqueue_lost,
    heartbeat,
    job,
    judged,
    look,
    look_by_key,
    ms,
    queue_settings,
    set_queue,
)

Rows = list[Row | NoteRow]


def count(at_s: float, number: int, *, future: bool = False) -> Row:
    """So many pending jobs are counted."""
    request = {"queueName": QUEUE, "jobState": 0, "countFutureJobs": future}
    return Row(at_s, at_s + 0.1, "reader", "getJobCount", request, number)


def fired(at_s: float, name: str, time_s: float) -> Row:
    """A lookup that shows the firing of a schedule for that time."""
    key = f"@schedule/ticks/{ms(time_s)}"
    return look(at_s, name, JobState.SUCCEEDED, dedupeKey=key, createdAtTimestampMillis=ms(min(at_s, time_s + 0.5)))


def schedule(at_s: float, fired_s: float | None = None) -> Row:
    """An answer that shows a schedule of every ten seconds, made at the start."""
    view = {
        "schedule": {"name": "ticks", "queueName": QUEUE, "everyMillis": 10_000, "cron": ""},
        "version": "1",
        "createdAtMillis": ms(0),
        "updatedAtMillis": ms(0),
    }
    if fired_s is not None:
        view["lastFiredMillis"] = ms(fired_s)
    return Row(at_s, at_s + 0.1, "reader", "getSchedules", {}, {"schedules": [view]})


def shown(
    name: str, state: JobState = JobState.PENDING, *, due_s: float = 0, queue: str = QUEUE, **info: Any
) -> dict[str, Any]:
    """A job as a scan or a search shows it."""
    return {
        "jobDescriptor": job(name, queue=queue),
        "jobState": int(state),
        "runAfterTimestampMillis": ms(due_s),
        **info,
    }


def scan(at_s: float, *infos: dict[str, Any], **fields: Any) -> Row:
    """A page of pending jobs."""
    request = {"queueName": QUEUE, "jobState": 0, **fields}
    answer = {"scannedJobs": list(infos), "continuation": "7"}
    return Row(at_s, at_s + 0.1, "reader", "scanJobs", request, answer)


def search(at_s: float, *infos: dict[str, Any], **selection: Any) -> Row:
    request = {"selection": {"queueName": QUEUE, **selection}}
    return Row(at_s, at_s + 0.1, "reader", "searchJobs", request, {"jobs": list(infos), "continuation": "-1"})


def retried(at_s: float, number: int) -> Row:
    """So many of three at most."""
    request = {"queueName": QUEUE, "limit": 3}
    return Row(at_s, at_s + 0.1, "operator", "retryFailedJobs", request, number)


FLOW: Rows = [
    Row(0, 0.1, "producer", "createFlow", {"stages": [{"name": "first"}]}, {"id": "f", "isNew": True}),
]


def added(at_s: float, *numbers: int, **item: str) -> Row:
    request = {"flowId": "f", "stage": "first", "items": [item for _ in numbers]}
    return Row(at_s, at_s + 0.1, "producer", "addFlowItems", request, {"numbers": list(numbers)})


def sealed(at_s: float) -> Row:
    return Row(at_s, at_s + 0.1, "producer", "sealStage", {"flowId": "f", "stage": "first"})


def flow(at_s: float, state: int, *, pending: int = 0, succeeded: int = 0, items: int | None = None) -> Row:
    """An answer that shows a flow of one stage."""
    stage = {
        "stage": {"name": "first"},
        "items": pending + succeeded if items is None else items,
        "pending": pending,
        "succeeded": succeeded,
        "failed": 0,
        "isSealed": True,
    }
    status = {"id": "f", "state": state, "stages": [stage], "ends": state}
    return Row(at_s, at_s + 0.1, "reader", "getFlow", {"flowId": "f"}, status)


def flow_items(at_s: float, state: int) -> Row:
    """An answer that shows one item."""
    item = {"number": 7, "flowId": "f", "stage": "first", "state": state}
    return Row(at_s, at_s + 0.1, "reader", "getFlowItems", {"flowId": "f"}, {"items": [item]})


def item_failed(at_s: float, *times_s: float, state: int = 0) -> Row:
    """An answer that shows an item with failures of these times."""
    failures = [{"attempt": place, "atMillis": ms(each), "worker": "worker"} for place, each in enumerate(times_s, 1)]
    item = {"number": 7, "flowId": "f", "state": state, "job": job("A"), "failures": failures}
    if state:
        item["endedMillis"] = ms(at_s - 0.1)
    return Row(at_s, at_s + 0.1, "reader", "getFlowItems", {"flowId": "f"}, {"items": [item]})


def breaker_open(at_s: float, opened_s: float = -200) -> Row:
    """An answer that shows a queue whose circuit breaker is open since then."""
    opened = str(ms(opened_s))
    return queue_settings(at_s, paused="true", paused_by="@breaker", paused_at=opened, paused_until="none")


STAGE = Row(0, 0.1, "producer", "createFlow", {"stages": [{"name": "first", "queueName": QUEUE}]}, {"id": "f"})
KEPT, REPLACED = EnqueueOutcome.KEPT, EnqueueOutcome.REPLACED
KEY = {"dedupeKey": "k"}
CHAIN = {"serializeKey": "c"}
SENT = {"sendId": "s"}

REPLACING = {"onDuplicate": OnDuplicate.REPLACE, **KEY}
FOLLOWING = {"replaceRunning": ReplaceRunning.ENQUEUE, **REPLACING}

FIRST_DONE: Rows = [claim(1, "A"), ack(2, "A", claimed_at(1))]
RUNNING: Rows = [enqueue(0, "A", **KEY), claim(1, "A")]
FOLLOWED: Rows = [*RUNNING, enqueue(2, "B", **FOLLOWING)]
TWO_IN_CHAIN: Rows = [enqueue(0, "A", **CHAIN), enqueue(0.5, "B", **CHAIN)]
LIMITED: Rows = [
    queue_settings(-100, max_in_progress="1", max_jobs_per_second="none", paused="false", paused_until="none"),
    enqueue(0, "A"),
    enqueue(0, "B"),
    claim(1, "A"),
]

PAIRS: list[tuple[str, str, Rows, Row | NoteRow, Row | NoteRow]] = [
    (
        "key",
        "a live job has it",
        [enqueue(0, "A", **KEY)],
        enqueue(1, "A", outcome=KEPT, **KEY),
        enqueue(1, "B", **KEY),
    ),
    (
        "key",
        "it ended",
        [enqueue(0, "A", **KEY), *FIRST_DONE],
        enqueue(3, "B", **KEY),
        enqueue(3, "A", outcome=KEPT, **KEY),
    ),
    (
        "key",
        "its window",
        [enqueue(0, "A", dedupeForMillis=60_000, **KEY), *FIRST_DONE],
        enqueue(62.1, "B", **KEY),
        enqueue(61, "B", **KEY),
    ),
    (
        "key",
        "two at once",
        [enqueue(0, "A", **KEY), look(9, "A", JobState.PENDING), look(9, "B", JobState.PENDING)],
        enqueue(0.05, "B", dedupeKey="other"),
        enqueue(0.05, "B", **KEY),
    ),
    (
        "key",
        "found by it",
        [enqueue(0, "A", **KEY), look(2, "B", None)],
        look_by_key(1, "A", "k"),
        look_by_key(1, "B", "k"),
    ),
    (
        "key",
        "another key",
        [enqueue(0, "A", **KEY)],
        enqueue(1, "B", dedupeKey="o"),
        enqueue(1, "A", outcome=KEPT, dedupeKey="o"),
    ),
    (
        "body",
        "replaced",
        [
            enqueue(0, "A", body="sha256:1", **KEY),
            enqueue(1, "A", outcome=REPLACED, body="sha256:2", **REPLACING),
        ],
        claim(2, "A", body="sha256:2"),
        claim(2, "A", body="sha256:1"),
    ),
    (
        "body",
        "missing twice",
        [enqueue(0, "A"), look(1, "A", JobState.PENDING, with_result=False)],
        look(2, "A", JobState.PENDING, with_result=False, bodyLeftOut=True),
        look(2, "A", JobState.PENDING, with_result=False),
    ),
    (
        "state",
        "replaced while it runs",
        [enqueue(0, "A", **KEY), claim(1, "A")],
        enqueue(2, "A", outcome=KEPT, **REPLACING),
        enqueue(2, "A", outcome=REPLACED, **REPLACING),
    ),
    (
        "key",
        "replaced with its priority",
        [enqueue(0, "A", **KEY)],
        enqueue(1, "A", outcome=REPLACED, **REPLACING),
        enqueue(1, "A", outcome=REPLACED, priority=2, **REPLACING),
    ),
    ("key", "a successor of what runs", RUNNING, enqueue(2, "B", **FOLLOWING), enqueue(2, "B", **REPLACING)),
    ("chain", "the successor waits", FOLLOWED, look(3, "B", JobState.PENDING), claim(3, "B")),
    ("chain", "the latest wins when the claim is over", FOLLOWED, claim(400, "B"), claim(400, "A", left=1)),
    (
        "stop",
        "a successor waits",
        FOLLOWED,
        ack(3, "A", claimed_at(1), AckOutcome.CANCELLED, failed=True),
        ack(3, "A", claimed_at(1), AckOutcome.CANCELLED, failed=True, permanent=True),
    ),
    (
        "early",
        "postponed up to a bound",
        [
            enqueue(0, "A", runAfterTimestampMillis=ms(10), **KEY),
            enqueue(1, "A", outcome=REPLACED, runAfterTimestampMillis=ms(90), replaceWithinMillis=20_000, **REPLACING),
        ],
        claim(20, "A", run_after_s=20),
        claim(9, "A"),
    ),
    ("chain", "the first ended", [*TWO_IN_CHAIN, claim(1, "A")], ack(2, "A", claimed_at(1)), claim(2, "B")),
    ("chain", "in order", TWO_IN_CHAIN, claim(2, "A"), claim(2, "B")),
    (
        "chain",
        "one at a time",
        [enqueue(0, "A", **CHAIN), enqueue(0, "B", **CHAIN), claim(1, "A")],
        look(2, "B", JobState.PENDING),
        claim(2, "B"),
    ),
    ("send", "answered again", [enqueue(0, "A", **SENT)], enqueue(1, "A", **SENT), enqueue(1, "B", **SENT)),
    (
        "send",
        "kept again",
        [enqueue(0, "A", **KEY), enqueue(0.5, "A", outcome=KEPT, **KEY, **SENT), *FIRST_DONE],
        enqueue(4, "A", outcome=KEPT, **KEY, **SENT),
        enqueue(4, "B", **KEY, **SENT),
    ),
    (
        "send",
        "ten minutes after its end",
        [enqueue(0, "A", **SENT), *FIRST_DONE],
        enqueue(602.1, "B", **SENT),
        enqueue(600, "B", **SENT),
    ),
    ("quota", "one in progress", LIMITED, ack(2, "A", claimed_at(1)), claim(2, "B")),
    (
        "quota",
        "raised",
        [*LIMITED, claim(40, "B")],
        set_queue(3, max_in_progress="2"),
        set_queue(3, max_in_progress="1"),
    ),
    (
        "paused",
        "nothing is handed out",
        [queue_settings(-100, paused="false", paused_until="none"), enqueue(0, "A"), set_queue(1, paused="true")],
        claim(20, "A"),
        claim(40, "A"),
    ),
    (
        "paused",
        "by hand, whatever the circuit breaker did before",
        [breaker_open(-100), enqueue(0, "A"), set_queue(1, paused="true")],
        claim(20, "A"),
        claim(40, "A"),
    ),
    (
        "probe",
        "one at a time",
        [breaker_open(-100), enqueue(0, "A"), enqueue(0, "B"), claim(1, "A", until_s=60), breaker_open(100)],
        claim(62, "B"),
        claim(2, "B"),
    ),
    (
        "probe",
        "of one opening",
        [breaker_open(-100), enqueue(0, "A"), enqueue(0, "B"), claim(1, "A", until_s=60), claim(2, "B")],
        breaker_open(100, opened_s=50),
        breaker_open(100),
    ),
    (
        "stuck",
        "never handed out",
        [enqueue(0, "A"), end(1000)],
        cancel(1, "A", CancelOutcome.CANCELLED),
        look(1, "A", JobState.PENDING),
    ),
    ("count", "all that wait", [enqueue(0, "A"), enqueue(0, "B")], count(5, 2), count(5, 1)),
    (
        "count",
        "later ones, whatever else goes on",
        [enqueue(0, "A", runAfterTimestampMillis=ms(60)), enqueue(0, "B"), claim(5, "B", took_s=3)],
        count(6, 1, future=True),
        count(6, 0, future=True),
    ),
    (
        "order",
        "the older one first",
        [enqueue(0, "A"), enqueue(1, "B")],
        claim(2, "A", run_after_s=0),
        claim(2, "B", run_after_s=1),
    ),
    (
        "order",
        "the older one of one time first",
        [enqueue(0, "A", runAfterTimestampMillis=ms(1)), enqueue(0.5, "B", runAfterTimestampMillis=ms(1))],
        claim(2, "A", run_after_s=1),
        claim(2, "B", run_after_s=1),
    ),
    (
        "id",
        "of one queue",
        [enqueue(0, "A")],
        look(1, "A", JobState.PENDING),
        look(1, "A", JobState.PENDING, queue="q"),
    ),
    (
        "id",
        "of one priority",
        [enqueue(0, "A")],
        look(1, "A", JobState.PENDING),
        look(1, "A", JobState.PENDING, priority=2),
    ),
    ("shown", "of the queue", [], scan(1, shown("A")), scan(1, shown("A", queue="q"))),
    ("shown", "of the priority", [], scan(1, shown("A"), priority=1), scan(1, shown("A"), priority=2)),
    ("shown", "of the state", [], scan(1, shown("A")), scan(1, shown("A", JobState.SUCCEEDED))),
    ("shown", "of now", [], scan(1, shown("A", due_s=1)), scan(1, shown("A", due_s=9))),
    (
        "shown",
        "of later",
        [],
        scan(1, shown("A", due_s=9), scanFutureJobs=True),
        scan(1, shown("A", due_s=0), scanFutureJobs=True),
    ),
    ("shown", "newest first", [], scan(1, shown("A", due_s=1), shown("B")), scan(1, shown("B"), shown("A", due_s=1))),
    (
        "shown",
        "once",
        [scan(1, shown("A"))],
        scan(2, shown("B"), continuation="7"),
        scan(2, shown("A"), continuation="7"),
    ),
    (
        "shown",
        "found with its tag",
        [],
        search(1, shown("A", tags=["red"]), tags=["red"]),
        search(1, shown("A"), tags=["red"]),
    ),
    ("shown", "found in its phase", [], search(1, shown("A"), phases=[0]), search(1, shown("A"), phases=[3])),
    (
        "shown",
        "found with its priority",
        [],
        search(1, shown("A"), priorities=[1, 2]),
        search(1, shown("A"), priorities=[2]),
    ),
    (
        "shown",
        "the newest of a tag first",
        [],
        search(1, shown("B", tags=["red"]), shown("A", tags=["red"]), tags=["red"]),
        search(1, shown("A", tags=["red"]), shown("B", tags=["red"]), tags=["red"]),
    ),
    ("limit", "of those that are retried", [], retried(1, 3), retried(1, 4)),
    ("schedule", "each time once", [fired(61, "A", 60)], fired(70, "A", 60), fired(70, "B", 60)),
    ("schedule", "none early", [], fired(61, "A", 60), fired(59, "A", 60)),
    ("schedule", "only at its times", [schedule(0)], fired(61, "A", 60), fired(61, "A", 59)),
    ("schedule", "its mark", [schedule(100, fired_s=90)], schedule(200, fired_s=190), schedule(110, fired_s=80)),
    ("schedule", "not ahead", [], schedule(100, fired_s=100), schedule(100, fired_s=110)),
    ("schedule", "none is missed", [], schedule(100, fired_s=90), schedule(200, fired_s=90)),
    ("flow", "an item ends once", [flow_items(0, 1)], flow_items(1, 1), flow_items(1, 0)),
    ("flow", "an item ends in one way", [flow_items(0, 1)], flow_items(1, 1), flow_items(1, 2)),
    ("flow", "it ends once", [flow(0, 1, succeeded=3)], flow(1, 1, succeeded=3), flow(1, 0, succeeded=3)),
    ("flow", "not before its items", [], flow(1, 1, succeeded=3), flow(1, 1, succeeded=2, pending=1)),
    ("flow", "its sums", [], flow(1, 0, succeeded=2, pending=1), flow(1, 0, succeeded=2, items=3)),
    ("flow", "no item is lost", [*FLOW, added(1, 7, 8)], flow(2, 0, pending=2), flow(2, 0, pending=1)),
    ("flow", "a number is one item", [*FLOW, added(1, 7)], added(2, 8), added(2, 7)),
    (
        "flow",
        "a key is one item",
        [*FLOW, added(1, 7, dedupeKey="k")],
        added(2, 7, dedupeKey="k"),
        added(2, 8, dedupeKey="k"),
    ),
    ("flow", "one failure a claim", [STAGE, claim(1, "A")], item_failed(5, 2), item_failed(5, 2, 3)),
    (
        "flow",
        "no failure of what succeeded",
        [STAGE, claim(1, "A"), ack(2, "A", claimed_at(1))],
        item_failed(5, state=1),
        item_failed(5, 2, state=1),
    ),
    (
        "flow",
        "a failure of each claim but the last",
        [STAGE, claim(1, "A", until_s=10), claim(11, "A")],
        item_failed(12, 10),
        item_failed(12),
    ),
    ("flow", "a sealed stage", [*FLOW, added(1, 7)], sealed(3), sealed(0.5)),
]
IDS = [f"{rule}-{why}" for rule, why, *_ in PAIRS]


@pytest.mark.parametrize(("rule", "why", "others", "right", "wrong"), PAIRS, ids=IDS)
def test_a_call_that_breaks_a_rule_is_found(rule: str, why: str, others: Rows, right: Row, wrong: Row) -> None:
    explained, contradicted = judged(*others, right), judged(*others, wrong)
    assert explained.is_explained, list(explained.lines())
    assert [each.rule for each in contradicted.violations] == [rule], list(contradicted.lines())
    assert contradicted.violations[0].basis == RULES[rule]


def test_the_first_copy_of_a_change_may_be_carried_out_later_and_bring_times_that_no_answer_shows() -> None:
    (view,) = schedule(0).answer["schedules"]
    change = Row(0, 5, "planner", "updateSchedule", {"schedule": view["schedule"]}, {"view": view})
    assert not judged(change, fired(61, "A", 59)).is_explained
    assert judged(replace(change, resent=True), fired(61, "A", 59)).is_explained


ITEM_LOST: Rows = [
    claim(1, "A", until_s=10),
    ack(20, "A", claimed_at(1), AckOutcome.IGNORED),
    Row(21, None, "lost worker", "dequeueJobs", {"queueName": QUEUE, "limit": 5}),
]


def test_the_job_of_an_item_that_a_late_result_ended_succeeds_when_its_next_claim_is_over() -> None:
    made = Row(0, 0.1, "producer", "createFlow", {"stages": [{"name": "first", "queueName": QUEUE}]}, {"id": "f"})
    seen = look(900, "A", JobState.SUCCEEDED)
    settings = queue_settings(-1, crash_budget="3", failed_ttl="7d", succeeded_ttl="24h", flow_items="false")
    assert judged(settings, made, *ITEM_LOST, seen).is_explained
    assert [each.rule for each in judged(settings, *ITEM_LOST, seen).violations] == ["state"]


def test_the_job_of_an_item_that_has_ended_may_succeed_under_a_claim_that_was_renewed_late() -> None:
    rows: Rows = [
        *ITEM_LOST[:2],
        claim(30, "A", left=1, until_s=40),
        heartbeat(45, "A", claimed_at(30), HeartbeatOutcome.OK),
        ack(50, "A", claimed_at(30), AckOutcome.IGNORED, failed=True),
        look(60, "A", JobState.SUCCEEDED),
    ]
    assert judged(STAGE, *rows).is_explained
    assert [each.rule for each in judged(*rows).violations] == ["ack"]


@pytest.mark.parametrize(("renewed_s", "rules"), [(45, []), (35, ["state"])], ids=["late", "in time"])
def test_the_job_of_an_item_that_has_ended_may_fail_under_a_claim_that_was_renewed_late_alone(
    renewed_s: float, rules: list[str]
) -> None:
    rows: Rows = [
        claim(30, "A", left=1, until_s=40),
        heartbeat(renewed_s, "A", claimed_at(30), HeartbeatOutcome.OK),
        look(renewed_s + 1, "A", JobState.FAILED),
    ]
    assert [each.rule for each in judged(STAGE, *rows).violations] == rules


def handed_out_each(pause_s: float) -> list[Row]:
    """Sixty jobs, one at a time."""
    letters = [chr(ord("!") + number) for number in range(60)]
    return [
        *[enqueue(0, letter) for letter in letters],
        *[claim(1 + number * pause_s, letter, took_s=0.01) for number, letter in enumerate(letters)],
    ]


FEWER: Rows = [STAGE, claim(1, "A", until_s=10), claim(11, "A"), item_failed(12)]
MORE: Rows = [STAGE, claim(1, "A"), item_failed(5, 2, 3)]
RETRY = Row(0.5, 0.6, "operator", "retryFlowItems", {"flowId": "f"}, {})
DELETE = Row(0.5, 0.6, "operator", "deleteJobs", {"queueName": QUEUE, "jobState": 3}, 1)


@pytest.mark.parametrize("other", [RETRY, DELETE, NoteRow(0.5, "drain", "1"), NoteRow(0.5, "lost", "1")])
def test_failures_are_judged_where_one_job_alone_carried_the_item(other: Row | NoteRow) -> None:
    assert judged(other, *FEWER).is_explained
    assert judged(other, *MORE).is_explained


def test_what_a_worker_gave_back_may_have_failed_before() -> None:
    back = checkpoint(2, "A", claimed_at(1), moveToPending=True)
    rows: Rows = [STAGE, claim(1, "A"), back, claim(11, "A")]
    assert judged(*rows, item_failed(12)).is_explained
    assert judged(*rows, item_failed(12, 2, 12)).is_explained


def test_claims_for_nobody_may_have_failed() -> None:
    assert judged(*MORE[:2], dequeue_lost(1.5), MORE[2]).is_explained


def test_a_rate_is_kept() -> None:
    setting = queue_settings(-100, max_jobs_per_second="10/s")
    assert judged(setting, *handed_out_each(0.1)).is_explained
    contradicted = judged(setting, *handed_out_each(0.02))
    assert [each.rule for each in contradicted.violations] == ["rate"]


@pytest.mark.parametrize(
    ("begin_s", "error", "is_explained"),
    [(2.0, None, True), (5.0, None, False), (2.0, CallError("RequestInvalid", "REQUEST_INVALID", "nothing"), False)],
    ids=["under way", "later", "refused"],
)
def test_a_rate_may_end_before_its_change_is_answered(
    begin_s: float, error: CallError | None, is_explained: bool
) -> None:
    request = {"queueName": QUEUE, "settings": {"max_jobs_per_second": "none"}}
    change = Row(begin_s, begin_s + (0.1 if error else 9), "operator", "updateQueue", request, error=error)
    jobs, claims = handed_out_each(0.02)[:60], handed_out_each(0.02)[60:]
    later = [replace(each, begin_s=each.begin_s + 2, end_s=(each.end_s or 0) + 2) for each in claims]
    found = judged(queue_settings(-100, max_jobs_per_second="10/s"), change, *jobs, *later)
    assert found.is_explained is is_explained


def test_claims_of_unknown_limits_are_not_judged() -> None:
    assert judged(*handed_out_each(0.001)).is_explained


def test_a_key_is_free_for_certain_only_where_nothing_may_have_ended_its_job() -> None:
    """The job that a lost enqueue stored has a name that nobody knows."""
    assert judged(enqueue_lost(0, **KEY), enqueue(1, "A", outcome=KEPT, **KEY), claim(2, "A")).is_explained


def test_a_send_id_that_was_sent_before_may_have_stored_its_job_then() -> None:
    assert judged(enqueue_lost(0, **SENT), claim(1, "A"), enqueue(2, "A", **SENT)).is_explained


def test_a_request_that_is_sent_again_late_says_nothing_of_its_key() -> None:
    first = enqueue(0, "A", **KEY, **SENT)
    assert judged(first, *FIRST_DONE, enqueue(3, "B", **KEY), enqueue(4, "A", **KEY, **SENT)).is_explained


def test_an_operators_retry_takes_a_place_at_the_end_of_a_chain() -> None:
    retry = Row(4, 4.1, "operator", "retryFailedJobs", {"queueName": QUEUE, "priority": 1}, 1)
    rows = [
        *TWO_IN_CHAIN,
        claim(1, "A"),
        ack(2, "A", claimed_at(1), None, failed=True, permanent=True),
        retry,
        claim(5, "B"),
        ack(6, "B", claimed_at(5)),
        claim(7, "A", left=1),
    ]
    assert judged(*rows).is_explained


def test_a_key_whose_job_moved_away_is_not_judged_by_it() -> None:
    moved = look(2, "A", JobState.SUCCEEDED, movedTo=job("C", shard="2"))
    assert judged(enqueue(0, "A", **KEY), moved, enqueue(3, "B", **KEY)).is_explained


def test_a_limit_counts_only_claims_that_stand_for_certain() -> None:
    rows = [*LIMITED[:3], claim(1, "A", releaseOnDisconnect=True), claim(2, "B")]
    assert judged(*rows).is_explained
    assert judged(*LIMITED[:3], claim(1, "A", until_s=10), claim(10.5, "B")).is_explained


def test_a_pause_by_the_circuit_breaker_is_not_judged_as_one_by_hand() -> None:
    assert judged(breaker_open(-100), enqueue(0, "A"), claim(40, "A"), breaker_open(100)).is_explained
    assert judged(breaker_open(-100), enqueue(0, "A"), enqueue(0, "B"), claim(1, "A"), claim(2, "B")).is_explained


def test_a_pause_that_ends_by_itself_is_not_judged() -> None:
    pause = set_queue(1, paused="true", paused_until=str(ms(10)))
    assert judged(queue_settings(-100, paused="false"), enqueue(0, "A"), pause, claim(40, "A")).is_explained
