"""Jobs that say where they run: "loop", "thread", or "process" where that is another one than the worker's."""

from __future__ import annotations

import os
import threading

from pinlater_workers import App
from pinlater_workers.jobs.context import current

QUEUE = "places"
WORKER = os.environ.setdefault("PINLATER_TEST_WORKER", str(os.getpid()))
"""Handed down to the processes that the worker starts."""

app = App(servers=["127.0.0.1:1"])


def place() -> str:
    if str(os.getpid()) != WORKER:
        return "process"
    return "loop" if threading.current_thread() is threading.main_thread() else "thread"


@app.job(queue=QUEUE)
def plain() -> None:
    current().set_status(place())


@app.job(queue=QUEUE)
async def coroutine() -> None:
    await current().set_status_async(place())


@app.job(queue=f"{QUEUE}_process", pool="process")
def plain_in_process() -> None:
    current().set_status(place())


@app.job(queue=f"{QUEUE}_process", pool="process")
async def coroutine_in_process() -> None:
    await current().set_status_async(place())


@app.job(queue=QUEUE, pool="thread")
async def coroutine_in_thread() -> None:
    await current().set_status_async(place())


@app.job(queue=QUEUE, pool="thread")
def plain_in_thread() -> None:
    current().set_status(place())


@app.job(queue=QUEUE, pool="async")
def plain_on_loop() -> None:
    """Which cannot be: it would block all others."""
    current().set_status(place())


@app.job(queue=QUEUE, pool="async")
async def coroutine_on_loop() -> None:
    await current().set_status_async(place())
