"""Jobs in memory with keys, expiry and results: the meaning of a server, with the waits dropped."""

from __future__ import annotations

import asyncio

import pytest

from pinlater import ExtendedJob, Job, JobFilter, KeyRef, RescheduleJob
from pinlater.errors import EnqueueRejected, QueueNotFound, RequestInvalid
from pinlater.model import AckOutcome, CancelOutcome, EnqueueOutcome, JobState, RescheduleOutcome
from pinlater_workers import App, JobCancelled, JobFailed, ResultGone, testing
from pinlater_workers.errors import NotPlayed
from pinlater_workers.jobs.context import StopReason, current
from pinlater_workers.jobs.outcome import Fail, Retry

app = App(servers=["127.0.0.1:1"])
ran: list[object] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@app.job(queue="reports", unique="{account}", unique_for="1h")
def report(account: str) -> None:
    ran.append(account)


@app.job(queue="ledger", serialize="{account}", attempts=2, retry=[5])
def book(account: str, what: str) -> None:
    if what == "fails once" and current().attempt == 1:
        raise Retry
    ran.append(what)


@app.job(queue="letters", serialize="{account}")
def write_to(account: str, what: str) -> None:
    ran.append(what)


@app.job(queue="sums", keep_result=True)
def add(one: int, other: int) -> int:
    return one + other


@app.job(queue="sums", keep_result=True)
async def fail(why: str) -> int:
    raise Fail(why)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_second_job_of_a_name_is_kept_while_the_first_is_live_and_for_its_window() -> None:
    with testing.in_memory(app) as jobs:
        first = report.enqueue("ada")
        assert (report.enqueue("ada"), report.enqueue("grace").outcome) == (first, EnqueueOutcome.STORED)
        assert report.enqueue("ada").outcome is EnqueueOutcome.KEPT
        jobs.run_all()
        assert ran == ["ada", "grace"]
        jobs.run_for(3_599)
        assert report.enqueue("ada") == first
        jobs.run_for(1)
        assert report.enqueue("ada") != first


def test_a_duplicate_may_replace_what_is_pending_or_be_rejected() -> None:
    with testing.in_memory(app) as jobs:
        first = report.options(delay="1h").enqueue("ada")
        again = report.options(on_duplicate="replace", delay="2h").enqueue("ada")
        assert (again, again.outcome) == (first, EnqueueOutcome.REPLACED)
        with pytest.raises(RequestInvalid, match="priority"):
            report.options(on_duplicate="replace", priority=2).enqueue("ada")
        with pytest.raises(EnqueueRejected) as rejected:
            report.options(on_duplicate="reject").enqueue("ada")
        assert (rejected.value.reason, rejected.value.job_descriptors) == ("DUPLICATE", [first])
        jobs.run_for(3_600)
        assert ran == []
        jobs.run_for(3_600)
        assert (ran, len(jobs.runs)) == (["ada"], 1)


def test_replacements_postpone_a_job_up_to_a_bound() -> None:
    with testing.in_memory(app) as jobs:
        newest = report.options(on_duplicate="replace", replace_within="10s", delay="8s")
        first = newest.enqueue("ada")
        jobs.run_for(5)
        assert newest.enqueue("ada") == first
        jobs.run_for(5)
        assert ran == ["ada"]


def test_a_job_that_is_enqueued_anew_while_it_runs_runs_again_behind_itself() -> None:
    @app.job(queue="sums", unique="{account}", on_duplicate="replace", replace_running="enqueue", attempts=5)
    def sync(account: str, version: int) -> None:
        ran.append(version)
        if version == 1:
            first = sync.enqueue(account, 2)
            again = sync.enqueue(account, 3)
            assert (again, again.outcome) == (first, EnqueueOutcome.REPLACED)
            raise Retry

    with testing.in_memory(app) as jobs:
        old = sync.enqueue("ada", 1)
        jobs.run_all()
        assert ran == [1, 3]
        info = old.info()
        assert info is not None
        assert (info.state, info.cancelled) == (JobState.FAILED, True)


