"""Jobs that are claimed while another one holds the worker's interpreter: it cannot read of them, and they live."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pinlater import AsyncClient, Client, DequeuedJob, DequeueRequest, Job, JobFilter, JobInfo, JobState
from pinlater_workers.heartbeat.beats import HeartbeatCalls
from pinlater_workers.heartbeat.heartbeat_loop import Key, UnreadClaims
from pinlater_workers.heartbeat.messages import Begin
from pinlater_workers.worker.claims import IN_A_ROW
from tests.server.running import RunningServer, running
from tests.speed import slower
from tests.workers.apps import holding
from tests.workers.command import WorkerCommand, until, working

ROOT = Path(__file__).parents[2]
LEASE_S = 12
HOLDS_S = 30
LONG_S = 600
SOON_S = 15.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("orphans")) as started:
        yield started


class Held:
    """A worker whose interpreter a job holds, and a job that was claimed for it since."""

    def __init__(self, client: Client, queue: str, worker: WorkerCommand, seconds: int) -> None:
        self.client = client
        self.worker = worker
        client.enqueue(queue, [Job(holding.hold.body(seconds))])
        worker.wait_for(f"holds for {seconds} s")
        (self.descriptor,) = client.enqueue(queue, [Job(holding.quick.body(), attempts_allowed=1)])
        until(lambda: self.info.state is JobState.IN_PROGRESS, "the waiting dequeue takes it")

    @property
    def info(self) -> JobInfo:
        return self.client.lookup([self.descriptor])[self.descriptor]


@pytest.fixture
def held(server: RunningServer) -> Iterator[Callable[[int, int], Held]]:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(Client(f"127.0.0.1:{server.port}"))

        def hold(seconds: int, lease_s: int) -> Held:
            queue = f"held_{lease_s}"
            client.create_queue(queue)
            options = ["--server", f"127.0.0.1:{server.port}", "--queues", queue, "--lease", f"{lease_s}s"]
            app = ["--app", f"{holding.__name__}:app", "--pool", "thread", "--concurrency", "2"]
            worker = stack.enter_context(working(ROOT, *app, *options))
            worker.ready()
            return Held(client, queue, worker, seconds)

        yield hold


def test_a_job_claimed_while_another_holds_the_interpreter_runs_with_its_one_attempt(
    held: Callable[[int, int], Held],
) -> None:
    site = held(HOLDS_S, LEASE_S)
    claim = site.info.claim_descriptor
    until(lambda: site.info.state is not JobState.IN_PROGRESS, "it ends")
    assert (site.info.state, site.info.claim_descriptor) == (JobState.SUCCEEDED, claim)
    site.worker.wait_for("quick ran")


def test_a_type_whose_jobs_were_quick_may_hold_the_interpreter_with_its_one_attempt(server: RunningServer) -> None:
    """The heartbeat process was not told of such a claim: it has to find it."""
    address, queue, job = f"127.0.0.1:{server.port}", "quick", holding.holds_from_its_first_instant
    options = ["--server", address, "--queues", queue, "--lease", f"{LEASE_S}s", "--concurrency", "2"]
    with Client(address) as client:
        client.create_queue(queue)
        before = client.enqueue(queue, [Job(job.body(0))] * (IN_A_ROW * 2))
        with working(ROOT, "--app", f"{holding.__name__}:app", *options) as worker:
            worker.ready()
            ended = JobFilter(queue, JobState.SUCCEEDED)
            until(lambda: client.count(ended) == len(before), "its type is known to be quick")
            (descriptor,) = client.enqueue(queue, [Job(job.body(HOLDS_S), attempts_allowed=1)])
            worker.wait_for(f"holds for {HOLDS_S} s")
            claim = client.lookup([descriptor])[descriptor].claim_descriptor
            until(lambda: client.count(ended) > len(before), "it ends")
            assert client.lookup([descriptor])[descriptor].claim_descriptor == claim


def test_a_worker_that_is_killed_while_a_job_holds_its_interpreter_leaves_no_claim_behind(
    held: Callable[[int, int], Held],
) -> None:
    """Long before the lease, although a beat has bound the claim to the heartbeat process."""
    site = held(LONG_S, 60)
    before_ms = site.info.claim_expires_at_ms or 0
    until(lambda: (site.info.claim_expires_at_ms or 0) > before_ms, "it is beaten")
    site.worker.process.kill()
    killed_s = time.monotonic()
    until(lambda: site.info.state is not JobState.IN_PROGRESS, "it is released")
    assert time.monotonic() - killed_s < slower(time.monotonic) * SOON_S


async def test_neither_other_workers_claims_nor_those_it_was_told_of_are_touched(server: RunningServer) -> None:
    """`a:ours` and `ours:b` are other workers."""
    address, queue = f"127.0.0.1:{server.port}", "whose"
    async with contextlib.AsyncExitStack() as stack:
        sources = ["ours", "a:ours", "ours:b"]
        clients = [await stack.enter_async_context(AsyncClient(address, source=source)) for source in sources]
        ours = clients[0]
        await ours.create_queue(queue)
        await ours.enqueue(queue, [Job(b"x")] * 4)

        async def claim(client: AsyncClient) -> DequeuedJob:
            (job,) = await client.dequeue(DequeueRequest(queue, 1, claim_timeout_ms=60_000))
            return job

        async def ends() -> list[int]:
            found = await ours.lookup([job.descriptor for job in (beaten, *left)])
            return [found[job.descriptor].claim_expires_at_ms or 0 for job in (beaten, *left)]

        left = [await claim(client) for client in clients]
        beaten = await claim(ours)
        known: set[Key] = {(left[0].descriptor, left[0].claim_descriptor)}
        before = await ends()
        orphans = UnreadClaims(
            HeartbeatCalls(ours), Begin([address], "ours", 60.0, 0.05, [queue], 0.0), 5.0, lambda: known
        )
        run = asyncio.create_task(orphans.run())
        try:
            for _ in range(3):
                last_ms = (await ends())[0]
                async with asyncio.timeout(SOON_S):
                    while (await ends())[0] <= last_ms:
                        await asyncio.sleep(0.01)
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
        assert (await ends())[1:] == before[1:]
