"""What each transaction of the database of flows means, on every database it can be in."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest
import sqlalchemy as sa

from pinlater.errors import FlowNotFound, FlowsUnavailable, ItemNotFound, RequestInvalid, StageSealed
from pinlater.flows.callback_job import status_document
from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import EndOutcome, ItemEnd, RecordedEnd
from pinlater.flows.tables import STAGES
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowCreated,
    FlowState,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from tests.flows.stand import ROOT, START_MS, fail, feed, flow_of, job_of, some_items, work

PAY = Stage("pay", "pay", "checks", "calculate", Applet(AppletKind.MAP, "{amount: result.amount}"), is_final=True)
CALLBACK = CompletionCallback("done", "report")


def states(database: FlowDatabase, flow_id: str) -> dict[str, tuple[int, int, int, int, bool]]:
    found = database.status(flow_id).stages
    return {each.stage.name: (each.pending, each.queued, each.succeeded, each.failed, each.is_sealed) for each in found}


def test_a_flow_is_made_once_for_its_name_and_dedupe_key(database: FlowDatabase) -> None:
    new = NewFlow("payroll", [PAY, ROOT], "2026-11", items={"calculate": some_items(2)}, metadata={"a": "ü"})
    first, second = database.create(new, START_MS), database.create(new, START_MS + 1)
    assert first.is_new
    assert second == replace(first, is_new=False)
    assert states(database, first.id) == {"calculate": (2, 0, 0, 0, False), "pay": (0, 0, 0, 0, False)}
    assert database.status(first.id).metadata == {"a": "ü"}


def test_a_name_and_key_are_taken_for_those_alone_who_may_fill_the_flow(database: FlowDatabase) -> None:
    def tenant(name: str) -> NewFlow:
        return NewFlow("payroll", [Stage("pay", "", name)], "2026-11", items={"pay": some_items(1)})

    def made_by(name: str) -> FlowCreated:
        return database.create(tenant(name), START_MS, may_fill={name}.issuperset)

    first, *others = [made_by(name) for name in ("a", "b", "c")]
    assert [each.is_new for each in (first, *others)] == [True, True, True]
    assert [made_by(name) for name in ("a", "b", "c")] == [replace(each, is_new=False) for each in (first, *others)]
    assert database.create(tenant("b"), START_MS) == replace(others[0], is_new=False), "who may fill all means its own"
    assert database.create(tenant("new"), START_MS) == replace(first, is_new=False), "else the oldest"
    everybodys = [each.id for each in (*others[::-1], first)]
    assert [each.id for each in database.flows("payroll", "2026-11", None, 0, 10)[0]] == everybodys
    assert [each.dedupe_key for each in database.flows("", "2026-11", None, 0, 10, {"b", "c"}.issuperset)[0]] == [
        "2026-11",
        "2026-11",
    ]
    assert database.delete(first.id, 10)
    assert made_by("b") == replace(others[0], is_new=False)
    assert database.delete(others[0].id, 10)
    assert made_by("b").is_new, "the name is free"
    assert made_by("c") == replace(others[1], is_new=False)


def test_two_that_make_a_flow_of_a_taken_key_at_once_get_one(database: FlowDatabase) -> None:
    database.create(NewFlow("payroll", [ROOT], "2026-11"), START_MS)
    new = NewFlow("payroll", [Stage("pay", "", "b")], "2026-11")
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: database.create(new, START_MS, may_fill={"b"}.issuperset), range(8)))
    assert len({each.id for each in made}) == 1
    assert sum(each.is_new for each in made) == 1


def test_a_list_passes_over_the_flows_of_others(database: FlowDatabase) -> None:
    own = [flow_of(database, Stage("pay", "", "b")) for _ in range(2)]
    for _ in range(30):
        flow_of(database, ROOT)
    own.append(flow_of(database, Stage("pay", "", "b")))
    found, below = database.flows("", "", None, 0, 2, {"b"}.issuperset)
    assert [each.id for each in found] == [own[2], own[1]]
    found, below = database.flows("", "", None, below, 2, {"b"}.issuperset)
    assert ([each.id for each in found], below) == ([own[0]], 0)


def test_a_flow_sealed_at_birth_with_no_items_is_complete_at_once(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, PAY, sealed=["calculate"], on_complete=CALLBACK)
    assert database.status(flow_id).state is FlowState.COMPLETE
    assert [each.status.id for each in database.take_callbacks(START_MS, START_MS, 10)] == [flow_id]


def test_an_item_is_once_in_its_stage_for_its_dedupe_key(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT)
    first = database.add(flow_id, "calculate", [NewItem(b"1", "a"), NewItem(b"2"), NewItem(b"3", "a")], START_MS)
    assert first[0] == first[2] < first[1]
    assert database.add(flow_id, "calculate", [NewItem(b"4", "b"), NewItem(b"5", "a")], START_MS)[1] == first[0]
    assert states(database, flow_id)["calculate"][0] == 3


def test_a_sealed_stage_takes_no_more(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT)
    database.add(flow_id, "calculate", some_items(1), START_MS, seal=True)
    with pytest.raises(StageSealed):
        database.add(flow_id, "calculate", some_items(1), START_MS)
    assert database.seal(flow_id, "", START_MS) == []


@pytest.mark.parametrize("stage", ["nothing", "split applet"])
def test_a_stage_that_is_not_there_is_named(database: FlowDatabase, stage: str) -> None:
    split = Stage("split", "x", "q", "calculate", Applet(AppletKind.JOB, job="splitter", queue="q2"))
    flow_id = flow_of(database, ROOT, split)
    with pytest.raises(RequestInvalid, match=r"allowed: one of flow \w+: calculate, split$"):
        database.add(flow_id, stage, some_items(1), START_MS)
    with pytest.raises(FlowNotFound):
        database.add("none", "calculate", some_items(1), START_MS)


def test_the_first_result_counts(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, PAY, items=1)
    [item] = feed(database)
    twice = [ItemEnd(job_of(item), b'{"amount":1}'), ItemEnd(job_of(item), b'{"amount":2}')]
    recorded = database.record(twice, START_MS)
    assert [each.outcome for each in recorded.ends] == [EndOutcome.SUCCEEDED, EndOutcome.ENDED]
    assert recorded.has_waiting
    assert database.record(twice[1:], START_MS).ends == [RecordedEnd(EndOutcome.ENDED)]
    assert fail(database, item.number, "late").outcome is EndOutcome.ENDED
    assert database.item(item.number)[0].result == b'{"amount":1}'
    assert [each.payload for each in feed(database, "pay")] == [b'{"amount":1}']
    assert states(database, flow_id)["pay"][:2] == (1, 1)


def test_a_failure_is_counted_once_for_its_claim(database: FlowDatabase) -> None:
    flow_of(database, ROOT, items=1)
    [item] = feed(database)
    first = fail(database, item.number, "c1")
    assert first == RecordedEnd(EndOutcome.RETRY, START_MS + 100)
    assert fail(database, item.number, "c1", now_ms=START_MS + 50) == first
    assert fail(database, item.number, "c2").outcome is EndOutcome.FAILED
    assert fail(database, item.number, "c2").outcome is EndOutcome.FAILED
    assert database.record([ItemEnd(job_of(item), b"1")], START_MS).ends == [RecordedEnd(EndOutcome.ENDED)]
    found = database.item(item.number)[0]
    assert (found.state, found.result) == (ItemState.FAILED, None)
    assert [(each.attempt, each.worker, each.reason) for each in found.failures] == [
        (1, "w1", "it broke"),
        (2, "w1", "it broke"),
    ]


def test_failures_without_a_claim_all_count(database: FlowDatabase) -> None:
    flow_of(database, ROOT, items=1)
    [item] = feed(database)
    assert [fail(database, item.number, "").outcome for _ in range(2)] == [EndOutcome.RETRY, EndOutcome.FAILED]


def test_a_final_failure_is_not_tried_again(database: FlowDatabase) -> None:
    flow_of(database, replace(ROOT, max_failures=99), items=1)
    [item] = feed(database)
    end = ItemEnd(job_of(item), None, "c", "w", "no\0 use", is_final=True)
    assert database.record([end], START_MS).ends[0].outcome is EndOutcome.FAILED
    assert database.item(item.number)[0].failures[0].reason == "no use"


def test_a_job_of_no_flow(database: FlowDatabase) -> None:
    assert (
        database.record([ItemEnd("other", b"1"), ItemEnd("", b"1", number=77)], START_MS).ends
        == [RecordedEnd(EndOutcome.NO_ITEM)] * 2
    )


def test_stages_are_sealed_behind_their_parents_and_the_last_ends_the_flow(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, PAY, items=3, sealed=["calculate"], on_complete=CALLBACK)
    work(database, "calculate", lambda item: b'{"amount":7}')
    assert states(database, flow_id) == {"calculate": (0, 0, 3, 0, True), "pay": (3, 0, 0, 0, True)}
    assert work(database, "pay").over == [flow_id]
    status = database.status(flow_id)
    assert (status.state, status.completed_ms) == (FlowState.COMPLETE, START_MS + 1)


def test_a_stage_that_is_kept_open_is_sealed_by_hand(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, replace(PAY, keeps_open=True), items=1, sealed=["calculate"])
    fail(database, feed(database)[0].number, "a")
    assert (
        fail(database, database.items(flow_id, "", None, "", (), 0, 1)[0][0].number, "b").outcome is EndOutcome.FAILED
    )
    assert not database.status(flow_id).stages[1].is_sealed
    assert database.seal(flow_id, "pay", START_MS) == [flow_id]


def test_a_job_makes_the_children_and_is_not_seen(database: FlowDatabase) -> None:
    split = Stage("split", "x", "q", "calculate", Applet(AppletKind.JOB, job="splitter", queue="q2"))
    flow_id = flow_of(database, ROOT, split, items=1, sealed=["calculate"])
    work(database, "calculate", lambda item: b"5")
    [hidden] = feed(database)
    assert (hidden.stage.job, hidden.stage.queue) == ("splitter", "q2")
    assert hidden.payload == b'{"payload":{"user":0},"result":5}'
    database.record([ItemEnd(job_of(hidden), b"[1,2]")], START_MS)
    assert [each.payload for each in feed(database)] == [b"1", b"2"]
    assert database.status(flow_id).stages[1].stage == split
    assert database.queues(flow_id) == {"calculate": "payroll", "split applet": "q2", "split": "q"}


SPLIT = Stage("split", "x", "q", "calculate", Applet(AppletKind.JOB, job="splitter", queue="q2"), max_failures=1)


def failed_for_good(database: FlowDatabase, *, on_failure: OnFailure = OnFailure.GO_ON) -> str:
    """A flow of two items, for one of which the job that was to make the items below has failed for good."""
    items = [NewItem(b"1", "a"), NewItem(b"2", "b")]
    new = NewFlow("split", [ROOT, SPLIT], items={"calculate": items}, sealed=["calculate"], on_failure=on_failure)
    flow_id = database.create(replace(new, on_complete=CALLBACK), START_MS).id
    work(database, "calculate")
    one, two = feed(database)
    database.record([ItemEnd(job_of(one), b"[1]")], START_MS)
    assert fail(database, two.number, "c").outcome is EndOutcome.RETRY
    assert fail(database, two.number, "d").outcome is EndOutcome.FAILED
    return flow_id


def unmade(database: FlowDatabase, flow_id: str) -> list[int]:
    return [each.applet_errors for each in database.status(flow_id).stages]


def test_a_flow_whose_fan_out_job_fails_for_good_is_stuck_and_resumed(database: FlowDatabase) -> None:
    flow_id = failed_for_good(database)
    work(database, "split")
    status = database.status(flow_id, lambda queues: True)
    assert (status.state, status.completed_ms, unmade(database, flow_id)) == (FlowState.RUNNING, None, [1, 0])
    [trouble] = status.troubles
    assert "the children of 1 item of stage calculate could not be made: split: its job splitter failed" in trouble
    assert f"`pinlater flow resume {flow_id}`" in trouble
    items, _ = database.items(flow_id, "calculate", None, "", [], 0, 10)
    assert [bool(each.applet_error) for each in items] == [False, True]
    assert not database.status(flow_id).stages[1].is_sealed

    for claims in ("ef", "gh"):  # another round of tries, and another one
        assert database.resume(flow_id, "", "", START_MS) == []
        assert (unmade(database, flow_id), database.status(flow_id).troubles) == ([0, 0], [])
        [again] = feed(database)
        assert again.stage.job == "splitter"
        outcomes = [fail(database, again.number, claim).outcome for claim in claims]
        assert outcomes == [EndOutcome.RETRY, EndOutcome.FAILED]
        assert unmade(database, flow_id) == [1, 0]
    database.resume(flow_id, "", "", START_MS)
    [again] = feed(database)
    database.record([ItemEnd(job_of(again), None, "i", is_final=True)], START_MS)  # it ends a round before its time
    database.resume(flow_id, "", "", START_MS)
    [again] = feed(database)
    assert [fail(database, again.number, claim).outcome for claim in "kl"] == outcomes
    database.resume(flow_id, "", "", START_MS)
    [again] = feed(database)
    database.record([ItemEnd(job_of(again), b"[2,3]")], START_MS)
    work(database, "split")
    status = database.status(flow_id)
    assert (status.state, states(database, flow_id)["split"]) == (FlowState.COMPLETE, (0, 0, 3, 0, True))
    assert database.resume(flow_id, "", "", START_MS) == []


def test_a_fan_out_job_that_returned_what_is_too_large_is_told_and_tried_again(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, SPLIT, items=1, sealed=["calculate"])
    work(database, "calculate")
    [maker] = feed(database)
    database.record([ItemEnd(job_of(maker), b'["%b"]' % (b"x" * 70_000), "a")], START_MS)
    status = database.status(flow_id, lambda queues: True)
    assert (status.state, unmade(database, flow_id)) == (FlowState.RUNNING, [1, 0])
    [trouble] = status.troubles
    assert "an item has 70002 bytes" in trouble
    assert "item of stage calculate" in trouble
    database.resume(flow_id, "", "", START_MS)
    assert unmade(database, flow_id) == [0, 0]
    [again] = feed(database)
    assert again.number == maker.number
    database.record([ItemEnd(job_of(again), b"[1]", "b")], START_MS)
    work(database, "split")
    assert database.status(flow_id).state is FlowState.COMPLETE


def test_what_a_fan_out_job_could_not_make_is_told_where_the_flow_is_given_up(database: FlowDatabase) -> None:
    flow_id = failed_for_good(database)
    database.cancel(flow_id, START_MS)
    while not database.stop(flow_id, START_MS, 10)[1]:
        pass
    [due] = database.take_callbacks(START_MS, START_MS, 10)
    assert (due.status.state, unmade(database, flow_id)) == (FlowState.CANCELLED, [1, 0])
    assert [each["appletErrors"] for each in status_document(due.status)["stages"]] == [1, 0]
    database.resume(flow_id, "", "", START_MS)
    assert (unmade(database, flow_id), feed(database)) == ([1, 0], [])


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_fan_out_job_that_fails_for_good_stops_the_flow_where_that_is_said(
    database: FlowDatabase, on_failure: OnFailure
) -> None:
    flow_id = failed_for_good(database, on_failure=on_failure)
    while not database.stop(flow_id, START_MS, 10)[1]:
        pass
    work(database, "split")
    stops = on_failure is OnFailure.STOP_FLOW
    assert database.status(flow_id).state is (FlowState.COMPLETE if stops else FlowState.RUNNING)
    assert unmade(database, flow_id) == [1, 0]
    assert states(database, flow_id)["split"][2:4] == ((0, 1) if stops else (1, 0))


def test_children_that_could_not_be_made_are_made_by_another_expression(database: FlowDatabase) -> None:
    broken = replace(PAY, applet=Applet(AppletKind.MAP, "abs(result)"))
    flow_id = flow_of(database, ROOT, broken, items=3, sealed=["calculate"])
    work(database, "calculate", lambda item: b'"x"')
    status = database.status(flow_id)
    assert status.stages[0].applet_errors == 3
    assert not status.stages[1].is_sealed
    assert "`pinlater flow resume" in status.troubles[0]
    database.resume(flow_id, "", "", START_MS)
    assert database.status(flow_id).stages[0].applet_errors == 3
    database.resume(flow_id, "pay", "result", START_MS)
    assert [each.payload for each in feed(database)] == [b'"x"'] * 3
    status = database.status(flow_id)
    assert (status.troubles, status.stages[1].is_sealed) == ([], True)
    database.resume(flow_id, "pay", "result", START_MS)
    assert states(database, flow_id)["pay"][0] == 3


def test_resuming_leaves_what_a_stop_has_settled(database: FlowDatabase) -> None:
    other = replace(PAY, name="other", parent="second", applet=Applet(AppletKind.MAP, "abs(result)"))
    broken = replace(PAY, applet=Applet(AppletKind.MAP, "abs(result)"))
    second = replace(ROOT, name="second", max_failures=0)
    stages = [replace(ROOT, max_failures=0), second, broken, other]
    flow_id = flow_of(database, *stages, items=2, on_failure=OnFailure.STOP_STAGE)
    database.add(flow_id, "second", some_items(1), START_MS)
    work(database, "second", lambda item: b'"x"')
    one, two = feed(database, "calculate")
    assert database.record([ItemEnd(job_of(one), b'"x"')], START_MS).stopping == []
    assert database.record([ItemEnd(job_of(two), None)], START_MS).stopping == [flow_id]
    assert database.stop(flow_id, START_MS, 10) == ([], True)
    database.resume(flow_id, "pay", "result", START_MS)
    errors = {each.stage.name: each.applet_errors for each in database.status(flow_id).stages}
    assert errors == {"calculate": 1, "second": 1, "pay": 0, "other": 0}  # those of a stopped stage are given up


@pytest.mark.parametrize("expression", ["[", "a b"])
def test_an_expression_that_is_none(database: FlowDatabase, expression: str) -> None:
    with pytest.raises(RequestInvalid, match="JMESPath"):
        flow_of(database, ROOT, replace(PAY, applet=Applet(AppletKind.MAP, expression)))


def test_a_window_of_items_goes_into_the_queue(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, items=5)
    first = database.waiting(3, 10)
    assert [each.number for each in first] == sorted(each.number for each in first)
    assert (len(first), first[0].flow_id, first[0].payload) == (3, flow_id, b'{"user":0}')
    assert database.waiting(3, 10, ["payroll"]) == []
    database.queued({each.number: job_of(each) for each in first}, START_MS)
    assert database.waiting(3, 10) == []
    assert database.record([ItemEnd(job_of(first[0]), b"1")], START_MS).ends[0].outcome is EndOutcome.SUCCEEDED
    assert len(database.waiting(3, 10)) == 1


def test_a_serialize_key_holds_its_order_over_stages_and_flows(database: FlowDatabase) -> None:
    keyed = [NewItem(b"1", serialize_key="k"), NewItem(b"2", serialize_key="k"), NewItem(b"3")]
    first, second = flow_of(database, ROOT), flow_of(database, replace(ROOT, queue="other"))
    numbers = database.add(first, "calculate", keyed, START_MS)
    later = database.add(second, "calculate", keyed, START_MS)
    found = database.waiting(10, 10)
    assert [each.number for each in found] == [*numbers, later[2]]
    database.queued({each.number: job_of(each) for each in found}, START_MS)
    assert [each.number for each in database.waiting(10, 10)] == later[:2]


def test_jobs_of_items_that_have_ended_are_needless(database: FlowDatabase) -> None:
    flow_of(database, ROOT, items=2)
    one, two = feed(database)
    database.record([ItemEnd(job_of(one), b"1")], START_MS)
    again = {one.number: "j1", two.number: job_of(two), 99: "j99"}
    assert database.queued(again, START_MS) == ["j1", "j99"]


def test_lost_jobs_wait_again_where_they_are_the_items_own(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, items=3)
    fed = feed(database)
    held, after = database.held((0, 0, 0), START_MS + 1, 2)
    assert [(each.number, each.queue, each.job) for each in held] == [
        (each.number, "payroll", job_of(each)) for each in fed[:2]
    ]
    rest, end = database.held(after, START_MS + 1, 10)
    assert ([each.number for each in rest], end) == ([fed[2].number], (0, 0, 0))
    assert database.held((0, 0, 0), START_MS, 10) == ([], (0, 0, 0))
    assert database.lost({fed[0].number: job_of(fed[0]), fed[1].number: "another"}) == 1
    assert states(database, flow_id)["calculate"][:2] == (3, 2)
    assert [each.number for each in database.waiting(10, 10)] == [fed[0].number]


@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_failure_stops_what_it_is_to_stop(database: FlowDatabase, on_failure: OnFailure) -> None:
    side = replace(ROOT, name="side", queue="side")
    flow_id = flow_of(database, replace(ROOT, max_failures=0), side, items=3, on_failure=on_failure)
    database.add(flow_id, "side", some_items(2), START_MS)
    first, *others = feed(database, "calculate")
    recorded = database.record([ItemEnd(job_of(first), None, reason="bad")], START_MS)
    assert recorded.stopping == database.stopping() == ([] if on_failure is OnFailure.GO_ON else [flow_id])
    if recorded.stopping:
        jobs, is_done = database.stop(flow_id, START_MS, 1)
        assert ([each.job for each in jobs], is_done) == ([job_of(others[-1])], False)
        assert database.stop(flow_id, START_MS, 10)[1]
    stopped = {name: values[0] == 0 for name, values in states(database, flow_id).items()}
    assert stopped == {
        "calculate": on_failure is not OnFailure.GO_ON,
        "side": on_failure is OnFailure.STOP_FLOW,
    }
    assert database.stopping() == []
    assert (database.status(flow_id).state is FlowState.COMPLETE) == (on_failure is OnFailure.STOP_FLOW)


def test_cancelling_ends_a_flow_in_steps(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, PAY, items=3, on_complete=CALLBACK)
    feed(database, limit=1)
    database.cancel(flow_id, START_MS)
    with pytest.raises(StageSealed):
        database.add(flow_id, "calculate", some_items(1), START_MS)
    assert database.waiting(10, 10) == []
    assert database.stopping() == [flow_id]
    assert [len(database.stop(flow_id, START_MS, 2)[0]) for _ in range(2)] == [1, 0]
    status = database.status(flow_id)
    assert (status.state, status.completed_ms, status.stages[0].failed) == (FlowState.CANCELLED, START_MS, 3)
    assert len(database.take_callbacks(START_MS, START_MS, 10, flow_id)) == 1
    database.cancel(flow_id, START_MS)
    assert database.stopping() == []


def test_flows_are_deleted_and_reaped_in_steps(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, items=3, sealed=["calculate"], ttl_ms=10, on_complete=CALLBACK)
    other = flow_of(database, ROOT, items=3)
    for item in feed(database):
        fail(database, item.number, "a")
        fail(database, item.number, "b")
    assert database.reap(START_MS + 9, 2) == 0
    assert [database.reap(START_MS + 10, 2) for _ in range(3)] == [1, 1, 0]
    assert [database.delete(other, 2) for _ in range(2)] == [False, True]
    for gone in (flow_id, other):
        with pytest.raises(FlowNotFound):
            database.status(gone)
    with pytest.raises(ItemNotFound):
        database.item(1)
    assert not database.open_flows()


def test_callbacks_are_due_until_they_are_made_or_given_up(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, sealed=["calculate"], on_complete=CALLBACK)
    [due] = database.take_callbacks(START_MS, START_MS, 10)
    assert (due.callback, due.tries, due.status.id) == (CALLBACK, 0, flow_id)
    database.callback_failed(due, "refused", START_MS + 5, START_MS)
    assert database.take_callbacks(START_MS + 4, START_MS, 10) == []
    assert [each.id for each in database.take_callbacks(START_MS + 5, START_MS, 10)] == [due.id]
    database.callback_failed(due, "refused", None, START_MS)
    assert "given up after 2 tries: refused" in database.status(flow_id).troubles[0]
    assert not database.open_flows()
    database.resume(flow_id, "", "", START_MS)
    assert database.open_flows()
    database.callback_made(database.take_callbacks(START_MS, START_MS, 1)[0], START_MS)
    assert (database.status(flow_id).troubles, database.open_flows()) == ([], False)


def test_a_page_of_items_ends_before_it_is_too_long_for_an_answer(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT)
    added = []
    for bytes_of_one in (1_500_000, 1_500_000, 1_500_000, 5_000_000, 5_000_000):
        added += database.add(flow_id, "calculate", [NewItem(b'"%b"' % (b"x" * bytes_of_one))], START_MS)
    pages, after = [], 0
    while not pages or after:
        page, after = database.items(flow_id, "", None, "", (), after, 100)
        pages.append([item.number for item in page])
    assert pages == [added[:2], added[2:3], added[3:4], added[4:]]


def test_pages_of_items_are_in_order_however_the_items_are(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ROOT, PAY, items=30)
    jobs = feed(database, limit=20)
    database.record([ItemEnd(job_of(each), b'{"amount": 1}') for each in jobs[1:15:2]], START_MS)
    for each in jobs[:6:2]:
        fail(database, each.number, "a")
        fail(database, each.number, "b")
    feed(database, "pay", limit=5)
    seen, after = [], 0
    while True:
        page, after = database.items(flow_id, "", None, "", (), after, 4)
        seen += page
        if not after:
            break
    assert [each.number for each in seen] == sorted({each.number for each in seen})
    counts = Counter((each.stage, each.state) for each in seen)
    assert counts["calculate", ItemState.SUCCEEDED] == counts["pay", ItemState.PENDING] == 7
    assert (counts["calculate", ItemState.FAILED], counts["calculate", ItemState.PENDING]) == (3, 20)
    for state in ItemState:
        of_state = [each for each in seen if each.state is state]
        assert database.items(flow_id, "", state, "", (), 0, 99)[0] == of_state
    assert database.items(flow_id, "pay", None, "", (), 0, 99)[0] == [each for each in seen if each.stage == "pay"]


def test_pages_of_flows_and_items(database: FlowDatabase) -> None:
    ids = [flow_of(database, ROOT, items=2, dedupe_key=key) for key in "abc"]
    page, below = database.flows("payroll", "", FlowState.RUNNING, 0, 2)
    assert [each.id for each in page] == [ids[2], ids[1]]
    rest, end = database.flows("payroll", "", None, below, 2)
    assert ([each.id for each in rest], end) == ([ids[0]], 0)
    assert [each.id for each in database.flows("", "b", None, 0, 5)[0]] == [ids[1]]
    first, after = database.items(ids[0], "calculate", ItemState.PENDING, "", (), 0, 1)
    last, end = database.items(ids[0], "", None, "", (), after, 1)
    assert ([each.payload for each in (*first, *last)], end) == ([b'{"user":0}', b'{"user":1}'], 0)
    assert database.items(ids[0], "", None, "", (last[0].number,), 0, 9)[0] == last
    assert database.items(ids[0], "", None, "other", (), 0, 9)[0] == []


def test_one_keeper_at_a_time(database: FlowDatabase) -> None:
    assert database.keep("a", 100) == (True, 100)
    assert database.keep("b", 200) == (False, 100)
    assert database.keep("a", 150) == (True, 150)
    assert database.keep("b", 200, 100) == (False, 150)  # the other one lives
    assert database.keep("b", 50, 150) == (True, 50)  # whatever the clocks say
    assert database.keep("a", 0) == (False, 50)
    assert database.keep("b", 0) == (True, 0)
    assert database.keep("a", 300) == (True, 300)


def test_a_database_that_is_away() -> None:
    database = FlowDatabase("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(FlowsUnavailable):
        database.open()


def test_texts_that_a_database_cannot_keep(database: FlowDatabase) -> None:
    flow_id = flow_of(database, replace(ROOT, max_failures=5), items=1)
    (item,) = feed(database)
    for claim in ("c\0d", "c\0d", "x" * 100_000, "x" * 100_000):
        end = ItemEnd(job_of(item), None, claim, "w\0" * 300, "why\0" * 3_000)
        assert database.record([end], START_MS).ends[0].outcome is EndOutcome.RETRY
    assert len(database.items(flow_id, "", None, "", (), 0, 9)[0][0].failures) == 2
    for ask in (
        lambda: database.status("a\0b"),
        lambda: database.flows("a\0b", "a\0b", None, 0, 1),
        lambda: database.add(flow_id, "a\0b", [], START_MS),
        lambda: database.items(flow_id, "a\0b", None, "a\0b", (), 0, 1),
    ):
        with suppress(RequestInvalid):  # not a trouble of the database, and tried again
            ask()


def test_who_looks_waits_for_no_writer(database: FlowDatabase, url: str) -> None:
    flow_id = flow_of(database, ROOT, items=1)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as writer:
        if writer.dialect.name == "sqlite":
            writer.connection.driver_connection.isolation_level = None  # type: ignore[union-attr]
            writer.exec_driver_sql("BEGIN IMMEDIATE")
        writer.execute(sa.update(STAGES).values(items=99))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(database.status, flow_id).result(5).stages[0].items == 1
            assert len(pool.submit(database.waiting, 10, 10).result(5)) == 1
