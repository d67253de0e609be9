"""Claims that a process keeps alive, against a real server: who beats, what is told, and who ends with whom."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from pinlater import Ack, AsyncClient, Checkpoint, DequeuedJob, DequeueRequest, Job
from pinlater.data_folder.password import hash_password
from pinlater_workers.heartbeat.heartbeats import Heartbeats
from pinlater_workers.heartbeat.messages import HeartbeatEntry
from pinlater_workers.jobs.context import StopReason
from tests.faults.proxy import Proxy
from tests.server.running import RunningServer, every, lives, running
from tests.speed import slower
from tests.stores.process import dies_with_us

PASSWORD = "open sesame"
ROOT = Path(__file__).parents[2]
LONG_LEASE_S = 60.0
OFTEN_S = 0.1
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("served")
    with running(folder, "--admin-password-hash", hash_password(PASSWORD)) as served:
        yield served


@pytest.fixture
def address(server: RunningServer) -> str:
    return f"127.0.0.1:{server.port}"


class Stand:
    """A client, heartbeats, and what they told."""

    def __init__(
        self, client: AsyncClient, queue: str, beats_at: str, lease_s: float, interval_s: float | None
    ) -> None:
        self.client = client
        self.queue = queue
        self.lease_s = lease_s
        self.numbers = itertools.count(1)
        self.told: list[tuple[int, StopReason]] = []
        self.ended: list[int] = []
        self.cancelled: list[tuple[int, str]] = []
        self.heartbeats = Heartbeats(
            [beats_at], "worker", lease_s, self._lost, self.ended.append, self._cancelled, interval_s=interval_s
        )

    def _lost(self, number: int, why: StopReason) -> None:
        self.told.append((number, why))

    def _cancelled(self, number: int, by: str) -> None:
        self.cancelled.append((number, by))

    async def claim(self, number: int) -> list[DequeuedJob]:
        await self.client.enqueue(self.queue, [Job(b"x", attempts_allowed=5)] * number)
        lease_ms = int(self.lease_s * 1000)
        return await self.client.dequeue(DequeueRequest(self.queue, number, claim_timeout_ms=lease_ms))

    def watch(
        self, jobs: Sequence[DequeuedJob], until_s: float = math.inf, after_s: float = 0.0
    ) -> list[HeartbeatEntry]:
        now_s = time.monotonic()
        watched = [
            HeartbeatEntry(
                next(self.numbers), self.queue, each.descriptor, each.claim_descriptor, now_s, now_s + after_s, until_s
            )
            for each in jobs
        ]
        self.heartbeats.watch(watched)
        return watched

    async def held(self, jobs: Sequence[DequeuedJob]) -> bool:
        found = await self.client.lookup([job.descriptor for job in jobs])
        return [found[job.descriptor].claim_descriptor for job in jobs] == [job.claim_descriptor for job in jobs]

    async def more_beats(self, watched: HeartbeatEntry, number: int = 2) -> None:
        """So many good ones from now on."""
        for _ in range(number):
            last_s = watched.good_s
            await every(0.01, lambda last_s=last_s: watched.good_s > last_s)  # type: ignore[misc]

    async def until_told(self, why: StopReason, *claims: HeartbeatEntry) -> None:
        await every(0.01, lambda: {(watched.number, why) for watched in claims} <= set(self.told))


@contextlib.asynccontextmanager
async def standing(
    address: str,
    queue: str,
    lease_s: float = LONG_LEASE_S,
    interval_s: float | None = OFTEN_S,
    beats_at: str = "",
    *,
    starts: bool = True,
) -> AsyncIterator[Stand]:
    async with AsyncClient(address) as client:
        await client.create_queue(queue)
        stand = Stand(client, queue, beats_at or address, lease_s, interval_s)
        await stand.heartbeats.open()
        try:
            if starts:
                await stand.heartbeats.ready()
            yield stand
        finally:
            await stand.heartbeats.close()


# -- kept alive ----------------------------------------------------------------------------------------------------


async def test_claims_live_far_beyond_a_short_lease_and_no_longer_than_they_may(address: str) -> None:
    async with standing(address, "short", 4.0, None) as stand:
        kept, limited, forgotten = await stand.claim(3), await stand.claim(1), await stand.claim(1)
        stand.watch(kept)
        (ending,) = stand.watch(limited, until_s=time.monotonic() + 0.5)
        (ended,) = stand.watch(forgotten)
        await stand.more_beats(ended, 1)
        stand.heartbeats.forget([ended.number, 77])
        await asyncio.sleep(8.0)
        while await stand.held(forgotten):
            await asyncio.sleep(0.1)
        assert await stand.held(kept)
        assert stand.told == [(ending.number, StopReason.CLAIM_LOST)]
        assert len(stand.heartbeats) == 3


async def test_a_process_that_is_killed_is_replaced_and_told_everything(address: str) -> None:
    async with standing(address, "replaced") as stand:
        first, second = stand.watch(await stand.claim(2))
        await stand.more_beats(first)
        killed = stand.heartbeats.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await every(0.01, lambda: stand.heartbeats.pid not in (None, killed))
        await stand.more_beats(second)
        assert stand.told == []


async def test_signals_that_are_for_the_worker_do_not_end_it(address: str) -> None:
    async with standing(address, "signals") as stand:
        (watched,) = stand.watch(await stand.claim(1))
        await stand.more_beats(watched)
        pid = stand.heartbeats.pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        await stand.more_beats(watched)
        assert stand.heartbeats.pid == pid
        await stand.heartbeats.close()
        assert not lives(pid)


async def test_claims_stay_while_no_process_can_be_started_and_are_lost_when_their_leases_end(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        async with standing(address, "unstarted", starts=False) as stand:
            (watched,) = stand.watch(await stand.claim(1))
            past_s = time.monotonic() - LONG_LEASE_S
            gone = HeartbeatEntry(77, "unstarted", "gone", "claim", past_s, 0.0, math.inf)
            stand.heartbeats.watch([gone])
            await stand.until_told(StopReason.CLAIM_LOST, gone)
            assert "the heartbeat process cannot be started" in caplog.text
            broken.undo()
            await stand.more_beats(watched)
            assert stand.told == [(77, StopReason.CLAIM_LOST)]


async def test_a_process_that_hangs_costs_the_claims_and_is_replaced(address: str) -> None:
    async with standing(address, "hanging", 5.0, None) as stand:
        (watched,) = stand.watch(await stand.claim(1))
        await stand.more_beats(watched, 1)
        hanging = stand.heartbeats.pid
        assert hanging is not None
        os.kill(hanging, signal.SIGSTOP)
        await stand.until_told(StopReason.CLAIM_LOST, watched)
        await every(0.01, lambda: stand.heartbeats.pid not in (None, hanging))


# -- lost ----------------------------------------------------------------------------------------------------------


async def test_claims_that_others_ended_are_told_as_lost_and_no_others(address: str) -> None:
    async with standing(address, "lost") as stand:
        given_back, taken_over, retried, _ = jobs = await stand.claim(4)
        claims = stand.watch(jobs)
        await stand.more_beats(claims[3])
        await stand.client.ack("lost", [], [Ack(retried.descriptor, "", 2**40)])
        back = [
            Checkpoint(job.descriptor, move_to_pending=True, claim_descriptor=job.claim_descriptor, run_after_ms=at_ms)
            for job, at_ms in ((given_back, 2**50), (taken_over, None))
        ]
        await stand.client.checkpoint("lost", back)
        assert [job.descriptor for job in await stand.client.dequeue(DequeueRequest("lost", 9))] == [
            taken_over.descriptor
        ]
        await stand.until_told(StopReason.CLAIM_LOST, *claims[:3])
        await stand.more_beats(claims[3])
        assert len(stand.told) == 3
        assert len(stand.heartbeats) == 1


async def test_jobs_that_ended_under_their_claim_are_told_as_ended(address: str) -> None:
    async with standing(address, "ended") as stand:
        succeeded, failed, _ = jobs = await stand.claim(3)
        claims = stand.watch(jobs)
        await stand.more_beats(claims[2])
        await stand.client.ack("ended", [Ack(succeeded.descriptor)], [Ack(failed.descriptor, permanent=True)])
        await every(0.01, lambda: sorted(stand.ended) == [claims[0].number, claims[1].number])
        await stand.more_beats(claims[2])
        assert stand.told == []
        assert len(stand.heartbeats) == 1


async def test_a_deleted_queue_loses_its_claims(address: str) -> None:
    async with standing(address, "deleted") as stand:
        claims = stand.watch(await stand.claim(2))
        await stand.more_beats(claims[0])
        await stand.client.delete_queue("deleted", PASSWORD)
        await stand.until_told(StopReason.CLAIM_LOST, *claims)


async def test_without_the_server_a_worker_is_out_of_touch_until_it_returns(
    server: RunningServer, address: str
) -> None:
    with Proxy(server.port) as proxy:
        async with standing(address, "away", beats_at=f"127.0.0.1:{proxy.port}") as stand:
            (watched,) = stand.watch(await stand.claim(1))
            await stand.more_beats(watched)
            proxy.cut()
            await stand.until_told(StopReason.OUT_OF_TOUCH, watched)
            proxy.heal()
            await stand.more_beats(watched)
            proxy.cut()
            await every(0.01, lambda: len(stand.told) == 2)
            assert {why for _, why in stand.told} == {StopReason.OUT_OF_TOUCH}


async def test_a_server_that_stays_away_costs_the_claims(server: RunningServer, address: str) -> None:
    with Proxy(server.port) as proxy:
        async with standing(address, "gone", 1.0, None, beats_at=f"127.0.0.1:{proxy.port}") as stand:
            (watched,) = stand.watch(await stand.claim(1))
            await stand.more_beats(watched, 1)
            proxy.cut()
            await stand.until_told(StopReason.CLAIM_LOST, watched)
            assert len(stand.heartbeats) == 0


async def test_a_broken_connection_is_followed_by_a_beat_at_once(server: RunningServer, address: str) -> None:
    with Proxy(server.port) as proxy:
        async with standing(address, "broken", interval_s=600.0, beats_at=f"127.0.0.1:{proxy.port}") as stand:
            (watched,) = stand.watch(await stand.claim(1))
            await stand.more_beats(watched, 1)
            proxy.drop_connections()
            await stand.more_beats(watched, 1)


# -- ends with its worker ------------------------------------------------------------------------------------------


class Worker:
    """A worker process: see beaten_worker.py."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*dies_with_us(), sys.executable, "-m", "tests.workers.beaten_worker", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


