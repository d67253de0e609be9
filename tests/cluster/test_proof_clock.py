"""Servers whose clock is wrong, from the start or while they run: they say so, and nobody's jobs notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pinlater import AsyncClient
from pinlater.model import Ack, DequeuedJob, DequeueRequest, Job, JobFilter, JobState
from tests.cluster.proof_load import DEQUEUE, Load
from tests.cluster.proof_stand import CLAIM_S, PATIENT, PROCESSES, Stand, count, known_everywhere, status_when, until
from tests.cluster.proof_stores import SHARDS, FourStores
from tests.faults.recorded_run import RecordedRun
from tests.server.running import running
from tests.speed import slower

pytestmark = [pytest.mark.slow]
SHIFT = "PROOF_CLOCK_SHIFT"
HOUR_MS = 3_600_000
HOUR_NS = 3_600 * 10**9
AGREE_WITHIN_MS = 50
"""How far the time that an outvoted server takes from the other clocks may be from theirs."""

PRELOADED = f'''
"""Loaded by Python before anything else: the clock is as far ahead as a file says, whenever it is looked at."""
import os, time
_right = time.time_ns
def _shifted():
    try:
        with open(os.environ["{SHIFT}"]) as file:
            return _right() + int(file.read())
    except (OSError, ValueError):
        return _right()
if "{SHIFT}" in os.environ:
    time.time_ns = _shifted
'''


def early_by_the_right_clock(run: RecordedRun) -> list[str]:
    """Jobs that were handed out before their time by the clock of the tests, whatever the server takes for the time."""
    return [
        part.job for end_ms, part in run.parts() if part.action == "claim" and end_ms < part.details["runAfterMillis"]
    ]


@contextlib.contextmanager
def under(shift: Path, ahead_ns: int) -> Iterator[None]:
    """Servers that are started here have a clock that goes by the file."""
    shift.write_text(str(ahead_ns))
    (shift.parent / "sitecustomize.py").write_text(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(shift.parent), prepend=os.pathsep)
        patch.setenv(SHIFT, str(shift))
        yield


@contextlib.contextmanager
def one_wrong(folder: Path, stores: FourStores, ahead_ns: int, shards: tuple[str, ...]) -> Iterator[tuple[Stand, Path]]:
    """The clock of the second server is wrong, as a file says."""
    shift = folder / "shift" / "ahead_ns"
    shift.parent.mkdir()
    with Stand(folder, stores, *PATIENT, shards=shards) as stand, under(shift, ahead_ns):
        stand.servers[1].start_again()
        yield stand, shift


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def answers(stand: Stand, server: int, word: str) -> bool:
    found, text = await asyncio.to_thread(stand.servers[server].get, "/readyz")
    assert found == 200
    return word in text


async def handed_out(client: AsyncClient, queue: str, within_s: float, limit: int = 10) -> list[DequeuedJob]:
    request = DequeueRequest(queue, limit, wait_ms=round(within_s * 1000))
    return await client.dequeue(request)


@pytest.mark.parametrize("shards", [("1",), tuple(SHARDS)], ids=["one Redis", "two of each"])
@pytest.mark.parametrize("ahead_ns", [HOUR_NS, -HOUR_NS], ids=["ahead", "behind"])
async def test_a_server_whose_clock_is_an_hour_off_hands_out_nothing_early_nor_twice_and_goes_on(
    tmp_path: Path, four_stores: FourStores, ahead_ns: int, shards: tuple[str, ...]
) -> None:
    run = RecordedRun(tmp_path)
    with one_wrong(tmp_path, four_stores, ahead_ns, shards) as (stand, _):
        async with stand.clients() as (right, wrong):
            await until(partial(answers, stand, 1, "outvoted"))
            assert not await answers(stand, 0, "remarks")
            for queue in ("mail", "later", "held"):
                await right.create_queue(queue)
                await known_everywhere(stand, queue)
            for client in (right, wrong):
                half = now_ms() + HOUR_MS // 2
                await client.enqueue("later", [Job(b"x", run_after_ms=half)] * 10)
            async with Load(stand.ports, "mail", run) as load:
                await asyncio.gather(load.goes_on(), nothing_early_or_twice(right, wrong))
                assert load.errors(0) == []
                assert load.answered(DEQUEUE, 0)
            assert early_by_the_right_clock(run) == []
            run.judge(tolerance_ms=AGREE_WITHIN_MS, is_over=False)
            for client in (right, wrong):
                assert await handed_out(client, "later", 0) == []
            assert await right.count(JobFilter("later", JobState.PENDING, future=True)) == 20


async def nothing_early_or_twice(right: AsyncClient, wrong: AsyncClient) -> None:
    """Claims that one server made stand at the other, for as long as they last and no longer; so do delays."""
    for one, other in ((wrong, right), (right, wrong)):
        await one.enqueue("held", [Job(b"x", attempts_allowed=9)] * 10)
        jobs: list[DequeuedJob] = []
        while len(jobs) < 10:
            jobs += await handed_out(one, "held", 5)
        assert await handed_out(other, "held", CLAIM_S / 2) == []
        kept, lost = jobs[:5], jobs[5:]
        await one.ack("held", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in kept])
        assert await count(other, "held", JobState.SUCCEEDED) >= 5
        began_s = time.monotonic()
        back: list[DequeuedJob] = []
        while len(back) < 5:
            back += await handed_out(other, "held", 10)
        assert {job.descriptor for job in back} == {job.descriptor for job in lost}
        assert time.monotonic() - began_s < slower(time.monotonic) * (CLAIM_S + 5)
        failed_ms = now_ms()
        await one.ack("held", [], [Ack(job.descriptor, retry_delay_ms=1_500) for job in back])
        again: list[DequeuedJob] = []
        while len(again) < 5:
            again += await handed_out(other, "held", 10)
            assert not again or now_ms() >= failed_ms + 1_500
        assert now_ms() < failed_ms + 1_500 + 5_000
        await other.ack("held", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in again])


async def test_a_clock_that_goes_wrong_and_right_again_while_its_server_runs(
    tmp_path: Path, four_stores: FourStores
) -> None:
    with one_wrong(tmp_path, four_stores, 0, tuple(SHARDS)) as (stand, shift):
        async with stand.clients() as clients:
            for server in (0, 1):
                assert await answers(stand, server, '{"ready": true}')
            shift.write_text(str(HOUR_NS))
            await until(partial(answers, stand, 1, "behind this server's"))
            _, text = await asyncio.to_thread(stand.servers[1].get, "/readyz")
            assert all("more than 1000 ms" in remark for remark in json.loads(text)["remarks"])
            assert await answers(stand, 0, '{"ready": true}')
            pids = {str(pid) for pid in stand.servers[1].processes()}
            status = await status_when(
                clients[0],
                lambda status: all("outvoted" in each.trouble for each in status.servers if each.process in pids),
            )
            assert len(status.servers) == PROCESSES
            assert all(each.is_ready for each in status.servers)
            assert {shard for each in status.servers for shard in each.maintains} == set(SHARDS)
            assert not any(each.trouble for each in status.servers if each.process not in pids)

            shift.write_text("0")
            await until(partial(answers, stand, 1, '{"ready": true}'))
            await status_when(clients[0], lambda status: not any(each.trouble for each in status.servers))


async def test_a_server_on_sqlite_whose_clock_jumps_hands_out_nothing_early_and_goes_on(tmp_path: Path) -> None:
    shift = tmp_path / "shift" / "ahead_ns"
    shift.parent.mkdir()
    with under(shift, 0), running(tmp_path, "--http", "127.0.0.1:0", "--claim-timeout", "2s") as server:
        async with AsyncClient(f"127.0.0.1:{server.port}") as client:
            await client.create_queue("mail")
            await client.enqueue("mail", [Job(b"later", run_after_ms=now_ms() + HOUR_MS // 2)])
            await client.enqueue("mail", [Job(b"soon", run_after_ms=now_ms() + 6_000)])
            await client.enqueue("mail", [Job(b"held")])
            (held,) = await handed_out(client, "mail", 5)
            shift.write_text(str(HOUR_NS))
            await asyncio.to_thread(server.wait_for, "time_uncertain")
            await client.enqueue("mail", [Job(b"now")])
            (now,) = await handed_out(client, "mail", 1)
            assert now.body == b"now"
            await client.ack("mail", [Ack(each.descriptor) for each in (now, held)])
            (soon,) = await handed_out(client, "mail", 10)
            assert (soon.body, now_ms() >= soon.run_after_ms) == (b"soon", True)
            assert await handed_out(client, "mail", 0) == []
            assert await client.count(JobFilter("mail", JobState.PENDING, future=True)) == 1
