"""Jobs that do not let go when they should."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

from pinlater_workers import App
from pinlater_workers.jobs.context import current

QUEUE = "stubborn"
LONG_S = 60.0

app = App(servers=["127.0.0.1:1"])
let_go = threading.Event()
let_go_async = asyncio.Event()
errors: list[str] = []
counted = itertools.count(1)
fifty = threading.Event()


@app.job(queue=QUEUE)
def counts() -> None:
    if next(counted) == 50:
        fifty.set()


@app.job(queue=QUEUE)
async def nothing_async() -> None:
    pass


@app.job(queue=QUEUE)
def names_thread() -> None:
    current().set_status(threading.current_thread().name)


@app.job(queue=QUEUE)
def sleeps() -> None:
    current().set_status("begun")
    time.sleep(LONG_S)


@app.job(queue=QUEUE)
def holds_thread() -> None:
    """Takes no notice of being told, and then learns that it has ended."""
    context = current()
    context.set_status("begun")
    let_go.wait(LONG_S)
    try:
        context.set_status("late")
    except Exception as error:
        errors.append(type(error).__name__)


@app.job(queue=QUEUE)
async def holds_loop() -> None:
    """Swallows every cancellation."""
    context = current()
    await context.set_status_async("begun")
    while not let_go_async.is_set():
        try:
            await let_go_async.wait()
        except asyncio.CancelledError:
            errors.append("CancelledError")
    try:
        await context.set_status_async("late")
    except Exception as error:
        errors.append(type(error).__name__)


@app.job(queue=QUEUE)
async def cleans_up() -> None:
    context = current()
    try:
        await context.set_status_async("begun")
        await asyncio.sleep(LONG_S)
    finally:
        await asyncio.sleep(0)
        await context.set_status_async("cleaned up")


@app.job(queue=QUEUE)
async def blocks_for_checkpoint() -> None:
    """As no coroutine may."""
    current().set_status("never")
