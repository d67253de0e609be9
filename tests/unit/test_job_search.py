"""Searches over many queues and runs over what they find, on a whole service over stores in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pinlater.dashboard import bulk_runs, job_search
from pinlater.dashboard.bulk_runs import BulkRun, BulkRuns, RunState, try_run
from pinlater.dashboard.job_search import JobSearch, SearchedPage, read_cursor
from pinlater.errors import Draining, NothingStored, Overloaded, RequestInvalid
from pinlater.job_filters import bulk_order
from pinlater.job_filters.bulk_order import ACTIONS, RunOrder
from pinlater.job_filters.filter_parser import FilterError, parse_filter
from pinlater.job_filters.meant_queues import MeantQueues
from pinlater.model import Ack, DequeueRequest, ExtendedJob, Job, JobFilter, JobState, LevelView, QueueStatus
from pinlater.model.job_selection import JobPhase
from pinlater.service import ServiceSettings
from tests.unit.stand import ME, Stand, stand

PAGES = ServiceSettings(page_jobs=50)


async def statuses(at: Stand, names: Sequence[str]) -> list[QueueStatus]:
    """As a cluster counts them."""
    found = []
    for name in names:
        levels = []
        for priority in (1, 2, 3):
            counts = {
                (state, later): await at.service.count(JobFilter(name, state, priority, later))
                for state in JobState
                for later in (False, True)
            }
            levels.append(
                LevelView(
                    priority,
                    counts[JobState.PENDING, False],
                    counts[JobState.PENDING, True],
                    counts[JobState.IN_PROGRESS, False],
                    counts[JobState.SUCCEEDED, False],
                    counts[JobState.FAILED, False],
                )
            )
        found.append(QueueStatus(name, at.clock.now_ms(), levels))
    return found


async def search(
    at: Stand, text: str, queues: Sequence[QueueStatus], sees: Callable[[str], bool] = lambda queue: True
) -> JobSearch:
    return JobSearch(at.service, ME, parse_filter(text), queues, at.clock.now_ms(), sees)


async def all_pages(at: Stand, text: str, names: Sequence[str], limit: int = 7, **fields: Any) -> list[SearchedPage]:
    queues = await statuses(at, names)
    pages = []
    cursor = ""
    for _ in range(500):
        page = await (await search(at, text, queues, **fields)).page(cursor, limit)
        assert len(page.jobs) <= limit + 1
        assert len(page.cursor) <= job_search.MAX_CURSOR
        pages.append(page)
        cursor = page.cursor
        if not cursor:
            return pages
    pytest.fail("the search never came to an end")


async def filled(at: Stand, names: Sequence[str], amount: int) -> None:
    """Jobs of one second each, in turn over the queues."""
    for name in names:
        await at.service.create_queue(name)
    for number in range(amount):
        at.clock.tick(1_000)
        for place, name in enumerate(names):
            status = "TimeoutError\n" if number % 5 == 0 else ""
            body = b"%d of %d" % (number, place)
            await at.service.enqueue(name, [Job(body, 1 + number % 3, custom_status=status)])


def descriptors(pages: Sequence[SearchedPage]) -> list[str]:
    return [job.descriptor for page in pages for job in page.jobs]


async def test_jobs_of_all_queues_are_merged_newest_first_and_each_is_shown_once() -> None:
    names = [f"q{number}" for number in range(6)]
    async with stand(2, settings=PAGES) as at:
        await filled(at, names, 10)
        pages = await all_pages(at, "", names)
        shown = descriptors(pages)
        times = [job.run_after_ms for page in pages for job in page.jobs]
        assert times == sorted(times, reverse=True)
        assert len(shown) == len(set(shown)) == 60
        assert pages[0].of_about == 60


async def test_more_queues_than_a_group_are_searched_group_after_group() -> None:
    names = [f"q{number:03}" for number in range(job_search.GROUP * 2 + 5)]
    async with stand(settings=PAGES) as at:
        await filled(at, names, 2)
        shown = descriptors(await all_pages(at, "", names, 13))
        assert len(shown) == len(set(shown)) == 2 * len(names)


async def test_a_filter_chooses_queues_states_and_texts() -> None:
    names = ["mail", "mail-out", "sms"]
    async with stand(settings=PAGES, queue="other") as at:
        await filled(at, names, 10)
        assert len(descriptors(await all_pages(at, "queue:mail*", names))) == 20
        assert len(descriptors(await all_pages(at, "-queue:mail", names))) == 20
        assert len(descriptors(await all_pages(at, "status:timeout", names))) == 6
        assert len(descriptors(await all_pages(at, 'body:~"^3 of" queue:sms', names))) == 1
        assert descriptors(await all_pages(at, "state:failed", names)) == []
        assert len(descriptors(await all_pages(at, "-priority:1", names))) == 18
        (first, *_) = descriptors(await all_pages(at, "queue:sms", names))
        assert descriptors(await all_pages(at, f"id:{first} status:nothing", names)) == []
        assert descriptors(await all_pages(at, first, names)) == [first]


async def test_counts_are_of_the_queues_that_are_meant_and_of_every_state() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["mail2", "sms"], 9)
        for job in await at.service.dequeue(DequeueRequest("sms", 4), context=ME):
            await at.service.ack("sms", [], [Ack(job.descriptor, permanent=True)], context=ME)
        found = await search(at, "state:failed", await statuses(at, ["mail2", "sms"]))
        assert (found.counts[JobPhase.READY], found.counts[JobPhase.FAILED]) == (14, 4)
        assert (found.by_queue, found.of_about) == ({"sms": 4}, 4)
        one = await search(at, "queue:sms priority:1", await statuses(at, ["mail2", "sms"]))
        assert sum(one.counts.values()) == 3


async def test_a_search_ends_in_time_says_how_far_it_looked_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "WITHIN_S", 0.0)
    monkeypatch.setattr(job_search, "LEAST_MS", 1)
    async with stand(settings=ServiceSettings(page_jobs=1)) as at:
        await filled(at, ["mail2"], 30)
        pages = await all_pages(at, 'body:"0 of 0"', ["mail2"])
        assert len(pages) > 1
        assert pages[0].is_over
        assert 0 < pages[0].examined < 30
        assert pages[-1].examined == 30
        assert len(descriptors(pages)) == 3


async def test_the_job_of_a_key_is_found_first_and_once() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["mail2"], 40)
        await at.service.enqueue("mail2", [ExtendedJob(b"named", dedupe_key="k")])
        at.clock.tick(10)
        shown = descriptors(await all_pages(at, "key:k", ["mail2"]))
        assert len(shown) == 1


async def test_a_queue_that_cannot_be_searched_is_named_and_the_others_are() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["mail2", "sms"], 3)
        (page, *_) = await all_pages(at, "body:0", ["mail2", "sms"], sees=lambda queue: queue != "sms")
        assert list(page.problems) == ["sms"]
        assert "hidden" in page.problems["sms"]
        assert len(page.jobs) == 3
        (gone,) = await all_pages(at, "queue:gone,sms", ["sms"])
        assert ("gone" in gone.problems, len(gone.jobs)) == (True, 3)
        queues = await statuses(at, ["sms"])
        at.stores[0].broken = NothingStored("away")
        away = await (await search(at, "queue:sms", queues)).page("", 5)
        assert (list(away.problems), away.cursor) == (["sms"], "")


async def test_a_pattern_that_is_none_is_an_error_of_the_filter() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["mail2"], 1)
        with pytest.raises(RequestInvalid):
            await all_pages(at, 'status:~"("', ["mail2"])


@pytest.mark.parametrize("text", ["", "x", "AAAA", "🦆", "eJwDAAAAAAE", "x" * 10_000])
def test_what_is_no_cursor_begins_anew(text: str) -> None:
    assert read_cursor(text) is None


async def test_a_cursor_of_another_filter_begins_anew() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["mail2"], 20)
        queues = await statuses(at, ["mail2"])
        page = await (await search(at, "", queues)).page("", 5)
        other = await (await search(at, "status:timeout", queues)).page(page.cursor, 50)
        assert len(other.jobs) == 4


FILTERS = {
    "": 15,
    "queue:a": 5,
    "queue:a,b": 10,
    "queue:a,b -queue:a": 5,
    "queue:a,b -queue:b*": 5,
    "queue:a*,b -queue:a": 5,
    "queue:a,nowhere -queue:nowhere": 5,
    "-queue:a": 10,
    "-queue:a,b,c": 0,
    "priority:1": 6,
    "-priority:1": 9,
    "-priority:1,2,3": 0,
    "queue:a -priority:1 priority:1,2": 2,
    "state:ready": 15,
    "-state:ready": 0,
    "state:pending,ended -state:ended": 15,
    "queue:a -state:failed status:timeout": 1,
    "status:timeout -status:timeout": 0,
    "attempts:<0": 0,
    "attempts:>2147483647": 0,
    "attempts:>5 attempts:<3": 0,
    "age:>1h age:<1m": 0,
    "key:nobody": 0,
    "id:{a}": 1,
    "id:{a} id:{b}": 2,
    "id:{a} id:{b} -queue:a": 1,
    "id:{a} queue:a,b": 1,
    "id:{a} id:b:s1:p1:1790000000000000": 1,
    "id:{a} priority:2,3": 0,
}
"""How many of fifteen jobs each means: five in a, b and c, of priorities 1, 2, 3, 1, 2."""


async def test_the_list_its_counts_the_question_and_the_run_agree_on_every_filter() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["a", "b", "c"], 5)
        (first, *_), (other, *_) = [descriptors(await all_pages(at, f"queue:{name}", [name])) for name in ("a", "b")]
        first = next(each for each in descriptors(await all_pages(at, "queue:a priority:1", ["a"])))
        for filter, amount in FILTERS.items():
            text = filter.format(a=first, b=other)
            queues = await statuses(at, ["a", "b", "c"])
            assert len(descriptors(await all_pages(at, text, ["a", "b", "c"]))) == amount, text
            listed = await search(at, text, queues)
            wanted = order("cancel", text)
            meant = MeantQueues(wanted.line, queues, wanted.phases())
            assert list(meant.by_queue) == list(listed.by_queue) or not amount, text
            if wanted.line.is_counted:
                assert (listed.of_about, sum(meant.by_queue.values())) == (amount, amount), text
            priorities = {name: meant.priorities_of(name) for name in meant.by_queue}
            asked = await try_run(at.service, ME, wanted, priorities, amount, at.clock.now_ms(), 60.0)
            assert (asked.matched, asked.is_all, asked.problems) == (amount, True, {}), text
        runs = BulkRuns(at.service)
        for text, left in (("queue:a,b -queue:a", 10), ("id:{a} id:{b}", 9), ("-priority:1 queue:a,c", 3), ("", 0)):
            wanted = order("cancel", text.format(a=first, b=other))
            meant = MeantQueues(wanted.line, await statuses(at, ["a", "b", "c"]), wanted.phases())
            await ended(begun(runs, wanted, list(meant.by_queue)))
            assert len(descriptors(await all_pages(at, "", ["a", "b", "c"]))) == left, text
        await runs.close()


@pytest.mark.parametrize(
    "text",
    [
        "queue:a -queue:a",
        "queue:a,b -queue:a,b",
        "queue:a,b -queue:*",
        "id:a:s1:p1:1790000000000000 -queue:a",
        "id:a:s1:p1:1790000000000000 queue:b",
        "priority:1 -priority:1",
        "state:failed -state:ended",
    ],
)
def test_a_filter_that_leaves_nothing_of_what_it_names_is_refused(text: str) -> None:
    with pytest.raises(FilterError, match="is left that a job could"):
        parse_filter(text)


# -- runs --------------------------------------------------------------------------------------------------------------


def order(word: str, text: str = "", **fields: Any) -> RunOrder:
    return RunOrder(ACTIONS[word], parse_filter(text), **fields)


async def fail_some(at: Stand, name: str, amount: int) -> None:
    jobs = await at.service.dequeue(DequeueRequest(name, amount), context=ME)
    acks = [Ack(job.descriptor, "attempt 1 of 2: KeyError: x\n", permanent=True) for job in jobs]
    await at.service.ack(name, [], acks, context=ME)
    at.clock.tick(10)


def begun(runs: BulkRuns, wanted: RunOrder, names: Sequence[str], of_about: int = 100, payer: str = "ada") -> BulkRun:
    queues: dict[str, Sequence[int]] = dict.fromkeys(names, (1, 2, 3))
    return runs.start(BulkRun(wanted, "ada", payer, "ada", ME, queues, of_about))


async def ended(run: BulkRun) -> BulkRun:
    for _ in range(2_000):
        if run.is_ended:
            return run
        await asyncio.sleep(0.005)
    pytest.fail(f"the run is still {run.state}")


async def test_a_run_goes_through_all_its_queues_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_order, "SLICE_JOBS", 4)
    async with stand(settings=PAGES) as at:
        await filled(at, ["a", "b"], 15)
        await fail_some(at, "a", 15)
        await fail_some(at, "b", 10)
        runs = BulkRuns(at.service)
        run = await ended(begun(runs, order("retry", "state:failed error:KeyError", note="why not"), ["a", "b"]))
        assert (run.state, run.changed, run.examined, run.share) == (RunState.DONE, 25, 25, 1.0)
        assert await at.service.count(JobFilter("a", JobState.FAILED)) == 0
        details = [(each.target, each.detail) for each in await at.service.audit()]
        assert Counter(target for target, _ in details if target in ("a", "b")) == {"a": 3, "b": 3}  # and its creation
        assert any("15 jobs" in detail and detail.endswith(": why not") for _, detail in details)
        await runs.close()


async def test_a_run_is_stopped_after_its_slice_and_the_audit_has_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_order, "SLICE_JOBS", 1)
    async with stand(settings=PAGES) as at:
        await filled(at, ["a"], 60)
        runs = BulkRuns(at.service)
        run = begun(runs, order("delete", "state:ready"), ["a"], 60)
        while run.changed < 3:
            await asyncio.sleep(0)
        runs.stop(run)
        assert (await ended(run)).state is RunState.STOPPED
        left = await at.service.count(JobFilter("a", JobState.PENDING))
        assert (run.changed + left, left > 0) == (60, True)
        details = [each.detail for each in await at.service.audit()]
        assert any(detail.startswith(f"{run.changed} jobs, stopped before its end") for detail in details)
        again = await ended(begun(runs, order("delete", "state:ready"), ["a"]))
        assert again.changed == left
        await runs.close()


async def test_runs_end_when_their_process_does_and_say_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_order, "SLICE_JOBS", 1)
    async with stand(settings=PAGES) as at:
        await filled(at, ["a"], 60)
        runs = BulkRuns(at.service)
        share = bulk_runs.AT_ONCE // 2
        working = [begun(runs, order("delete", "state:ready"), ["a"]) for _ in range(share + 2)]
        while not any(run.changed for run in working):
            await asyncio.sleep(0)
        assert [run.state for run in working[share:]] == [RunState.WAITING] * 2
        await runs.close()
        assert all(run.is_ended for run in working)
        assert any("the same filter goes on" in each.detail for each in await at.service.audit())
        with pytest.raises(Draining):
            begun(runs, order("delete", "state:ready"), ["a"])


async def test_runs_of_one_caller_neither_wait_nor_go_on_in_the_places_of_others() -> None:
    async with stand(settings=PAGES) as at:
        runs = BulkRuns(at.service)
        share = bulk_runs.AT_ONCE // 2 + bulk_runs.MAX_WAITING // 2
        mine = [begun(runs, order("delete", "state:ready"), ["mail"]) for _ in range(share)]
        with pytest.raises(Overloaded, match="this caller has 20 of 40 runs that wait already"):
            begun(runs, order("delete", "state:ready"), ["mail"])
        other = begun(runs, order("delete", "state:ready"), ["mail"], payer="bob")
        assert other.state is RunState.RUNNING
        for run in (*mine, other):
            await ended(run)
        assert [run.id for run in runs.all()] == [run.id for run in (other, *reversed(mine))]
        await runs.close()


async def test_the_runs_of_one_caller_push_no_others_out() -> None:
    async with stand(settings=PAGES) as at:
        runs = BulkRuns(at.service)
        calm = await ended(begun(runs, order("delete", "state:ready"), ["mail"], payer="bob"))
        for _ in range(bulk_runs.MAX_RUNS + 5):
            await ended(begun(runs, order("delete", "state:ready"), ["mail"]))
        assert runs.find(calm.id) is calm
        assert len(runs.all()) == bulk_runs.MAX_RUNS
        await runs.close()


async def test_a_queue_that_fails_is_named_and_the_others_are_done() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["a"], 3)
        runs = BulkRuns(at.service)
        run = await ended(begun(runs, order("cancel"), ["gone", "a"]))
        assert (run.state, run.changed, list(run.problems)) == (RunState.DONE, 3, ["gone"])
        only = await ended(begun(runs, order("cancel"), ["gone"]))
        assert only.state is RunState.FAILED
        await runs.close()


async def test_what_passes_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runs, "PAUSE_S", 0.001)
    async with stand(settings=PAGES) as at:
        await filled(at, ["a"], 3)
        at.stores[0].failures["scan"] = [NothingStored("busy")]
        runs = BulkRuns(at.service)
        run = await ended(begun(runs, order("cancel"), ["a"]))
        assert run.changed == 3
        await runs.close()


async def test_jobs_that_were_selected_are_changed_and_no_others() -> None:
    async with stand(settings=PAGES) as at:
        await filled(at, ["a"], 5)
        await fail_some(at, "a", 4)
        page = await at.service.scan(JobFilter("a", JobState.FAILED))
        chosen = tuple(info.descriptor for info in page.jobs[:2])
        runs = BulkRuns(at.service)
        run = await ended(begun(runs, order("retry", "queue:a", descriptors=chosen), ["a"], 2))
        assert (run.changed, await at.service.count(JobFilter("a", JobState.FAILED))) == (2, 2)
        await runs.close()


@pytest.mark.parametrize(
    ("word", "text", "phases"),
    [
        ("retry", "", [JobPhase.FAILED]),
        ("retry", "state:failed,cancelled", [JobPhase.FAILED, JobPhase.CANCELLED]),
        ("retry", "state:ready", []),
        ("retry", "-state:ready", [JobPhase.FAILED, JobPhase.CANCELLED]),
        ("cancel", "", [JobPhase.READY, JobPhase.SCHEDULED, JobPhase.WAITING]),
        ("cancel", "state:scheduled,failed", [JobPhase.SCHEDULED]),
        ("cancel", "state:running", []),
        ("delete", "", []),
        ("delete", "queue:a", []),
        ("delete", "state:succeeded", [JobPhase.SUCCEEDED]),
    ],
)
def test_an_action_means_no_more_than_it_takes_and_a_deletion_has_to_say_what(
    word: str, text: str, phases: list[JobPhase]
) -> None:
    wanted = order(word, text)
    assert wanted.phases() == phases
    assert bool(wanted.why_not()) is not bool(phases)
    change = wanted.change("a", 5, (1,)) if phases else None
    assert change is None or list(change.selection.phases) == phases


def test_what_runs_is_cancelled_only_where_that_is_asked_for() -> None:
    wanted = order("cancel", "state:running,ready", stops_running=True)
    assert wanted.phases() == [JobPhase.READY, JobPhase.IN_PROGRESS]
    change = wanted.change("a", 5, (1,))
    assert change is not None
    assert change.stops_running


async def test_a_try_counts_what_would_be_touched_as_far_as_it_looked() -> None:
    async with stand(settings=ServiceSettings(page_jobs=3)) as at:
        await filled(at, ["a", "b"], 20)
        wanted = order("cancel", "status:timeout")
        queues: dict[str, Sequence[int]] = {"a": (1, 2, 3), "b": (1, 2, 3)}
        found = await try_run(at.service, ME, wanted, queues, 40, at.clock.now_ms(), 5.0)
        assert (found.matched, found.examined, found.is_all) == (8, 40, True)
        cut = await try_run(at.service, ME, wanted, queues, 40, at.clock.now_ms(), 0.0)
        assert (cut.matched, cut.is_all) == (0, False)
        gone = await try_run(at.service, ME, wanted, {"gone": (1,)}, 0, at.clock.now_ms(), 5.0)
        assert (list(gone.problems), gone.is_all) == (["gone"], False)
        assert await at.service.count(JobFilter("a", JobState.PENDING)) == 20
