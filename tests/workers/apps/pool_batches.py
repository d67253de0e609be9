"""Batches that every pool runs, each as a plain function and, named `…_async`, as a coroutine."""

from __future__ import annotations

import asyncio
import os
import time

from pinlater_workers import App, Batch, Fail

QUEUE = "batches"
LONG_S = 60.0

app = App(servers=["127.0.0.1:1"])


def obey(batch: Batch[str]) -> None:
    for job in batch:
        match job.arguments:
            case "succeed":
                job.succeed()
            case "fail":
                job.fail(Fail("never"))
            case "snooze":
                job.snooze(5, "later")
            case "save":
                job.context.checkpoint(mixed.body("saved"))
    for job in batch:
        if job.arguments == "raise":
            raise ValueError("all of it")
        if job.arguments == "die":
            os._exit(3)
        if job.arguments == "interrupt":
            raise KeyboardInterrupt


@app.job(queue=QUEUE, batch=10, attempts=2, retry=[7])
def mixed(batch: Batch[str]) -> None:
    obey(batch)


@app.job(queue=QUEUE, batch=10, attempts=2, retry=[7])
async def mixed_async(batch: Batch[str]) -> None:
    await asyncio.sleep(0)
    obey(batch)


@app.job(queue=QUEUE, batch=10, attempts=2, retry=[7])
def long(batch: Batch[str]) -> None:
    """Says when it has begun, and what it is told."""
    obey(batch)
    batch[-1].context.set_status("begun")
    end_s = time.monotonic() + LONG_S
    while time.monotonic() < end_s and not batch.cancelled:
        if batch[0].context.cancelled:
            batch[-1].context.set_status(f"lost: {batch[0].context.cancel_reason}")
            return
        time.sleep(0.01)
    batch[-1].context.set_status(f"told: {batch.cancel_reason}")


@app.job(queue=QUEUE, batch=10, attempts=2, retry=[7])
async def long_async(batch: Batch[str]) -> None:
    obey(batch)
    await batch[-1].context.set_status_async("begun")
    if await batch[0].context.wait_async(LONG_S) and not batch.cancelled:
        await batch[-1].context.set_status_async(f"lost: {batch[0].context.cancel_reason}")
        return
    await batch[-1].context.set_status_async(f"told: {batch.cancel_reason}")


@app.raw_job(queue="raw_batches", batch=10)
def raw(batch: Batch[bytes]) -> None:
    for job in batch:
        if job.arguments != b"well":
            job.fail(Fail(job.arguments.decode()))
