"""Rows of a network that is cut, stalls, loses answers, or leaves connections half open; and of several servers."""

from __future__ import annotations

from collections.abc import Callable

from pinlater.model import JobState
from tests.faults.proxy import Proxy
from tests.kits.ledger import until
from tests.kits.programs import job_command
from tests.kits.trial import Stand, row
from tests.stores.process import free_port


def outlasts(stand: Stand, fault: Callable[[Proxy], None]) -> None:
    """Jobs end while this is done to the network; their acks arrive once it is whole again."""
    queue = stand.site.queue()
    jobs = [stand.site.enqueue(queue, "trial.sleep", {"ms": 500}) for _ in range(8)]
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]) as worker:
        for job in jobs:
            worker.ledger.wait_for("begin", job=job)
        fault(proxy)
        for job in jobs:
            worker.ledger.wait_for("end", job=job)
        proxy.heal()
        worker.ledger.has_once(stand.site.ended(jobs))


@row("The network is cut while jobs run: their ends arrive when it is back, and none runs twice.")
def cut(stand: Stand) -> None:
    outlasts(stand, Proxy.cut)


@row("Connections are reset while a poll waits: the next job runs.")
def reset_while_a_poll_waits(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]) as worker:
        until(lambda: proxy.connections, "it has connected")
        proxy.drop_connections()
        job = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job]))


@row("Connections are reset again and again under load: every job succeeds.")
def reset_under_load(stand: Stand) -> None:
    queue = stand.site.queue()
    jobs = [stand.site.enqueue(queue, "trial.sleep", {"ms": 30}) for _ in range(150)]
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]) as worker:
        for share in (10, 30, 50, 70):
            worker.ledger.wait_for("end", times=share)
            proxy.drop_connections()
        infos = stand.site.ended(jobs)
        # one that was claimed by a dequeue whose answer broke off spends no attempt, or one where its claim ended
        twice = {job: len(worker.ledger.begins(job)) for job in jobs if len(worker.ledger.begins(job)) != 1}
        assert {job: info.state for job, info in infos.items() if info.state is not JobState.SUCCEEDED} == {}
        assert all(infos[job].crashes >= begun - 1 for job, begun in twice.items()), twice


@row("The network stands still while jobs run, and goes on: their ends arrive, and none runs twice.")
def stalled(stand: Stand) -> None:
    outlasts(stand, Proxy.black_hole)


@row("A slow network slows the worker down, and nothing else.")
def slow(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]) as worker:
        proxy.delay(0.1)
        jobs = [stand.site.enqueue(queue, "trial.noop") for _ in range(30)]
        worker.ledger.has_once(stand.site.ended(jobs))


@row("The answer to an ack is lost: the ack is sent again, the job succeeds and runs once.")
def answer_to_an_ack_is_lost(stand: Stand) -> None:
    queue = stand.site.queue()
    job = stand.site.enqueue(queue, "trial.sleep", {"ms": 1_000})
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]) as worker:
        worker.ledger.wait_for("begin", job=job)
        proxy.black_hole(answers_only=True)
        until(lambda: stand.site.info(job).state is JobState.SUCCEEDED, lambda: f"acked: {stand.site.info(job)}")
        proxy.drop_connections()
        proxy.heal()
        after = stand.site.enqueue(queue, "trial.noop")
        worker.ledger.has_once(stand.site.ended([job, after]))


@row("A connection that is half open, over which nothing comes back, is left after a time-out.", is_long=True)
def half_open(stand: Stand) -> None:
    queue = stand.site.queue()
    with (
        stand.site.proxy() as (dead, dead_address),
        stand.site.proxy() as (other, address),
        stand.site.worker(queue, servers=[dead_address, address]) as worker,
    ):
        until(lambda: dead.connections or other.connections, "it has connected")
        dead.black_hole()
        jobs = [stand.site.enqueue(queue, "trial.noop") for _ in range(20)]
        worker.ledger.has_once(stand.site.ended(jobs))


@row(
    "The only server's connections are half open: the worker calls it by new ones, without being started again.",
    is_long=True,
)
def half_open_at_the_only_server(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.worker(queue, servers=[address]):
        until(lambda: proxy.connections, "it has connected")
        proxy.lose_connections()
        job = stand.site.enqueue(queue, "trial.noop")
        infos = stand.site.ended([job])
        assert infos[job].state is JobState.SUCCEEDED


@row("Of two servers one is down from the start: the worker works with the other.")
def one_of_two_is_down(stand: Stand) -> None:
    queue = stand.site.queue()
    nobody = stand.site.address_of(free_port())
    with stand.site.worker(queue, servers=[nobody, stand.site.address]) as worker:
        jobs = [stand.site.enqueue(queue, "trial.noop") for _ in range(20)]
        worker.ledger.has_once(stand.site.ended(jobs))


@row("Of two servers one goes down while jobs run: their ends reach the other, and none runs twice.")
def one_of_two_goes_down(stand: Stand) -> None:
    queue = stand.site.queue()
    jobs = [stand.site.enqueue(queue, "trial.sleep", {"ms": 700}) for _ in range(8)]
    with (
        stand.site.proxy() as (proxy, address),
        stand.site.proxy() as (_, other),
        stand.site.worker(queue, servers=[address, other]) as worker,
    ):
        for job in jobs:
            worker.ledger.wait_for("begin", job=job)
        proxy.cut()
        jobs.append(stand.site.enqueue(queue, "trial.noop"))
        worker.ledger.has_once(stand.site.ended(jobs))


@row("Of two servers one is down: the producer's jobs reach the other.")
def producer_with_one_of_two_down(stand: Stand) -> None:
    nobody = stand.site.address_of(free_port())
    with stand.site.producer(servers=[nobody, stand.site.address]) as producer:
        jobs = [producer.enqueue("kits_b", "trial.noop") for _ in range(6)]
    stand.worker.ledger.has_once(stand.site.ended(jobs))


@row("Where no server can be reached, an enqueue is an error to try again, and the program goes on.")
def nobody_answers(stand: Stand) -> None:
    queue = stand.site.queue()
    with stand.site.proxy() as (proxy, address), stand.site.producer(servers=[address]) as producer:
        producer.enqueue(queue, "trial.noop")
        proxy.cut()
        answer = producer.ask({"enqueue": job_command(queue, "trial.noop")})
        assert answer["error"]["retryable"] is True, answer
        proxy.heal()
        until(lambda: "descriptor" in producer.ask({"enqueue": job_command(queue, "trial.noop")}), "it goes on")