def test_jobs_of_a_serialize_key_run_in_order_over_queues_and_wait_for_a_retry() -> None:
    with testing.in_memory(app) as jobs:
        book.enqueue("ada", "fails once")
        write_to.options(priority=1).enqueue("ada", "second")
        book.enqueue("ada", "third")
        other = write_to.enqueue("grace", "of another account")
        first, second, third, _ = jobs.runs
        assert (second.waits_for, third.waits_for, jobs.runs[3].waits_for) == (first, first, None)
        jobs.run_all()
        assert ran == ["of another account", "fails once", "second", "third"]
        assert other == jobs.runs[3].descriptor


def test_the_next_of_a_key_is_free_when_the_first_is_cancelled() -> None:
    with testing.in_memory(app) as jobs:
        first = book.options(delay="1d").enqueue("ada", "first")
        book.enqueue("ada", "second")
        jobs.run_for(60)
        assert ran == []
        assert first.cancel() is CancelOutcome.CANCELLED
        jobs.run_for(0)
        assert ran == ["second"]
        assert (first.cancel(), first.state()) == (CancelOutcome.NOT_FOUND, None)
        assert (jobs.runs[0].is_gone, jobs.runs[0].cancelled) == (True, True)


def test_a_job_is_not_run_after_its_expiry_and_frees_the_next() -> None:
    with testing.in_memory(app) as jobs:
        book.options(delay="1h").enqueue("ada", "first")
        late = book.options(expires="30m").enqueue("ada", "second")
        book.enqueue("ada", "third")
        jobs.run_all()
        assert ran == ["first", "third"]
        assert late.state() is JobState.FAILED
        assert "EXPIRED" in jobs.runs[1].status
        with pytest.raises(JobFailed, match="EXPIRED"):
            late.result()


# -- results, and other calls of handles -------------------------------------------------------------------------------


def test_who_waits_for_a_result_has_it_at_once() -> None:
    with testing.in_memory(app) as jobs:
        assert add.options(delay="1h").enqueue(1, 2).result() == 3
        assert jobs.runs[0].result == 3
        failing = fail.enqueue("no money")
        with pytest.raises(JobFailed, match="no money"):
            failing.result(timeout=60)
        gone = add.options(delay="1h").enqueue(1, 2)
        gone.cancel()
        with pytest.raises(ResultGone):
            gone.result()


def test_a_result_that_does_not_come_in_time_is_not_waited_for() -> None:
    with testing.in_memory(app) as jobs:
        began_ms = jobs.clock.now_ms()
        late = add.options(delay="1h").enqueue(1, 2)
        with pytest.raises(TimeoutError):
            late.result(timeout="30m")
        assert jobs.clock.now_ms() - began_ms == 1_800_000
        assert late.result(timeout="31m") == 3


def test_a_job_that_waits_for_another_one_is_told_that_one_runs_at_a_time() -> None:
    @app.job(queue="sums", name="waits_for_another", attempts=1)
    def waits() -> None:
        add.enqueue(1, 2).result()

    run = testing.run(waits)
    assert isinstance(run.errors[0], NotPlayed)
    assert "one runs at a time" in str(run.errors[0])


def test_a_pending_job_gets_another_time_body_and_attempts() -> None:
    with testing.in_memory(app) as jobs:
        handle = add.options(delay="1d").enqueue(1, 2)
        assert handle.reschedule(delay="1m", body=add.body(3, 4), attempts=7) is RescheduleOutcome.RESCHEDULED
        jobs.run_for(60)
        assert (handle.result(), jobs.runs[0].attempts_allowed) == (7, 7)
        assert handle.reschedule(delay="1m") is RescheduleOutcome.ENDED
        assert handle.info() is not None


async def test_handles_of_an_event_loop_are_played_too() -> None:
    with testing.in_memory(app):
        assert await (await add.enqueue_async(1, 2)).result() == 3
        with pytest.raises(JobFailed):
            await (await fail.enqueue_async("no money")).result()
        late = await add.options(delay="1h").enqueue_async(1, 2)
        assert await late.reschedule(delay="2h") is RescheduleOutcome.RESCHEDULED
        assert await late.cancel() is CancelOutcome.CANCELLED
        assert await late.state() is None


