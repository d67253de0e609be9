"""Jobs that say what they find, and then change all that a job can change for itself."""

from __future__ import annotations

import asyncio
import decimal
from contextvars import ContextVar

from pinlater_workers import App, Batch, Middleware
from pinlater_workers.jobs.context import JobContext, current

QUEUE = "traces"

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
region: ContextVar[str] = ContextVar("region", default="nowhere")

_seen: list[str] = []
"""What middleware has found, for the job to say."""


def set_up() -> None:
    """What an app sets when it is imported."""
    region.set("home")
    decimal.setcontext(decimal.Context(prec=50))


def found(*, own_loop: bool = False) -> str:
    arithmetic = decimal.getcontext()
    flags = [flag.__name__ for flag, is_set in arithmetic.flags.items() if is_set]
    traps = [trap.__name__ for trap, is_set in arithmetic.traps.items() if is_set]
    seen: list[object] = [tenant.get(), region.get(), arithmetic.prec, arithmetic.rounding, *flags, *traps]
    if own_loop:
        loop = asyncio.get_running_loop()
        seen += [loop.get_exception_handler(), loop.get_task_factory(), loop.get_debug()]
    return " ".join(map(str, seen))


def leave(whose: str) -> None:
    tenant.set(whose)
    region.set(whose)
    arithmetic = decimal.getcontext()
    arithmetic.prec = 3
    arithmetic.rounding = decimal.ROUND_UP
    arithmetic.traps[decimal.Inexact] = True
    arithmetic.flags[decimal.Underflow] = True


def leave_in_loop() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    loop.set_task_factory(lambda loop, coroutine, **named: asyncio.Task(coroutine, loop=loop, **named))
    loop.set_debug(True)


def report(*, own_loop: bool = False) -> str:
    said = "; ".join([*_seen, found(own_loop=own_loop)])
    _seen.clear()
    return said


class Tracing(Middleware):
    def before(self, context: JobContext) -> None:
        _seen.append(found())
        leave("middleware")


app = App(servers=["127.0.0.1:1"], middleware=[Tracing()])


@app.job(queue=QUEUE)
def plain(own_loop: bool) -> None:
    current().set_status(report())
    leave(current().descriptor)


@app.job(queue=QUEUE)
async def coroutine(own_loop: bool) -> None:
    said = report(own_loop=own_loop)
    leave(current().descriptor)
    if own_loop:
        leave_in_loop()
    await current().set_status_async(said)
    current().progress(0.5, "on its way")


@app.job(queue=QUEUE, batch=3)
def plain_batch(batch: Batch[bool]) -> None:
    batch[0].context.set_status(report())
    leave("batch")


@app.job(queue=QUEUE, batch=3)
async def coroutine_batch(batch: Batch[bool]) -> None:
    said = report()
    leave("batch")
    await batch[0].context.set_status_async(said)
