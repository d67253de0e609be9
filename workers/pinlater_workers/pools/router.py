"""The pool of a worker: each job goes to the pool of its type, and only the pools that are needed are started."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater_workers.app.app import App
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.context import StopReason
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.running_job import RunningBatch, RunningJob
from pinlater_workers.jobs.settings import PoolName
from pinlater_workers.pools.base import JobPool, JobsEnded, NoteProgress, PoolFailed, SaveCheckpoint
from pinlater_workers.pools.coroutines import AsyncPool
from pinlater_workers.pools.process_pool import ProcessPool
from pinlater_workers.pools.threads import ThreadPool


def pool_of(job_type: JobType, worker_pool: PoolName) -> PoolName:
    """Where jobs of the type run, in a worker whose own pool is `worker_pool`.

    What the type says counts, but that the event loop can run nothing but coroutines. A type that says nothing: its
    coroutines run on the loop, but in a worker of processes; all else runs in the worker's pool.
    """
    wanted = job_type.settings.pool
    if wanted is None:
        wanted = "async" if job_type.is_coroutine and worker_pool != "process" else worker_pool
    return "thread" if wanted == "async" and not job_type.is_coroutine else wanted


def served_by(app: App, settings: WorkerSettings) -> list[JobType]:
    """The types of the queues of a worker."""
    return [job_type for job_type in app.job_types.values() if job_type.settings.queue in settings.queues]


class PoolRouter:
    """Threads and coroutines cost nothing until a job needs them; processes are started by open() where a type of a
    served queue runs in them, else when the first such job comes."""

    def __init__(
        self,
        app: App,
        app_spec: str,
        settings: WorkerSettings,
        ended: JobsEnded,
        save: SaveCheckpoint,
        progress: NoteProgress,
        failed: PoolFailed = lambda error: None,
    ) -> None:
        self._app = app
        self._settings = settings
        in_processes = [each.name for each in served_by(app, settings) if pool_of(each, settings.pool) == "process"]
        self._processes = ProcessPool(app_spec, settings, ended, save, progress, failed, in_processes)
        self._threads = ThreadPool(app, settings, ended, save, progress)
        self._coroutines = AsyncPool(app, settings, ended, save, progress)
        self._pools: dict[PoolName, JobPool] = {
            "thread": self._threads,
            "async": self._coroutines,
            "process": self._processes,
        }
        self._of_type: dict[JobType | None, JobPool] = {}

    @property
    def stuck(self) -> int:
        return sum(pool.stuck for pool in self._pools.values())

    def stuck_jobs(self) -> Sequence[RunningJob]:
        return [running for pool in self._pools.values() for running in pool.stuck_jobs()]

    def on_loop(self) -> tuple[RunningJob | None, str]:
        """From another thread, while the event loop stands still: the job whose coroutine runs, and where it is."""
        return self._coroutines.on_loop()

    async def open(self) -> None:
        await self._threads.open()
        await self._coroutines.open()
        if self._needs_processes():
            await self._processes.open()

    def may_lead(self, running: RunningJob) -> bool:
        """Whether it may be submitted before a slot is free: it runs in a thread, which takes it when it can."""
        return (self._of_type.get(running.type) or self._pool(running)) is self._threads

    def withdraw(self) -> list[RunningJob]:
        """Takes back what was submitted and has not begun in a thread, in order."""
        return self._threads.withdraw()

    def submit(self, running: RunningJob) -> None:
        pool = self._of_type.get(running.type) or self._pool(running)
        pool.submit(running)

    def stop(self, running: RunningJob, reason: StopReason) -> None:
        self._pool(running).stop(running, reason)

    def stop_member(self, batch: RunningBatch, index: int) -> None:
        self._pool(batch).stop_member(batch, index)

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()

    def _pool(self, running: RunningJob) -> JobPool:
        assert running.type is not None
        pool = self._of_type[running.type] = self._pools[pool_of(running.type, self._settings.pool)]
        return pool

    def _needs_processes(self) -> bool:
        types = served_by(self._app, self._settings)
        return any(pool_of(job_type, self._settings.pool) == "process" for job_type in types)