def test_time_does_not_go_on_to_when_a_job_was_due_that_is_gone_or_moved() -> None:
    with testing.in_memory(app) as jobs:
        began_ms = jobs.clock.now_ms()
        add.options(delay="1d").enqueue(1, 2).cancel()
        add.options(delay="2d").enqueue(1, 2).reschedule(delay="1m")
        jobs.run_all()
        assert jobs.clock.now_ms() - began_ms == 60_000


def test_results_and_jobs_are_kept_as_long_as_a_queue_keeps_them() -> None:
    with testing.in_memory(app) as jobs:
        first = report.options(unique_for="kept").enqueue("ada")
        handle = add.enqueue(1, 2)
        jobs.run_for(3_599)
        assert handle.result() == 3
        jobs.run_for(1)
        with pytest.raises(ResultGone, match="not kept, or no longer"):
            handle.result()
        jobs.run_for(86_400 - 3_600 - 1)
        assert (handle.state(), report.enqueue("ada")) == (JobState.SUCCEEDED, first)
        jobs.run_for(2)
        assert handle.state() is None
        assert report.enqueue("ada").outcome is EnqueueOutcome.STORED


def test_a_send_id_is_remembered_until_ten_minutes_after_the_end() -> None:
    with testing.in_memory(app) as jobs:
        job = ExtendedJob(add.body(1, 2), send_id="once")
        first = app.client.enqueue("sums", job)
        jobs.run_for(599)
        assert app.client.enqueue("sums", job) == first
        jobs.run_for(1)
        assert app.client.enqueue("sums", job) != first


async def test_clients_are_closed_by_a_block() -> None:
    with testing.in_memory(app) as jobs:
        async with app.connect() as client:
            await client.enqueue("sums", Job(add.body(1, 2)))
        with app.client as same:
            same.enqueue("sums", Job(add.body(1, 2)))
        assert len(jobs.pending) == 2


def test_a_job_that_stops_with_its_worker_spends_no_attempt() -> None:
    @app.job(queue="sums", name="stops_with_its_worker")
    def stops() -> None:
        jobs.tell = None
        current().raise_if_cancelled()

    with testing.in_memory(app) as jobs:
        jobs.tell = StopReason.STOPPING
        stops.enqueue()
        jobs.run_all()
    (run,) = jobs.runs
    assert (run.state, run.times, run.attempts, run.snoozes) == (JobState.SUCCEEDED, 2, 1, 0)


# -- jobs that run -----------------------------------------------------------------------------------------------------


def test_progress_is_what_the_job_said_last() -> None:
    @app.job(queue="sums", name="says_how_far")
    def says() -> None:
        current().progress(0.25, "a quarter")
        current().progress(0.5, "half")

    with testing.in_memory(app) as jobs:
        handle = says.enqueue()
        jobs.run_all()
        info = handle.info()
        assert info is not None
        assert info.progress is not None
        assert info.progress[:2] == (0.5, "half")


@pytest.mark.parametrize("ends", ["returns", "raises", "obeys"])
def test_a_running_job_is_asked_to_stop_and_only_a_success_counts_after_that(ends: str) -> None:
    @app.job(queue="sums", name=f"cancelled_and_{ends}")
    def stops() -> None:
        descriptor = current().descriptor
        assert app.client.cancel([descriptor]) == {descriptor: CancelOutcome.IN_PROGRESS}
        assert app.client.cancel([descriptor], running=True) == {descriptor: CancelOutcome.REQUESTED}
        assert (current().cancelled, current().cancel_reason) == (True, StopReason.CANCELLED)
        if ends == "raises":
            raise ValueError("oh")
        if ends == "obeys":
            current().raise_if_cancelled()

    with testing.in_memory(app) as jobs:
        handle = stops.enqueue()
        jobs.run_all()
        (run,) = jobs.runs
        if ends == "returns":
            assert (run.state, run.cancelled, handle.result()) == (JobState.SUCCEEDED, False, None)
            return
        assert (run.state, run.cancelled, run.times, run.attempts_remaining) == (JobState.FAILED, True, 1, 0)
        with pytest.raises(JobCancelled, match="cancelled"):
            handle.result()


