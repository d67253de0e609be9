"""A batch in a process of a worker: each job says in its status how many came with it."""

from __future__ import annotations

from pinlater_workers import App, Batch, Fail

QUEUE = "batches_of_processes"

app = App()


@app.job(queue=QUEUE, batch=10, wait="200ms", pool="process")
def index(batch: Batch[int]) -> None:
    for job in batch:
        job.context.set_status(f"one of {len(batch)}")
        if job.arguments == 0:
            job.fail(Fail("not this one"))
