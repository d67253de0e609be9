"""Rows of servers that stop, start, are rolled and change queues."""

from __future__ import annotations

import time

from pinlater.model import JobState
from tests.kits.ledger import until
from tests.kits.site import PASSWORD, Site
from tests.kits.trial import Stand, row


def away(site: Site, seconds: float) -> None:
    """The server is stopped for so long."""
    site.stop()
    time.sleep(seconds)
    site.start()


@row("A worker that waits outlasts a restart of the server, and runs what comes afterwards.")
def restart_while_a_poll_waits(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        with site.worker(queue) as worker:
            away(site, 0.5)
            jobs = [site.enqueue(queue, "trial.noop") for _ in range(20)]
            worker.ledger.has_once(site.ended(jobs))


@row("A job that ends while the server is away is acknowledged when it is back: it succeeds and runs once.")
def restart_while_a_job_runs(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        jobs = [site.enqueue(queue, "trial.sleep", {"ms": 600}) for _ in range(8)]
        with site.worker(queue) as worker:
            for job in jobs:
                worker.ledger.wait_for("begin", job=job)
            site.stop()
            for job in jobs:
                worker.ledger.wait_for("end", job=job)
            site.start()
            worker.ledger.has_once(site.ended(jobs))


@row("The server is away for 8 s under load: no job is lost, and none runs twice.", is_long=True)
def away_for_8_s(stand: Stand) -> None:
    with stand.new_site() as site:
        queues = [site.queue(), site.queue()]
        jobs = [site.enqueue(queues[number % 2], "trial.sleep", {"ms": 20}) for number in range(300)]
        with site.worker(*queues) as worker:
            worker.ledger.wait_for("end", times=50)
            away(site, 8.0)
            worker.ledger.has_once(site.ended(jobs))


@row("A server that is killed is not missed: its jobs are acknowledged at the next one, and none runs twice.")
def server_killed(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        jobs = [site.enqueue(queue, "trial.sleep", {"ms": 1_500}) for _ in range(4)]
        with site.worker(queue) as worker:
            for job in jobs:
                worker.ledger.wait_for("begin", job=job)
            site.kill()
            site.start()
            worker.ledger.has_once(site.ended(jobs))


@row("The server is rolled by SIGHUP under load: no job is lost, none runs twice, no attempt is spent.")
def rolled(stand: Stand) -> None:
    with stand.new_site() as site:
        queues = [site.queue(), site.queue()]
        jobs = [site.enqueue(queues[number % 2], "trial.sleep", {"ms": 40}) for number in range(200)]
        with site.worker(*queues, slots=4) as worker:
            worker.ledger.wait_for("end", times=20)
            site.roll()
            infos = site.ended(jobs)
            worker.ledger.has_once(infos)
            assert {info.crashes for info in infos.values()} == {0}


@row("The server is rolled while a poll waits: the next job runs at once.")
def rolled_while_a_poll_waits(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        with site.worker(queue) as worker:
            site.roll()
            job = site.enqueue(queue, "trial.noop")
            worker.ledger.has_once(site.ended([job]))


@row("A producer outlasts a restart of the server.")
def producer_outlasts_a_restart(stand: Stand) -> None:
    with stand.new_site() as site:
        queue = site.queue()
        with site.producer() as producer, site.worker(queue) as worker:
            first = producer.enqueue(queue, "trial.noop")
            away(site, 0.2)
            second = producer.enqueue(queue, "trial.noop")
            worker.ledger.has_once(site.ended([first, second]))


@row("A queue that does not exist yet holds up no other, and is served when it is created.")
def queue_that_comes_later(stand: Stand) -> None:
    there, later = stand.site.queue(), stand.site.queue()
    stand.site.client.delete_queue(later, PASSWORD)
    with stand.site.worker(there, later) as worker:
        job = stand.site.enqueue(there, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job]))
        stand.site.client.create_queue(later)
        job = stand.site.enqueue(later, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job]))


@row("A queue that is deleted while a poll waits for it is served again when it is created anew.")
def queue_deleted_while_a_poll_waits(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.worker(queue) as worker:
        job = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job]))
        stand.site.client.delete_queue(queue, PASSWORD)
        stand.site.client.create_queue(queue)
        job = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job]))


@row("Jobs of a queue that is paused wait, those of others run, and all run when it goes on.")
def queue_paused(stand: Stand) -> None:
    paused, other = stand.site.queue(), stand.site.queue()
    stand.site.client.update_queue(paused, PASSWORD, set={"paused": "true"})
    waits = stand.site.enqueue(paused, "trial.noop")
    with stand.site.worker(paused, other) as worker:
        runs = [stand.site.enqueue(other, "trial.noop") for _ in range(5)]
        worker.ledger.has_once(stand.site.ended(runs))
        assert stand.site.info(waits).state is JobState.PENDING
        stand.site.client.update_queue(paused, PASSWORD, set={"paused": "false"})
        worker.ledger.has_once(stand.site.ended([waits]))


@row("A worker whose only queue is paused goes on when the queue does.")
def only_queue_paused(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.worker(queue) as worker:
        stand.site.client.update_queue(queue, PASSWORD, set={"paused": "true"})
        job = stand.site.enqueue(queue, "trial.noop")
        until(lambda: stand.site.info(job).state is JobState.PENDING, "it waits")
        stand.site.client.update_queue(queue, PASSWORD, set={"paused": "false"})
        worker.ledger.has_once(stand.site.ended([job]))


@row("A queue's rate is kept: its jobs come one by one, and all of them come.")
def queue_with_a_rate(stand: Stand) -> None:
    queue = stand.site.queue()
    stand.site.client.update_queue(queue, PASSWORD, set={"max_jobs_per_second": "20"})
    jobs = [stand.site.enqueue(queue, "trial.noop") for _ in range(30)]
    with stand.site.worker(queue) as worker:
        worker.ledger.has_once(stand.site.ended(jobs))