async def test_a_coroutine_that_is_asked_to_stop_is_cancelled() -> None:
    @app.job(queue="sums", name="cancelled_coroutine")
    async def sleeps() -> None:
        await app.async_client().cancel([current().descriptor], running=True)
        await asyncio.Event().wait()
        ran.append("not reached")

    with testing.in_memory(app) as jobs:
        sleeps.enqueue()
        await jobs.run_all_async()
        assert (jobs.runs[0].state, jobs.runs[0].cancelled, ran) == (JobState.FAILED, True, [])
        sleeps.enqueue()
        await asyncio.to_thread(jobs.run_all)
        assert (jobs.runs[1].state, jobs.runs[1].cancelled, ran) == (JobState.FAILED, True, [])


# -- the client that jobs have -----------------------------------------------------------------------------------------


def test_calls_of_a_client_stay_in_memory() -> None:
    with testing.in_memory(app) as jobs:
        client = app.client
        one = client.enqueue("sums", Job(add.body(1, 2)), delay="1h")
        two, three = client.enqueue("sums", [Job(add.body(3, 4)), Job(add.body(5, 6))])
        named = report.enqueue("ada")
        assert client.queue_names() == {"reports", "ledger", "letters", "sums"}
        key = KeyRef(jobs.runs[3].dedupe_key)
        assert list(client.lookup("reports", keys=[key])) == [named]
        assert client.cancel("reports", keys=[key]).by_key == [CancelOutcome.CANCELLED]
        change = RescheduleJob(one, run_after_ms=jobs.clock.now_ms())
        assert client.reschedule("sums", [change]) == [RescheduleOutcome.RESCHEDULED]
        found = client.wait([one, two, three])
        assert [add.read_result(info.result) for info in found.values() if info and info.result] == [3, 7, 11]
        assert client.lookup([two], include_body=True)[two].body == add.body(3, 4)
        with pytest.raises(QueueNotFound):
            client.enqueue("nowhere", Job(b""))
        with pytest.raises(RequestInvalid, match="no descriptor"):
            client.lookup(["nonsense"])


def test_operators_calls_and_settings_of_queues_count() -> None:
    with testing.in_memory(app, queues=["dead"]) as jobs:
        client = app.client
        client.update_queue("sums", "", set={"max_result": "40", "dead_letter_queue": "dead", "paused": "true"})
        add.enqueue(1, 2)
        jobs.run_all()
        assert [run.state for run in jobs.runs] == [JobState.PENDING]
        assert client.count("sums", JobState.PENDING) == 1
        client.update_queue("sums", "", set={"paused": "false", "max_jobs_per_second": "0.5/s"})
        failing = add.options(attempts=1).enqueue(10**17, 10**17)
        began_ms = jobs.clock.now_ms()
        jobs.run_for(60)
        assert jobs.clock.now_ms() == began_ms + 60_000
        assert jobs.runs[0].result == 3
        with pytest.raises(JobFailed, match="result"):
            failing.result()
        page = client.scan(JobFilter("sums", JobState.FAILED))
        assert [each.descriptor for each in page.jobs] == [failing]
        (dead,) = client.dequeue("dead")
        assert dead.body == jobs.runs[1].body
        assert client.ack("dead", [dead]) == [AckOutcome.SUCCEEDED]


async def test_a_server_says_what_it_has_in_the_words_of_a_server() -> None:
    with testing.in_memory(app) as jobs:
        client = app.async_client()
        with pytest.raises(QueueNotFound):
            await client.count("nowhere", JobState.PENDING)
        await client.create_queue("further")
        assert [view.name for view in await client.get_queues(["further"])] == ["further"]
        await add.options(queue="further").enqueue_async(1, 2)
        await jobs.run_all_async()
        assert jobs.runs[0].result == 3
