"""Jobs that every pool runs, each as a plain function and, named `…_async`, as a coroutine."""

from __future__ import annotations

import asyncio

from pinlater_workers import App, Fail, Reschedule, Retry, Snooze
from pinlater_workers.jobs.context import current

QUEUE = "pools"
LONG_S = 60.0

app = App(servers=["127.0.0.1:1"])


@app.job(queue=QUEUE)
def nothing() -> None:
    pass


@app.job(queue=QUEUE)
async def nothing_async() -> None:
    pass


@app.job(queue=QUEUE, retry=[7])
def raises(what: str) -> None:
    raise _error(what)


@app.job(queue=QUEUE, retry=[7])
async def raises_async(what: str) -> None:
    await asyncio.sleep(0)
    raise _error(what)


def _error(what: str) -> BaseException:
    known = {
        "ValueError": ValueError("a bad value"),
        "surrogate": ValueError("half of a pair: \udc80"),
        "Retry": Retry("busy", after=3),
        "Fail": Fail("never again"),
        "Snooze": Snooze(5, "not now"),
        "Reschedule": Reschedule(60),
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
    }
    return known[what]


@app.job(queue=QUEUE)
def saves(text: str) -> None:
    current().checkpoint(saves.body(text + "!"))


@app.job(queue=QUEUE)
async def saves_async(text: str) -> None:
    await current().checkpoint_async(saves_async.body(text + "!"))


@app.job(queue=QUEUE)
def until_told() -> None:
    """Says that it has begun, and then why it was told to stop."""
    context = current()
    context.set_status("begun")
    context.wait(LONG_S)
    context.set_status(str(context.cancel_reason))


@app.job(queue=QUEUE)
async def until_told_async() -> None:
    context = current()
    await context.set_status_async("begun")
    await context.wait_async(LONG_S)
    await context.set_status_async(str(context.cancel_reason))


@app.raw_job(queue=QUEUE)
def raw(body: bytes) -> None:
    current().checkpoint(body)


@app.raw_job(queue=f"{QUEUE}_async")
async def raw_async(body: bytes) -> None:
    await current().checkpoint_async(body)
