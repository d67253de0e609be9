"""Items that have ended are tried again, and their flow opens: what is taken, what is refused, what is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from pinlater.errors import FlowNotFound, FlowsUnavailable, RequestInvalid
from pinlater.flows import retries
from pinlater.flows.callback_job import status_document
from pinlater.flows.database import FlowDatabase
from pinlater.flows.ends import DueCallback, ItemEnd, RetriedItems, WantedItems
from pinlater.flows.tables import REOPENED_FLOWS
from pinlater.model import Heartbeat, HeartbeatOutcome
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    FlowItem,
    FlowState,
    ItemState,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)
from pinlater.model.owner_bounds import OwnerBounds
from tests.flows.async_service import AsyncService, payload_of
from tests.flows.async_service import items_of as given
from tests.flows.flow_stand import flow_stand
from tests.flows.stand import START_MS, check_counters, fail, feed, flow_of, job_of, opened, work

ONE = Stage("one", "", "q1", max_failures=0)
TWO = Stage("two", "", "q2", "one", Applet(AppletKind.MAP, "result"))
THREE = Stage("three", "", "q3", "two")
SPLIT = replace(TWO, applet=Applet(AppletKind.JOB, job="split", queue="splitters"))
CALLBACK = CompletionCallback("done", "report")
LATER_MS = START_MS + 1_000


def items_of(database: FlowDatabase, flow_id: str, stage: str = "", state: ItemState | None = None) -> list[FlowItem]:
    return database.items(flow_id, stage, state, "", (), 0, 1_000)[0]


def fail_all(database: FlowDatabase, stage: str = "") -> list[int]:
    """All that waits in a stage fails; the numbers."""
    numbers = [each.number for each in feed(database, stage)]
    database.record([ItemEnd("", None, "", "w", "it broke", number=number) for number in numbers], START_MS)
    return numbers


def retry(database: FlowDatabase, flow_id: str, *numbers: int, **values: object) -> RetriedItems:
    wanted = WantedItems(numbers=numbers, **{"until_ms": LATER_MS, **values})  # type: ignore[arg-type]
    return database.retry(flow_id, wanted, LATER_MS)


def reasons(retried: RetriedItems) -> dict[str, tuple[int, Sequence[int]]]:
    """The beginning of each reason, with how many items and which."""
    return {each.reason.split(":")[0]: (each.count, each.numbers) for each in retried.refused}


def taken(database: FlowDatabase) -> list[DueCallback]:
    return database.take_callbacks(LATER_MS, LATER_MS, 10)


def test_a_flow_that_is_over_opens_and_each_end_has_its_number(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, TWO, items=2, sealed=["one"], on_complete=CALLBACK)
    first, second = (each.number for each in feed(database))
    database.record([ItemEnd("", b"1", number=first), ItemEnd("", None, "c", number=second)], START_MS)
    work(database, "two")
    over = database.status(flow_id)
    assert (over.state, over.ends, [each.is_sealed for each in over.stages]) == (FlowState.COMPLETE, 1, [True, True])
    (told,) = taken(database)
    assert (told.id, status_document(told.status)["end"]) == (f"{flow_id}/1", 1)
    database.callback_made(told, START_MS)

    assert retry(database, flow_id, second) == RetriedItems(1, 0, [], [], [], True)
    again = database.status(flow_id)
    assert (again.state, again.completed_ms, again.ends, again.callback) == (FlowState.RUNNING, None, 1, None)
    assert [each.is_sealed for each in again.stages] == [True, False], "children may come into what is below"
    assert database.over_among([flow_id]) == []
    assert database.reap(START_MS + 10**12, 10) == 0, "its time to live begins at its next end"
    work(database, "one", lambda item: b"2")
    work(database, "two")
    last = database.status(flow_id)
    assert (last.state, last.ends) == (FlowState.COMPLETE, 2)
    assert [stage.succeeded for stage in last.stages] == [2, 2]
    (told,) = taken(database)
    assert (told.id, status_document(told.status)["end"]) == (f"{flow_id}/2", 2)
    assert [each.ends for each in database.flows("", "", None, 0, 10)[0]] == [2]


def test_all_that_have_failed_are_tried_again_of_a_stage_or_of_all(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, replace(TWO, applet=Applet()), items=4, sealed=["one"])
    broken = fail_all(database)[:1]
    retry(database, flow_id, *[each.number for each in items_of(database, flow_id)][1:])
    work(database, "one")
    broken += fail_all(database, "two")
    assert [(each.number, each.state) for each in items_of(database, flow_id, "", ItemState.FAILED)] == [
        (number, ItemState.FAILED) for number in broken
    ]
    assert retry(database, flow_id, stage="two").retried == 3
    assert retry(database, flow_id).retried == 1
    assert retry(database, flow_id).retried == 0
    assert items_of(database, flow_id, "", ItemState.FAILED) == []
    with pytest.raises(RequestInvalid, match=r"one of the flow: one, two$"):
        retry(database, flow_id, stage="nowhere")
    with pytest.raises(FlowNotFound):
        retry(database, "none")


def test_a_retry_is_a_whole_round_of_tries_and_failures_are_kept(database: FlowDatabase) -> None:
    flow_id = flow_of(database, replace(ONE, max_failures=2), items=1, sealed=["one"])
    (item,) = feed(database)
    database.record([ItemEnd("", None, "c1", is_final=True, number=item.number)], START_MS)
    assert database.status(flow_id).state is FlowState.COMPLETE
    retry(database, flow_id, item.number)
    (waiting,) = database.waiting(10, 10)
    assert waiting.failures % 3 == 0
    assert [fail(database, item.number, claim).outcome.name for claim in ("c2", "c3", "c4")] == [
        "RETRY",
        "RETRY",
        "FAILED",
    ]
    assert len(items_of(database, flow_id)[0].failures) == 4


def test_what_has_not_failed_is_refused_with_the_reason(database: FlowDatabase) -> None:
    parts = replace(SPLIT, name="parts")
    flow_id = flow_of(database, ONE, TWO, parts, items=3)
    other = flow_of(database, ONE, items=1)
    done, failed, waits = (each.number for each in feed(database) if each.flow_id == flow_id)
    database.record([ItemEnd("", b"[1,2]", number=done), ItemEnd("", None, number=failed)], START_MS)
    (child, _) = (each.number for each in items_of(database, flow_id, "two"))
    work(database, "two")
    maker = child + 10
    (foreign,) = (each.number for each in items_of(database, other))
    refused = reasons(retry(database, flow_id, done, failed, waits, child, foreign, maker))
    assert refused == {
        "it has succeeded, and its children are there": (1, [done]),
        "it has not ended": (1, [waits]),
        "it has succeeded": (1, [child]),
        "the flow has no such item (any more)": (2, [foreign, maker]),
    }
    assert items_of(database, flow_id, "one", ItemState.FAILED) == []


def test_what_follows_is_removed_at_every_depth(database: FlowDatabase, url: str) -> None:
    flow_id = flow_of(database, ONE, TWO, THREE, items=2, sealed=["one"], owner="anna")
    first, second = (each.number for each in feed(database))
    many = b"[" + b",".join(b"%d" % each for each in range(150)) + b"]"
    database.record([ItemEnd("", many, number=first), ItemEnd("", b"7", number=second)], START_MS)
    in_queues = feed(database, "two")
    database.record([ItemEnd(job_of(each), b"null") for each in in_queues[:120]], START_MS)
    below = feed(database, "three", 5)
    fail_all(database, "three")
    assert database.counts_of("anna").items == 2 + 151 + 120

    came = retry(database, flow_id, first, and_follows=True)
    assert (came.retried, came.removed, list(came.refused)) == (1, 150 + 120, [])
    assert {each.job for each in came.jobs} == {job_of(each) for each in [*in_queues[120:150], *below]}
    assert [each.number for each in items_of(database, flow_id, "one", ItemState.PENDING)] == [first]
    assert [each.number for each in items_of(database, flow_id, "two")] == [in_queues[150].number]
    assert items_of(database, flow_id, "three") == []
    assert items_of(database, flow_id, "one")[0].result is None
    assert database.counts_of("anna").items == 3
    check_counters(url)
    database.record([ItemEnd(job_of(in_queues[150]), b"null")], START_MS)
    work(database, "one", lambda item: b"[1]")
    work(database, "two")
    work(database, "three")
    assert [stage.succeeded for stage in database.status(flow_id).stages] == [2, 2, 2]
    assert database.status(flow_id).state is FlowState.COMPLETE


def test_an_item_that_follows_from_another_one_of_the_call_goes_with_it(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, TWO, items=1, sealed=["one"])
    work(database, "one", lambda item: b"1")
    (child,) = fail_all(database, "two")
    (first,) = (each.number for each in items_of(database, flow_id, "one"))
    came = retry(database, flow_id, child, first, and_follows=True)
    assert (came.retried, came.removed, list(came.refused)) == (1, 1, [])


def test_too_many_that_follow_are_left_as_they_are(database: FlowDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "MOST_REMOVED", 3)
    flow_id = flow_of(database, ONE, TWO, items=1, sealed=["one"])
    work(database, "one", lambda item: b"[1,2,3,4]")
    before = items_of(database, flow_id)
    with pytest.raises(RequestInvalid, match="more than 3 items follow"):
        retry(database, flow_id, before[0].number, and_follows=True)
    assert items_of(database, flow_id) == before


def stop_all(database: FlowDatabase, flow_id: str) -> None:
    while not database.stop(flow_id, START_MS, 10)[1]:
        pass


@pytest.mark.parametrize("way", ["cancel", "stop_flow", "stop_stage"])
def test_what_was_stopped_goes_on_only_with_what_follows(database: FlowDatabase, way: str) -> None:
    on_failure = {"stop_flow": OnFailure.STOP_FLOW, "stop_stage": OnFailure.STOP_STAGE}.get(way, OnFailure.GO_ON)
    flow_id = flow_of(database, ONE, TWO, items=3, sealed=["one"], on_failure=on_failure)
    if way == "cancel":
        database.cancel(flow_id, START_MS)
        named = items_of(database, flow_id)[0].number
        assert list(reasons(retry(database, flow_id, named))) == ["the flow is still being stopped"]
    else:
        fail(database, feed(database)[0].number, "c")
    stop_all(database, flow_id)
    over = database.status(flow_id)
    assert over.state is (FlowState.CANCELLED if way == "cancel" else FlowState.COMPLETE)
    reason = "cancelled" if way == "cancel" else "stopped"
    refused = retry(database, flow_id)
    assert (refused.retried, list(reasons(refused).values())) == (0, [(3, [])])
    assert f"stage one is stopped ({reason}" in refused.refused[0].reason
    assert database.status(flow_id) == over, "a call that is refused changes nothing"

    assert retry(database, flow_id, and_follows=True).retried == 3
    assert database.status(flow_id).state is FlowState.RUNNING
    work(database, "one", lambda item: b"1")
    work(database, "two")
    last = database.status(flow_id)
    assert (last.state, last.ends, [each.succeeded for each in last.stages]) == (FlowState.COMPLETE, 2, [3, 3])


def test_a_stage_below_that_a_caller_has_sealed_is_a_reason(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, replace(TWO, keeps_open=True), THREE, items=1, sealed=["one"])
    (failed,) = fail_all(database)
    assert retry(database, flow_id, failed).retried == 1
    fail_all(database)
    database.seal(flow_id, "two", START_MS)
    assert database.status(flow_id).state is FlowState.COMPLETE
    (refused,) = retry(database, flow_id, failed).refused
    assert refused.reason.startswith("stage two, into which its items come, was sealed")
    assert retry(database, flow_id, failed, and_follows=True).retried == 1
    work(database, "one", lambda item: b"1")
    assert [each.is_sealed for each in database.status(flow_id).stages] == [True, True, False]
    work(database, "two")
    work(database, "three")
    assert database.status(flow_id).state is FlowState.COMPLETE, "nobody has to seal it again"


@pytest.mark.parametrize("by_number", [False, True])
def test_a_fan_out_that_failed_for_good_is_stuck_until_it_is_retried(database: FlowDatabase, by_number: bool) -> None:
    flow_id = flow_of(database, ONE, SPLIT, items=2, sealed=["one"])
    work(database, "one")
    assert not database.status(flow_id).is_stuck
    fail_all(database)
    status = database.status(flow_id)
    assert (status.state, status.is_stuck, status.completed_ms) == (FlowState.RUNNING, True, None)
    numbers = [each.number for each in items_of(database, flow_id, "one")] if by_number else []
    came = retry(database, flow_id, *numbers)
    assert (came.retried, len(came.broken), list(came.refused)) == (2, 2, [])
    resumed = database.make_children(flow_id, 0, {}, LATER_MS, came.broken)
    assert resumed.over == []
    assert not database.status(flow_id).is_stuck
    ends = [ItemEnd(job_of(each), b"[1,2]") for each in feed(database)]
    database.record(ends, LATER_MS)
    work(database, "two")
    last = database.status(flow_id)
    assert (last.state, last.stages[1].succeeded, last.troubles) == (FlowState.COMPLETE, 4, [])


def test_a_job_whose_answer_made_no_items_is_retried_with_all_that_failed(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, SPLIT, items=1, sealed=["one"])
    work(database, "one")
    too_many = b"[" + b",".join([b"1"] * 1_001) + b"]"
    database.record([ItemEnd(job_of(each), too_many) for each in feed(database)], START_MS)
    assert database.status(flow_id).is_stuck
    came = retry(database, flow_id)
    database.make_children(flow_id, 0, {}, LATER_MS, came.broken)
    assert not database.status(flow_id).is_stuck
    assert len(feed(database)) == 1


def test_a_callback_that_was_not_made_yet_is_left_to_the_next_end(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, items=1, sealed=["one"], on_complete=CALLBACK)
    fail_all(database)
    (under_way,) = taken(database)
    retry(database, flow_id)
    assert taken(database) == []
    work(database, "one")
    database.callback_made(under_way, LATER_MS)  # the one before: it says nothing of this one
    database.callback_failed(under_way, "no", None, LATER_MS)
    assert [each.id for each in taken(database)] == [f"{flow_id}/2"]


def test_retries_at_once_try_each_item_once(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, TWO, items=40, sealed=["one"], on_complete=CALLBACK)
    numbers = fail_all(database)
    with ThreadPoolExecutor(4) as threads:
        came = list(threads.map(lambda at: retry(database, flow_id, *(numbers if at % 2 else ())), range(4)))
    assert sum(each.retried for each in came) == 40
    work(database, "one", lambda item: b"1")
    work(database, "two")
    assert database.status(flow_id).ends == 2


def test_retries_while_items_end_and_children_come(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, TWO, THREE, items=20, sealed=["one"])
    roots = [each.number for each in feed(database)]

    def end(number: int) -> None:
        database.record([ItemEnd("", b"[1,2]", number=number)], START_MS)
        feed(database)
        made = [each.number for each in items_of(database, flow_id, "two")][:4]
        database.record([ItemEnd("", b"null", number=each) for each in made], START_MS)

    with ThreadPoolExecutor(4) as threads:
        began = [threads.submit(end, number) for number in roots]
        began += [threads.submit(retry, database, flow_id, number, and_follows=True) for number in roots]  # type: ignore[arg-type]
        for each in began:
            each.result()
    while feed(database):
        work(database, "one", lambda item: b"[1,2]")
        for stage in ("two", "three"):
            work(database, stage)
        held = database.held((0, 0, 0), LATER_MS, 1_000)[0]
        database.record([ItemEnd("", b"[1,2]", number=each.number) for each in held], START_MS)
    held = database.held((0, 0, 0), LATER_MS, 1_000)[0]
    while held:
        database.record([ItemEnd("", b"[1,2]", number=each.number) for each in held], START_MS)
        feed(database)
        held = database.held((0, 0, 0), LATER_MS, 1_000)[0]
    assert [stage.succeeded for stage in database.status(flow_id).stages] == [20, 40, 40]


def test_a_retry_that_breaks_off_changes_nothing(database: FlowDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    flow_id = flow_of(database, ONE, TWO, items=2, sealed=["one"], on_complete=CALLBACK)
    work(database, "one", lambda item: b"1")
    work(database, "two")
    before = database.status(flow_id), items_of(database, flow_id), taken(database)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(retries, "count", dies)
    with pytest.raises(KeyboardInterrupt):
        retry(database, flow_id, before[1][0].number, and_follows=True)
    assert (database.status(flow_id), items_of(database, flow_id), taken(database)) == before
    monkeypatch.undo()
    assert retry(database, flow_id, before[1][0].number, and_follows=True).removed == 1


def test_many_are_retried_in_steps_and_what_fails_again_meanwhile_is_left(
    database: FlowDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "AT_ONCE", 3)
    flow_id = flow_of(database, ONE, items=7, sealed=["one"])
    fail_all(database)
    steps = []
    while not steps or not steps[-1].is_last:
        steps.append(retry(database, flow_id))
        numbers = [each.number for each in feed(database)]
        ends = [ItemEnd("", None, f"again{number}", number=number) for number in numbers]
        database.record(ends, LATER_MS + 1)
    assert [each.retried for each in steps] == [3, 3, 1]


def test_a_flow_whose_time_is_over_is_not_there(database: FlowDatabase) -> None:
    flow_id = flow_of(database, ONE, items=1, sealed=["one"], ttl_ms=10)
    fail_all(database)
    with pytest.raises(FlowNotFound):
        retry(database, flow_id)


def test_a_flow_that_was_opened_again_is_removed_whole(database: FlowDatabase, url: str) -> None:
    flow_id = flow_of(database, ONE, items=1, sealed=["one"])
    fail_all(database)
    retry(database, flow_id)
    assert database.delete(flow_id, 10)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        assert connection.execute(sa.select(REOPENED_FLOWS)).all() == []


def test_a_database_of_before_is_upgraded(url: str) -> None:
    with opened(url) as database:
        flow_id = flow_of(database, ONE, items=1, sealed=["one"], on_complete=CALLBACK)
        fail_all(database)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE flow_reopened"))
        connection.execute(sa.text("UPDATE flow_callback SET id = '0123456789abcdef'"))
    with opened(url) as database:
        assert database.status(flow_id).ends == 1
        assert [each.id for each in taken(database)] == ["0123456789abcdef"]
        assert retry(database, flow_id).retried == 1
        work(database, "one")
        assert [each.id for each in taken(database)] == [f"{flow_id}/2"]


def test_bounds_of_owners_count_what_was_removed(url: str) -> None:
    with opened(url, lambda owner: OwnerBounds(flow_items=3)) as database:
        flow_id = flow_of(database, ONE, TWO, items=1, sealed=["one"], owner="anna")
        work(database, "one", lambda item: b"[1,2]")
        (root,) = (each.number for each in items_of(database, flow_id, "one"))
        retry(database, flow_id, root, and_follows=True)
        work(database, "one", lambda item: b"[1,2]")
        assert database.status(flow_id).troubles == []
        assert database.counts_of("anna").items == 3
        assert database.add(flow_of(database, ONE), "one", [NewItem(b"1")], START_MS)


# -- at a server -------------------------------------------------------------------------------------------------------


async def test_each_end_is_told_once_more_with_its_number(service: AsyncService) -> None:
    root = service.stage("root", max_failures=1)
    callback = CompletionCallback(service.queue("done"))
    flow_id = await service.start(root, items=given(1, 2), on_complete=callback)
    (first,) = await service.take(root)
    await service.succeed(root, [first], "one")
    for _ in range(2):
        await service.fail(root, await service.take(root))
    for end in (1, 2, 3):
        over = await service.over(flow_id)
        assert (over.ends, over.stages[0].failed) == (end, 1 if end < 3 else 0)
        (job,) = await service.take(callback.queue)
        assert payload_of(job)["flow"]["end"] == end
        await service.succeed(callback.queue, [job])
        assert over.callback is not None
        assert over.callback.id == f"{flow_id}/{end}"
        if end == 3:
            break
        came = await service.client.retry_flow_items(flow_id, failed=True)
        assert (came.retried, came.flow.state, came.flow.completed_ms) == (1, FlowState.RUNNING, None)
        if end == 1:
            for _ in range(2):  # each as soon as the one before has failed: the round has all its attempts
                await service.fail(root, await service.take(root))
        else:
            await service.succeed(root, await service.take(root), "two")
    assert [item.result for item in await service.items(flow_id)] == [b'"one"', b'"two"']
    assert len((await service.items(flow_id))[1].failures) == 4


async def test_what_runs_below_a_retried_item_is_asked_to_stop(service: AsyncService) -> None:
    root, below = service.stage("root"), service.stage("below", "root")
    flow_id = await service.start(root, below, items=given(1))
    await service.do(root)
    (runs,) = await service.take(below)
    (item,) = await service.items(flow_id, root)
    came = await service.client.retry_flow_items(flow_id, [item.number], and_follows=True)
    assert (came.retried, came.removed) == (1, 1)
    (beat,) = await service.client.heartbeat(below.queue, [Heartbeat(runs.descriptor, runs.claim_descriptor)])
    assert beat.outcome is HeartbeatOutcome.CANCEL
    await service.succeed(below, [runs], "of before")  # whoever had it: it is no item's any more
    assert await service.items(flow_id, below) == []
    await service.do(root)
    await service.do(below)
    assert (await service.over(flow_id)).stages[1].succeeded == 1


async def test_retries_wait_until_every_live_server_knows_them(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as at:
        api = at.at.service
        flow_id = (await api.create_flow(NewFlow("payroll", [ONE], items={"one": given(1)}))).id
        at.flows.unaware_of_retries = lambda: ["old/1"]
        with pytest.raises(FlowsUnavailable, match="server old/1 is of a version that retries no items") as refused:
            await api.retry_flow_items(flow_id, failed=True)
        assert refused.value.retryable
        at.flows.unaware_of_retries = list
        assert (await api.retry_flow_items(flow_id, failed=True)).retried == 0
