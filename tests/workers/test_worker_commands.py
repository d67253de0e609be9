"""Workers that an operator lets rest, go on and end, in a pool of threads and in one of processes; one of them tells
of a job that it does not know.
"""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from pinlater import AsyncClient
from pinlater.errors import RequestInvalid
from pinlater.model import CommandOutcome, JobState, WorkerCommand, WorkerInfo
from pinlater_workers import App
from pinlater_workers.heartbeat.messages import WorkerCommanded
from pinlater_workers.worker.commands import CommandedState
from tests.server.running import running
from tests.workers.command import working
from tests.workers.site import until

WITHIN_S = 15.0

PROGRAM = """
import pathlib
import time
from pinlater_workers import App

app = App(servers=["127.0.0.1:PORT"])

@app.job(queue="QUEUE")
def held(number: int) -> None:
    print("begun", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)

@app.job(queue="QUEUE")
def quick(number: int) -> None:
    print("quick", number, flush=True)
"""


async def worker_of(client: AsyncClient, queue: str) -> WorkerInfo | None:
    found = (await client.get_workers(queue=queue)).workers
    return found[0] if found else None


async def shown(client: AsyncClient, queue: str, *, is_quiet: bool, is_stopping: bool) -> float:
    """The list shows a worker so; after how many seconds."""
    begun_s = time.monotonic()

    async def is_shown() -> bool:
        worker = await worker_of(client, queue)
        return worker is not None and (worker.is_quiet, worker.is_stopping) == (is_quiet, is_stopping)

    await until(is_shown)
    return time.monotonic() - begun_s


@pytest.mark.slow
async def test_workers_rest_go_on_and_end_when_their_jobs_have(tmp_path: Path) -> None:
    pools = ("thread", "process")
    with running(tmp_path, "--claim-timeout", "30s") as server:
        address = f"127.0.0.1:{server.port}"
        async with AsyncClient(address) as client:
            for pool in pools:
                await client.create_queue(pool)
                (tmp_path / f"{pool}_jobs.py").write_text(
                    PROGRAM.replace("PORT", str(server.port)).replace("QUEUE", pool), encoding="utf-8"
                )
            apps = {pool: App(servers=[address]) for pool in pools}
            held = {pool: apps[pool].job(queue=pool, name="held")(lambda number: None) for pool in pools}
            quick = {pool: apps[pool].job(queue=pool, name="quick")(lambda number: None) for pool in pools}
            options = ("--concurrency", "2", "--grace", "1s")
            with (
                working(tmp_path, "--app", "thread_jobs:app", "--pool", "thread", *options) as threads,
                working(tmp_path, "--app", "process_jobs:app", "--pool", "process", *options) as processes,
            ):
                await apps["thread"].job(queue="thread", name="resize")(lambda number: None).enqueue_async(1)
                long = {pool: str(await held[pool].enqueue_async(1)) for pool in pools}
                for program in (threads, processes):
                    program.wait_for("begun")
                for pool in pools:
                    await shown(client, pool, is_quiet=False, is_stopping=False)

                given = await client.command_workers(WorkerCommand.QUIET, host=socket.gethostname())
                assert [each.outcome for each in given.workers] == [CommandOutcome.TAKEN] * 2
                assert sorted(each.name for each in given.workers) == ["process_jobs", "thread_jobs"]
                took_s = await asyncio.gather(
                    *(shown(client, pool, is_quiet=True, is_stopping=False) for pool in pools)
                )
                assert max(took_s) <= WITHIN_S
                worker = await worker_of(client, "thread")
                assert worker is not None
                assert [(each.queue, each.job_type, each.jobs) for each in worker.unknown_types] == [
                    ("thread", "resize", 1)
                ]
                waits = {pool: str(await quick[pool].enqueue_async(2)) for pool in pools}

                (resumed,) = (await client.command_workers(WorkerCommand.RESUME, name="thread_jobs")).workers
                worker = await worker_of(client, "process")
                assert worker is not None
                (stopped,) = (await client.command_workers(WorkerCommand.STOP, [f"{worker.host}:{worker.pid}"])).workers
                assert (resumed.outcome, stopped.outcome) == (CommandOutcome.TAKEN, CommandOutcome.TAKEN)
                await asyncio.to_thread(threads.wait_for, "quick 2")
                await shown(client, "process", is_quiet=True, is_stopping=True)
                found = await client.lookup([long["process"], waits["process"]])
                assert [found[each].state for each in (long["process"], waits["process"])] == [
                    JobState.IN_PROGRESS,
                    JobState.PENDING,
                ]
                (tmp_path / "go").touch()
                assert await asyncio.to_thread(processes.process.wait, 60) == 0
                found = await client.lookup([*long.values(), waits["process"]])
                assert found[long["process"]].state is JobState.SUCCEEDED
                assert found[waits["process"]].state is JobState.PENDING, "nobody took it"
                audit = [(each.action, each.target, each.detail) for each in await client.audit(limit=3)]
                assert audit == [
                    ("stop_workers", f"{worker.host}:{worker.pid}", "1 taken"),
                    ("resume_workers", "name thread_jobs", "1 taken"),
                    ("quiet_workers", f"host {socket.gethostname()}", "2 taken"),
                ]
                (unknown,) = (await client.command_workers(WorkerCommand.QUIET, ["nobody:1"])).workers
                assert (unknown.id, unknown.outcome) == ("nobody:1", CommandOutcome.NOT_KNOWN)
                with pytest.raises(RequestInvalid, match="no workers are given"):
                    await client.command_workers(WorkerCommand.QUIET)
            for app in apps.values():
                await app.close_async()
                app.close()


class Source:
    """What brings jobs, as a worker that is commanded sees it."""

    def __init__(self) -> None:
        self.is_fetching = False
        self.calls: list[str] = []

    def rest(self) -> None:
        self.calls.append("rest")

    def resume(self) -> None:
        self.calls.append("resume")


async def test_each_command_is_carried_out_once_and_the_newest_counts() -> None:
    source, busy = Source(), [1]
    state = CommandedState(source, lambda: bool(busy), lambda: None, lambda: source.calls.append("leave"))
    quiet, resume, stop = (int(each) for each in (WorkerCommand.QUIET, WorkerCommand.RESUME, WorkerCommand.STOP))
    for command, number in ((quiet, 5), (quiet, 5), (resume, 4), (resume, 7), (stop, 6), (stop, 8)):
        state.receive(WorkerCommanded(command, number))
    assert (source.calls, state.is_quiet, state.is_leaving) == (["rest", "resume", "rest"], True, True)
    state.receive(WorkerCommanded(resume, 9))
    busy.clear()
    assert (state.is_quiet, state.is_leaving) == (False, False)
    source.is_fetching = True
    state.receive(WorkerCommanded(stop, 10))
    assert source.calls[-1] == "rest", "jobs may still be on their way"
    source.is_fetching = False
    await until(lambda: source.calls[-1] == "leave")
    assert source.calls.count("leave") == 1
