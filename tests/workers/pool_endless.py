"""A worker of one job that nothing but a kill ends, for tests that end the worker.

    python -m tests.workers.pool_endless thread|process

`process`: prints the id of the job's process once the job has begun, and goes on. `thread`: ends with the job running.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

from pinlater.model import Checkpoint, DequeuedJob
from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Outcome
from pinlater_workers.jobs.running_job import RunningJob
from pinlater_workers.pools.process_pool import ProcessPool
from pinlater_workers.pools.threads import ThreadPool
from tests.workers.apps import pool_harm, pool_stubborn


async def main(kind: str) -> None:
    said = asyncio.Event()

    def ended(jobs: Sequence[tuple[RunningJob, Outcome]]) -> None:
        print("ended", jobs, flush=True)

    async def save(running: RunningJob, checkpoint: Checkpoint) -> None:
        print(checkpoint.prepend_status.strip(), flush=True)
        said.set()

    if kind == "thread":
        job_type: JobType = pool_stubborn.sleeps
        pool: ThreadPool | ProcessPool = ThreadPool(pool_stubborn.app, WorkerSettings(), ended, save, lambda *_: None)
    else:
        job_type = pool_harm.holds_interpreter
        spec = "tests.workers.apps.pool_harm:app"
        pool = ProcessPool(spec, WorkerSettings(concurrency=1), ended, save, lambda *_: None)
    await pool.open()
    job = DequeuedJob("job", job_type.body(), 1, 2, 2, 0, 0, "claim")
    now_s = time.monotonic()
    pool.submit(RunningJob(job, job_type.settings.queue, job_type, now_s, now_s + pool_harm.LONG_S))
    await said.wait()
    if kind == "process":
        await asyncio.sleep(pool_harm.LONG_S)
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