async def claimable(address: str, queue: str, number: int) -> None:
    async with AsyncClient(address) as client:
        await client.create_queue(queue)
        await client.enqueue(queue, [Job(b"x", attempts_allowed=5)] * number)


@pytest.mark.parametrize("what", ["wait", "fork"])
async def test_a_worker_that_is_killed_takes_its_heartbeat_process_with_it(address: str, what: str) -> None:
    await claimable(address, f"killed_{what}", 1)
    with Worker(address, f"killed_{what}", "30", what) as worker:
        pid = int(worker.line()[0])
        forked = int(worker.line()[0]) if what == "fork" else 0
        try:
            assert lives(pid)
            worker.process.kill()
            killed_s = time.monotonic()
            await every(0.01, lambda: not lives(pid) or _is_zombie(pid))
            assert time.monotonic() - killed_s < slower(time.monotonic) * 2.0
        finally:
            if forked:
                assert lives(forked), "it holds all descriptors of the worker"
                os.kill(forked, signal.SIGKILL)


async def test_a_job_that_holds_the_interpreter_keeps_its_claim(address: str) -> None:
    await claimable(address, "blocked", 1)
    with Worker(address, "blocked", "5", "block") as worker:
        assert worker.line() == ["free", "again"]
        async with AsyncClient(address) as client:
            assert await client.dequeue(DequeueRequest("blocked", 1)) == []


def _is_zombie(pid: int) -> bool:
    """Ended, and its new parent has not looked yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
