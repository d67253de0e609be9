"""Rows of the end of a worker: drained, hurried, killed; and what the list of workers says of it."""

from __future__ import annotations

from pinlater.model import JobInfo, JobState, WorkerCommand, WorkerInfo
from tests.kits.ledger import spent, until
from tests.kits.programs import TrialWorker
from tests.kits.trial import Stand, row


def listed(stand: Stand, worker: TrialWorker) -> list[WorkerInfo]:
    return stand.site.client.get_workers(name=worker.name, include_running=True).workers


def drains(stand: Stand, worker: TrialWorker) -> None:
    """It has seen the signal: the list of workers says that it stops, or that it has."""
    until(lambda: all(each.is_stopping for each in listed(stand, worker)), "the list says that it stops")


def handed_back(stand: Stand, job: str) -> JobInfo:
    """A job that a worker has given up without an attempt spent."""
    info = stand.site.info(job)
    assert (info.state, spent(info), info.crashes) == (JobState.PENDING, 0, 0), info
    return info


def runs_elsewhere(stand: Stand, job: str) -> None:
    """Another worker takes it, by its first attempt."""
    with stand.site.worker(job.partition(":")[0]) as other:
        assert other.ledger.wait_for("begin", job=job)["attempt"] == 1


@row("SIGTERM while a poll waits: the worker ends with 0, and a job that comes afterwards stays ready for others.")
def sigterm_while_a_poll_waits(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.worker(queue) as worker:
        first = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([first]))
        worker.terminate()
        worker.ends()
        second = stand.site.enqueue(queue, "trial.noop")
        handed_back(stand, second)
        assert worker.ledger.begins(second) == []


@row("SIGTERM while a job runs: the job ends and succeeds, runs once, and the worker ends with 0.")
def sigterm_while_a_job_runs(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 1_500})
    with stand.site.worker(queue) as worker:
        worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        worker.ends()
        worker.ledger.has_once(stand.site.ended([job]))


@row("A worker that drains takes no more jobs.")
def drains_and_takes_no_more(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 2_000})
    with stand.site.worker(queue) as worker:
        worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        drains(stand, worker)
        later = [stand.site.enqueue(queue, "trial.stubborn", {"ms": 0}) for _ in range(3)]
        worker.ends()
        worker.ledger.has_once(stand.site.ended([job]))
        assert [each for each in later if worker.ledger.begins(each)] == []
        for each in later:  # one that the poll of that moment brought is handed back
            handed_back(stand, each)


@row(
    "A job that does not end in the time of the drain is handed back: no attempt is spent, and another worker runs it."
)
def drain_is_over(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 90_000})
    with stand.site.worker(queue, drain_ms=500) as worker:
        worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        worker.ends()
    handed_back(stand, job)
    runs_elsewhere(stand, job)


@row("A job that heeds nothing is handed back as well, and the worker ends all the same.")
def drain_with_a_stubborn_job(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.stubborn", {"ms": 90_000})
    with stand.site.worker(queue, drain_ms=500) as worker:
        worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        worker.ends()
    handed_back(stand, job)


@row("A second SIGTERM hands the running jobs back at once.")
def sigterm_twice(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 500_000})
    with stand.site.worker(queue, drain_ms=600_000) as worker:
        worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        drains(stand, worker)
        worker.terminate()
        worker.ends()
    handed_back(stand, job)
    runs_elsewhere(stand, job)


@row("A worker that drains hands back those of its jobs that do not end, and acknowledges the others.")
def drain_of_many(stand: Stand) -> None:
    queue = stand.site.queue()
    short = [stand.site.enqueue(queue, "trial.sleep", {"ms": 700}) for _ in range(4)]
    long = [stand.site.enqueue(queue, "trial.sleep", {"ms": 90_000}) for _ in range(4)]
    with stand.site.worker(queue, drain_ms=3_000) as worker:
        for job in (*short, *long):
            worker.ledger.wait_for("begin", job=job)
        worker.terminate()
        worker.ends()
        worker.ledger.has_once(stand.site.ended(short))
    for job in long:
        handed_back(stand, job)


@row("kill -9 of a worker: its job runs again elsewhere before its lease is over, and one attempt is spent.")
def killed(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 90_000})
    with stand.site.worker(queue) as worker:
        worker.ledger.wait_for("begin", job=job)
        lease_ends_ms = stand.site.info(job).claim_expires_at_ms
        worker.kill()
    with stand.site.worker(queue) as other:
        begin = other.ledger.wait_for("begin", job=job)
        assert lease_ends_ms is not None
        assert (begin["attempt"], begin["at_ms"] < lease_ends_ms) == (2, True), (begin, lease_ends_ms)
        info = stand.site.info(job)
        assert (info.crashes, spent(info)) == (1, 1), info


@row("kill -9 of a worker and its server: the job runs again when its lease is over.", is_long=True)
def killed_with_its_server(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        job = site.enqueue(queue, "trial.sleep", {"ms": 90_000})
        with site.worker(queue) as worker:
            worker.ledger.wait_for("begin", job=job)
            site.kill()
            worker.kill()
        site.start()
        with site.worker(queue) as other:
            assert other.ledger.wait_for("begin", job=job)["attempt"] == 2
            assert spent(site.info(job)) == 1


@row("A job that runs for longer than its lease keeps its claim by heartbeats.", is_long=True)
def outlives_the_lease(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 40_000})
    with stand.site.worker(queue) as worker:
        worker.ledger.has_once(stand.site.ended([job]))
        assert stand.site.info(job).crashes == 0


@row("The list of workers has its name, process, slots and queues, and the jobs that it runs.")
def is_listed(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 60_000})
    with stand.site.worker(queues={queue: 4}, slots=3) as worker:
        worker.ledger.wait_for("begin", job=job)

        def shows_the_job() -> bool:
            return any(each.job_descriptor == job for known in listed(stand, worker) for each in known.running)

        until(shows_the_job, lambda: f"the list shows the job: {listed(stand, worker)}")
        (shown,) = listed(stand, worker)
        assert (shown.name, shown.pid, shown.slots) == (worker.name, worker.process.pid, 3)
        assert (shown.queues, shown.busy_slots) == ({queue: 4}, 1)


@row("A worker that has ended in order is gone from the list at once.")
def leaves_the_list(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.worker(queue) as worker:
        until(lambda: listed(stand, worker), "it is listed")
        worker.terminate()
        worker.ends()
        assert listed(stand, worker) == []


@row("It takes the commands of the list: quiet, resume, stop.")
def takes_commands(stand: Stand) -> None:
    queue = stand.site.queue()
    client = stand.site.client
    with stand.site.worker(queue) as worker:
        until(lambda: listed(stand, worker), "it is listed")
        (known,) = listed(stand, worker)
        client.command_workers(WorkerCommand.QUIET, [known.id])
        until(lambda: listed(stand, worker)[0].is_quiet, "it is quiet")
        job = stand.site.enqueue(queue, "trial.noop")
        client.command_workers(WorkerCommand.RESUME, [known.id])
        worker.ledger.has_once(stand.site.ended([job]))
        client.command_workers(WorkerCommand.STOP, [known.id])
        worker.ends()
