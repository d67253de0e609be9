"""Searches by conditions over two shards, and changes of all that they find."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pinlater.errors import ContinuationInvalid, PriorityNotSupported, QueueNotFound, RequestInvalid
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Ack,
    AuditEntry,
    ExtendedJob,
    Job,
    JobAction,
    JobInfo,
    JobsChanged,
    JobState,
    RequestContext,
)
from pinlater.model.job_selection import FoundJobsChange, JobPhase, JobSelection, TextCondition
from pinlater.service import ClaimTokens, Service
from tests.conformance.served import QUEUE, START_MS, Served
from tests.conformance.test_service_queries import place

ALL = JobSelection(QUEUE)


def selected(*phases: JobPhase, **fields: Any) -> JobSelection:
    return JobSelection(QUEUE, phases or None, **fields)


def matching(*regexes: str, is_not: bool = False) -> list[TextCondition]:
    return [TextCondition(regex, is_not) for regex in regexes]


async def found(served: Served, selection: JobSelection, limit: int = 100, **fields: Any) -> list[JobInfo]:
    """All pages of a search."""
    jobs: list[JobInfo] = []
    continuation = CONTINUATION_START
    for _ in range(1_000):
        page = await served.api.search_jobs(selection, limit=limit, continuation=continuation, **fields)
        assert len(page.jobs) <= limit
        assert page.missing_shards == []
        jobs += page.jobs
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            return jobs
    pytest.fail("the search never came to an end")


async def bodies(served: Served, selection: JobSelection, limit: int = 100) -> list[bytes]:
    return sorted(info.body or b"" for info in await found(served, selection, limit, include_body=True))


async def one_of_each_phase(served: Served) -> dict[JobPhase, str]:
    """Jobs whose bodies are the names of their phases, and whose statuses say them too."""
    context = served.context

    async def put(phase: JobPhase, **fields: Any) -> str:
        job = ExtendedJob(phase.name.encode(), custom_status=f"was {phase.name.lower()}\n", **fields)
        (descriptor,) = await served.enqueue(job)
        return descriptor

    names: dict[JobPhase, str] = {}
    for phase in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED, JobPhase.IN_PROGRESS):
        names[phase] = await put(phase)
        (job,) = await served.dequeue(1)
        if phase is JobPhase.SUCCEEDED:
            await served.api.ack(QUEUE, [Ack(job.descriptor)], [], context=context)
        elif phase is JobPhase.FAILED:
            await served.api.ack(QUEUE, [], [Ack(job.descriptor, permanent=True)], context=context)
        elif phase is JobPhase.CANCELLED:
            await served.api.cancel(QUEUE, [job.descriptor], running=True, context=context)
            await served.api.ack(QUEUE, [], [Ack(job.descriptor)], context=context)
    names[JobPhase.READY] = await put(JobPhase.READY, serialize_key="k")
    names[JobPhase.WAITING] = await put(JobPhase.WAITING, serialize_key="k")
    names[JobPhase.SCHEDULED] = await put(JobPhase.SCHEDULED, run_after_ms=START_MS + 60_000)
    return names


async def test_each_phase_is_found_apart_and_all_together(served: Served) -> None:
    names = await one_of_each_phase(served)
    for phase, descriptor in names.items():
        assert [info.descriptor for info in await found(served, selected(phase))] == [descriptor], phase
    assert {info.descriptor for info in await found(served, ALL, 2)} == set(names.values())
    either = [JobPhase.WAITING, JobPhase.FAILED, JobPhase.SCHEDULED]
    assert {info.descriptor for info in await found(served, selected(*either), 1)} == {names[each] for each in either}


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_show_every_job_once_what_is_due_first_and_the_newest_of_it(served: Served, limit: int) -> None:
    for number in range(12):
        await served.enqueue(Job(b"", 1 + number % 3, run_after_ms=START_MS - number // 4), Job(b""))
        await served.enqueue(Job(b"", run_after_ms=START_MS + 1 + number % 2))
    for job in await served.dequeue(10):
        await served.api.ack(QUEUE, [Ack(job.descriptor)], [], context=served.context)
    jobs = await found(served, ALL, limit)
    assert [(info.run_after_ms > START_MS, place(info)) for info in jobs] == sorted(
        (info.run_after_ms > START_MS, place(info)) for info in jobs
    )
    assert len({info.descriptor for info in jobs}) == len(jobs) == 36
    assert {info.state for info in jobs} == {JobState.PENDING, JobState.SUCCEEDED}


async def test_a_status_is_searched_and_no_body_comes_unless_it_is_asked_for(served: Served) -> None:
    await served.enqueue(
        Job(b"1", custom_status="attempt 1 of 2: ValueError: no (a.py:1)\nümlaut"),
        Job(b"2", custom_status="attempt 1 of 2: KeyError: 'x'"),
        Job(b"3"),
    )
    assert await bodies(served, selected(status_conditions=matching("(?m)^attempt 1 .*Error"))) == [b"1", b"2"]
    assert await bodies(served, selected(status_conditions=matching("ü"))) == [b"1"]
    assert await bodies(served, selected(status_conditions=matching("Error", "Key"))) == [b"2"]
    assert await bodies(served, selected(status_conditions=matching("Key", is_not=True))) == [b"1", b"3"]
    assert await bodies(served, selected(status_conditions=matching("^$"))) == [b"3"]
    (info,) = await found(served, selected(status_conditions=matching("Value")))
    assert info.body is None


async def test_conditions_on_bodies_and_statuses_hold_together(served: Served) -> None:
    for number in range(20):
        await served.enqueue(Job(b"number %02d" % number, custom_status="odd" if number % 2 else "even"))
    both = selected(body_conditions=matching("1[0-9]$"), status_conditions=matching("odd"))
    assert await bodies(served, both, 2) == [b"number %02d" % number for number in range(11, 20, 2)]
    both = replace(both, body_conditions=matching("1[0-9]$", is_not=True))
    assert await bodies(served, both, 2) == [b"number %02d" % number for number in range(1, 10, 2)]


async def test_times_attempts_and_keys_are_conditions(served: Served) -> None:
    await served.enqueue(Job(b"old", attempts_allowed=5))
    served.clock.tick(1_000)
    (job,) = await served.dequeue(1)
    await served.enqueue(ExtendedJob(b"named", dedupe_key="n-1"))
    await served.enqueue(ExtendedJob(b"ordered", serialize_key="s-1"))
    served.clock.tick(1_000)
    await served.api.ack(QUEUE, [], [Ack(job.descriptor, retry_delay_ms=5)], context=served.context)
    assert await bodies(served, selected(created_before_ms=START_MS + 1)) == [b"old"]
    assert await bodies(served, selected(created_before_ms=START_MS)) == []
    assert await bodies(served, selected(created_after_ms=START_MS + 1_000)) == [b"named", b"ordered"]
    assert await bodies(served, selected(created_after_ms=START_MS + 1_001)) == []
    assert await bodies(served, selected(updated_after_ms=START_MS + 2_000)) == [b"old"]
    assert await bodies(served, selected(updated_before_ms=START_MS + 2_000)) == [b"named", b"ordered"]
    assert await bodies(served, selected(ended_after_ms=0)) == []
    assert await bodies(served, selected(min_attempts=1)) == [b"old"]
    assert await bodies(served, selected(max_attempts=0)) == [b"named", b"ordered"]
    assert await bodies(served, selected(min_attempts=2)) == []
    assert await bodies(served, selected(dedupe_key="n-1")) == [b"named"]
    assert await bodies(served, selected(serialize_key="s-1")) == [b"ordered"]
    assert await bodies(served, selected(dedupe_key="n-1", serialize_key="s-1")) == []
    (done,) = await served.dequeue(1)
    served.clock.tick(1_000)
    await served.api.ack(QUEUE, [Ack(done.descriptor)], [], context=served.context)
    assert await bodies(served, selected(ended_after_ms=START_MS + 3_000)) == [done.body]
    assert await bodies(served, selected(ended_before_ms=START_MS + 3_000)) == []


async def test_priorities_are_conditions(served: Served) -> None:
    await served.enqueue(*[Job(b"%d" % priority, priority) for priority in (1, 2, 3)])
    assert await bodies(served, selected(priorities=(3, 1))) == [b"1", b"3"]
    assert await bodies(served, ALL) == [b"1", b"2", b"3"]


async def test_only_jobs_that_are_named_are_looked_at_where_some_are(served: Served) -> None:
    names = await one_of_each_phase(served)
    named = [names[JobPhase.FAILED], names[JobPhase.SCHEDULED], f"other:s1:p1:{10**15}", "nonsense"]
    page = await served.api.search_jobs(selected(descriptors=named), include_body=True)
    assert sorted(info.body or b"" for info in page.jobs) == [b"FAILED", b"SCHEDULED"]
    assert (page.looked_at, page.continuation) == (4, CONTINUATION_END)
    assert await bodies(served, selected(JobPhase.FAILED, descriptors=named)) == [b"FAILED"]
    assert await bodies(served, selected(descriptors=named, status_conditions=matching("sched"))) == [b"SCHEDULED"]
    assert await bodies(served, selected(descriptors=named, body_conditions=matching("FAIL"))) == [b"FAILED"]
    assert await bodies(served, selected(descriptors=named, priorities=(2,))) == []


async def test_a_search_goes_on_through_pages_in_which_nothing_is_found(tight: Served) -> None:
    for number in range(30):
        await tight.enqueue(Job(b"%d" % number, custom_status="x" if number == 3 else ""), Job(b"other"))
    looked_at = 0
    continuation = CONTINUATION_START
    names = []
    while True:
        page = await tight.api.search_jobs(
            selected(status_conditions=matching("x")), max_ms=1, continuation=continuation
        )
        looked_at += page.looked_at
        names += [info.descriptor for info in page.jobs]
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            break
    assert (looked_at, len(names)) == (60, 1)


async def test_bodies_beyond_a_page_of_them_are_left_out_but_for_the_first(tight: Served) -> None:
    await tight.enqueue(*[Job(bytes(900)) for _ in range(20)])
    names, continuation = [], CONTINUATION_START
    while True:
        page = await tight.api.search_jobs(ALL, include_body=True, continuation=continuation)
        assert all((info.body is None) is (info.body_left_out is True) for info in page.jobs)
        with_bodies = [info for info in page.jobs if info.body is not None]
        assert len(with_bodies) == min(2, len(page.jobs))
        assert with_bodies == page.jobs[:2]
        names += [info.descriptor for info in page.jobs]
        continuation = page.continuation
        if continuation == CONTINUATION_END:
            break
    assert len(set(names)) == len(names) == 20


async def test_a_continuation_works_only_with_its_own_search(served: Served) -> None:
    await served.spread()
    wanted = selected(JobPhase.READY, JobPhase.FAILED, status_conditions=matching("x*"))
    page = await served.api.search_jobs(wanted, limit=1)
    same = replace(wanted, phases=[JobPhase.FAILED, JobPhase.READY])
    assert (await served.api.search_jobs(same, continuation=page.continuation)).jobs
    for other in (
        replace(wanted, phases=[JobPhase.READY]),
        replace(wanted, status_conditions=matching("x*", is_not=True)),
        replace(wanted, status_conditions=[], body_conditions=matching("x*")),
        replace(wanted, created_after_ms=0),
        replace(wanted, dedupe_key="x"),
        replace(wanted, priorities=[1]),
    ):
        with pytest.raises(ContinuationInvalid):
            await served.api.search_jobs(other, continuation=page.continuation)
    for text in ("", "1", "-1", "0.-.0.0", "🦆"):
        with pytest.raises(ContinuationInvalid):
            await served.api.search_jobs(wanted, continuation=text)
    retry = FoundJobsChange(selected(JobPhase.READY), JobAction.DELETE, continuation=page.continuation)
    with pytest.raises(ContinuationInvalid):
        await served.api.change_found_jobs(retry)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (JobSelection("nowhere"), QueueNotFound),
        (JobSelection("a b"), QueueNotFound),
        (selected(priorities=(9,)), PriorityNotSupported),
        (selected(status_conditions=matching("(")), RequestInvalid),
        (selected(status_conditions=matching("")), RequestInvalid),
        (selected(body_conditions=matching("(?=x)")), RequestInvalid),
        (selected(status_conditions=matching(*["x"] * 21)), RequestInvalid),
        (selected(created_after_ms=-1), RequestInvalid),
        (selected(ended_before_ms=2**53), RequestInvalid),
        (selected(dedupe_key="x" * 256), RequestInvalid),
        (selected(descriptors=["x"] * 1_001), RequestInvalid),
        (selected(min_attempts=-1), RequestInvalid),
        (selected(max_attempts=2**31), RequestInvalid),
    ],
)
async def test_a_selection_that_is_none_is_refused(served: Served, wrong: JobSelection, error: type[Exception]) -> None:
    with pytest.raises(error):
        await served.api.search_jobs(wrong)
    with pytest.raises(error):
        await served.api.change_found_jobs(FoundJobsChange(replace(wrong, phases=[JobPhase.READY]), JobAction.DELETE))
    for fields in ({"limit": 0}, {"max_ms": 0}):
        with pytest.raises(RequestInvalid):
            await served.api.search_jobs(ALL, **fields)


# -- changing what is found --------------------------------------------------------------------------------------------


async def changed(served: Served, change: FoundJobsChange) -> list[JobsChanged]:
    """All slices of a run."""
    slices = []
    for _ in range(1_000):
        slices.append(await served.api.change_found_jobs(change, context=served.context))
        change = replace(change, continuation=slices[-1].continuation)
        if change.continuation == CONTINUATION_END:
            return slices
    pytest.fail("the run never came to an end")


async def failed_jobs(served: Served, amount: int, status: Callable[[int], str]) -> None:
    for number in range(amount):
        await served.enqueue(Job(b"%d" % number))
    served.clock.tick(1)
    jobs = await served.dequeue(amount)
    acks = [Ack(job.descriptor, status(int(job.body)), permanent=True) for job in jobs]
    await served.api.ack(QUEUE, [], acks, context=served.context)
    served.clock.tick(1)


async def entries(served: Served) -> list[AuditEntry]:
    """What this caller did; the store knows of other tests too."""
    return [each for each in await served.api.audit(limit=1_000) if each.who == served.context.source]


@pytest.fixture
def operated(served: Served) -> Served:
    """With a caller of its own."""
    served.context = RequestContext(f"operator-{secrets.token_hex(8)}")
    return served


async def test_jobs_are_retried_by_what_their_status_says(served: Served) -> None:
    await failed_jobs(served, 12, lambda number: "TimeoutError\n" if number % 3 else "ValueError\n")
    retry = FoundJobsChange(selected(status_conditions=matching("^Timeout")), JobAction.RETRY, limit=3, attempts=2)
    counted = await changed(served, replace(retry, dry_run=True))
    assert sum(each.changed for each in counted) == 8
    assert await served.count(JobState.FAILED) == 12
    assert sum(each.changed for each in await changed(served, retry)) == 8
    assert await served.count(JobState.FAILED) == 4
    assert all(info.attempts_remaining == 2 for info in await found(served, selected(JobPhase.READY)))
    assert len(await found(served, selected(JobPhase.FAILED, status_conditions=matching("Value")))) == 4


async def test_a_run_is_in_the_audit_where_it_begins_and_with_its_sum_where_it_ends(operated: Served) -> None:
    await failed_jobs(operated, 10, lambda number: "no\n")
    delete = FoundJobsChange(
        selected(JobPhase.FAILED, status_conditions=matching("no")), JobAction.DELETE, limit=2, note="after the outage"
    )
    assert sum(each.changed for each in await changed(operated, delete)) == 10
    operated.clock.tick(1)
    end, begin = await entries(operated)
    assert (begin.action, begin.target, begin.who) == ("delete_jobs", QUEUE, operated.context.source)
    assert begin.detail == "begins: 2 jobs so far, FAILED, status matches no: after the outage"
    assert end.detail == "10 jobs, FAILED, status matches no: after the outage"


async def test_a_run_of_one_call_is_in_the_audit_once_and_a_dry_run_is_not(operated: Served) -> None:
    await failed_jobs(operated, 3, lambda number: "no\n")
    retry = FoundJobsChange(selected(JobPhase.FAILED), JobAction.RETRY)
    await changed(operated, replace(retry, dry_run=True))
    assert await entries(operated) == []
    await changed(operated, retry)
    (entry,) = await entries(operated)
    what, _, named = entry.detail.partition(", of ")
    retried = await found(operated, selected(JobPhase.READY))
    assert (what, sorted(named.split())) == ("3 jobs, FAILED", sorted(info.descriptor for info in retried))
    await changed(operated, replace(retry, selection=selected(JobPhase.FAILED, min_attempts=9)))
    assert len(await entries(operated)) == 1


async def test_a_run_that_is_stopped_is_in_the_audit_with_its_sum(operated: Served) -> None:
    await failed_jobs(operated, 10, lambda number: "no\n")
    delete = FoundJobsChange(selected(JobPhase.FAILED), JobAction.DELETE, limit=4)
    first = await operated.api.change_found_jobs(delete, context=operated.context)
    stop = replace(delete, continuation=first.continuation, limit=0, is_last=True)
    stopped = await operated.api.change_found_jobs(stop, context=operated.context)
    assert (stopped.changed, await operated.count(JobState.FAILED)) == (0, 6)
    end, _ = await entries(operated)
    assert end.detail == "4 jobs, stopped before its end, FAILED"
    goes_on = replace(delete, continuation=stopped.continuation, limit=100)
    assert (await operated.api.change_found_jobs(goes_on, context=operated.context)).changed == 6
    with pytest.raises(RequestInvalid):
        await operated.api.change_found_jobs(replace(delete, limit=0))


async def test_a_process_that_goes_on_with_a_run_of_another_one_notes_that(operated: Served) -> None:
    await failed_jobs(operated, 10, lambda number: "no\n")
    delete = FoundJobsChange(selected(JobPhase.FAILED), JobAction.DELETE, limit=4)
    first = await operated.api.change_found_jobs(delete, context=operated.context)
    own = operated.api
    other = Service(
        own.router,
        operated.clock,
        ClaimTokens("other", 1, START_MS),
        own.settings,
        queues=own.queues,
        schedules=own.schedules,
        tokens=own.tokens,
    )
    second = await other.change_found_jobs(replace(delete, continuation=first.continuation), context=operated.context)
    await other.change_found_jobs(replace(delete, continuation=second.continuation), context=operated.context)
    details = [each.detail for each in await entries(operated)]
    assert sorted(details) == [
        "10 jobs, FAILED",
        "begins: 4 jobs so far, FAILED",
        "goes on here: 8 jobs so far, FAILED",
    ]


async def test_a_cancel_asks_running_jobs_to_stop_only_where_it_says_so(served: Served) -> None:
    await served.enqueue(Job(b"running", custom_status="x"))
    await served.dequeue(1)
    await served.enqueue(Job(b"ready", custom_status="x"), Job(b"later", run_after_ms=START_MS + 9))
    with_x = selected(status_conditions=matching("x"))
    (done,) = await changed(served, FoundJobsChange(with_x, JobAction.CANCEL))
    assert (done.changed, done.asked_to_stop) == (1, 0)
    (done,) = await changed(served, FoundJobsChange(with_x, JobAction.CANCEL, stops_running=True))
    assert (done.changed, done.asked_to_stop) == (0, 1)
    (info,) = await found(served, selected(JobPhase.IN_PROGRESS))
    assert info.cancel_requested_by == served.context.source
    assert await bodies(served, ALL) == [b"later", b"running"]


async def test_jobs_that_are_named_are_changed_whatever_phase_the_action_takes(operated: Served) -> None:
    names = await one_of_each_phase(operated)
    everything = selected(descriptors=list(names.values()))
    (done,) = await changed(operated, FoundJobsChange(everything, JobAction.RETRY))
    assert (done.changed, done.looked_at) == (2, 7)
    (done,) = await changed(operated, FoundJobsChange(everything, JobAction.CANCEL))
    assert done.changed == 5
    assert {info.descriptor for info in await found(operated, ALL)} == {
        names[JobPhase.SUCCEEDED],
        names[JobPhase.IN_PROGRESS],
    }
    (done,) = await changed(operated, FoundJobsChange(everything, JobAction.DELETE))
    assert (done.changed, await found(operated, ALL)) == (2, [])
    assert any("of 7 that were named" in each.detail for each in await entries(operated))


async def test_what_was_stopped_is_retried_only_by_name_and_several_phases_are_deleted_at_once(served: Served) -> None:
    await one_of_each_phase(served)
    assert [done.changed for done in await changed(served, FoundJobsChange(ALL, JobAction.RETRY))] == [1]
    stopped = FoundJobsChange(selected(JobPhase.CANCELLED), JobAction.RETRY)
    assert [done.changed for done in await changed(served, stopped)] == [1]
    delete = FoundJobsChange(selected(JobPhase.SUCCEEDED, JobPhase.WAITING, JobPhase.SCHEDULED), JobAction.DELETE)
    assert sum(done.changed for done in await changed(served, delete)) == 3
    assert await bodies(served, ALL) == [b"CANCELLED", b"FAILED", b"IN_PROGRESS", b"READY"]


NOTHING: dict[str, dict[str, Any]] = {
    "phases": {"phases": []},
    "priorities": {"priorities": []},
    "descriptors": {"descriptors": []},
    "dedupe_key": {"dedupe_key": ""},
    "serialize_key": {"serialize_key": ""},
    "others_too": {"priorities": [1], "dedupe_key": "k", "descriptors": []},
}


@pytest.mark.parametrize("fields", NOTHING.values(), ids=NOTHING)
async def test_an_empty_list_and_an_empty_key_select_nothing_for_every_action(
    served: Served, fields: dict[str, Any]
) -> None:
    before = await one_of_each_phase(served)
    nothing = JobSelection(QUEUE, **fields)
    page = await served.api.search_jobs(nothing)
    assert (page.jobs, page.looked_at, page.continuation) == ([], 0, CONTINUATION_END)
    for action in JobAction:
        for dry_run in (True, False):
            change = FoundJobsChange(nothing, action, dry_run=dry_run, stops_running=action is JobAction.CANCEL)
            done = await served.api.change_found_jobs(change, context=served.context)
            assert (done.changed, done.asked_to_stop, done.samples) == (0, 0, [])
            assert done.continuation == CONTINUATION_END
    assert {info.descriptor for info in await found(served, ALL)} == set(before.values())


@pytest.mark.parametrize(
    ("action", "phases", "fields"),
    [
        (JobAction.RETRY, [JobPhase.READY], {}),
        (JobAction.CANCEL, [JobPhase.IN_PROGRESS], {}),
        (JobAction.REPLAY, [JobPhase.SUCCEEDED], {}),
        (JobAction.DELETE, [], {}),
        (JobAction.RETRY, [], {"stops_running": True}),
        (JobAction.DELETE, [JobPhase.READY], {"attempts": 2}),
        (JobAction.CANCEL, [], {"run_after_ms": START_MS}),
        (JobAction.RETRY, [], {"attempts": 0}),
        (JobAction.RETRY, [], {"limit": 0}),
        (JobAction.RETRY, [], {"max_ms": 0}),
        (JobAction.RETRY, [], {"note": "x" * 501}),
    ],
)
async def test_what_an_action_does_not_take_is_refused(
    served: Served, action: JobAction, phases: list[JobPhase], fields: dict[str, Any]
) -> None:
    with pytest.raises(RequestInvalid):
        await served.api.change_found_jobs(FoundJobsChange(selected(*phases), action, **fields))


async def test_jobs_that_come_or_fail_while_a_run_goes_on_are_left_alone(served: Served) -> None:
    await failed_jobs(served, 6, lambda number: "no\n")
    retry = FoundJobsChange(selected(JobPhase.FAILED), JobAction.RETRY, limit=2)
    first = await served.api.change_found_jobs(retry, context=served.context)
    served.clock.tick(5)
    jobs = await served.dequeue(2)
    acks = [Ack(job.descriptor, permanent=True) for job in jobs]
    await served.api.ack(QUEUE, [], acks, context=served.context)
    served.clock.tick(5)
    rest = await changed(served, replace(retry, continuation=first.continuation))
    assert sum(each.changed for each in rest) == 4
    assert await served.count(JobState.FAILED) == 2
