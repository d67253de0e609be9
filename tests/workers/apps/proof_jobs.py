"""Jobs whose fate is known before they run, in each of the three pools; what they do is a matter of their arguments."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinlater.model import JobState
from pinlater_workers import App, Fail, Snooze
from pinlater_workers.jobs.context import JobContext, current
from pinlater_workers.jobs.settings import POOLS
from tests.workers.apps.proof_journal import KEPT, alone, note, noted

LIMIT_S = 1.0
WORK_S = 0.02
LAST_S = 6.5
"""More than the lease of the proof."""

SNOOZE_S = 0.1
HANG_S = 120.0
LONG_S = 8.0
HOLD_S = 6
SNOOZES = 2
PATIENT = 40
"""Attempts of jobs that succeed in the end: more than all the kills of a proof can spend."""

GATE = "gate"
"""A file in the worker's folder."""

SETTINGS: dict[str, dict[str, Any]] = {
    "patient": {"attempts": PATIENT},
    "thrice": {"attempts": 3},
    "short": {"attempts": PATIENT, "time_limit": LIMIT_S},
    "short_twice": {"attempts": 2, "time_limit": LIMIT_S},
}
"""One type of job for each, in each pool. The queue is the name of the pool."""

RETRY = f"constant delay=50ms retries={PATIENT}"


@dataclass(frozen=True, slots=True)
class Fate:
    """`says`: what its status has at the end. `killed`: it ends its own process."""

    settings: str
    state: JobState
    says: str = ""
    killed: bool = False


FATES = {
    "quick": Fate("patient", JobState.SUCCEEDED),
    "works": Fate("patient", JobState.SUCCEEDED),
    "stumbles": Fate("patient", JobState.SUCCEEDED),
    "lasts": Fate("patient", JobState.SUCCEEDED),
    "snoozes": Fate("patient", JobState.SUCCEEDED),
    "goes_on": Fate("patient", JobState.SUCCEEDED),
    "hangs_once": Fate("short", JobState.SUCCEEDED),
    "exits": Fate("patient", JobState.SUCCEEDED, killed=True),
    "is_killed": Fate("patient", JobState.SUCCEEDED, killed=True),
    "refuses": Fate("patient", JobState.FAILED, "never again"),
    "fails": Fate("thrice", JobState.FAILED),
    "hangs": Fate("short_twice", JobState.FAILED),
}
"""Those that a proof counts on, by the thousand."""

CLAIM_FATES = {
    "sleeps_once": Fate("patient", JobState.SUCCEEDED),
    "takes_long": Fate("patient", JobState.SUCCEEDED),
    "holds_interpreter": Fate("patient", JobState.SUCCEEDED),
    "waits_for_gate": Fate("patient", JobState.SUCCEEDED),
}
"""Those that hold their claims for a while."""


class Stumbled(Exception):
    pass


app = App(servers=["127.0.0.1:1"])


def job_name(pool: str, fate: str) -> str:
    return f"{pool}_{(FATES | CLAIM_FATES)[fate].settings}"


def _act(fate: str, context: JobContext) -> float:
    """How long the job then takes. Raises what ends the attempt."""
    assert context.envelope is not None
    match fate:
        case "works":
            return WORK_S
        case "lasts":
            return LAST_S
        case "stumbles" if context.attempt <= 2:
            raise Stumbled
        case "snoozes" if context.envelope.snoozes < SNOOZES:
            raise Snooze(SNOOZE_S)
        case "refuses":
            raise Fail("never again")
        case "fails":
            raise Stumbled
        case "hangs":
            return HANG_S
        case "hangs_once" if context.attempt == 1:
            return HANG_S
        case "exits" if context.attempt == 1:
            os._exit(7)
        case "is_killed" if context.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleeps_once" if context.attempt == 1:
            return HANG_S
        case "takes_long":
            return LONG_S
        case "holds_interpreter":
            ctypes.PyDLL(None).sleep(HOLD_S)
        case "waits_for_gate":
            while not Path(GATE).exists():
                time.sleep(0.01)
    return 0.0


def in_process(number: int, fate: str, step: int = 0) -> None:
    context = current()
    with alone(number, context, step), noted(number, context, step):
        if fate == "goes_on" and step == 0:
            context.checkpoint(app.job_types[context.job].body(number, fate, 1))
            note(KEPT, number, context, step)
            os._exit(7)
        time.sleep(_act(fate, context))


def in_thread(number: int, fate: str, step: int = 0) -> None:
    context = current()
    with noted(number, context, step):
        if fate == "goes_on" and step == 0:
            context.checkpoint(app.job_types[context.job].body(number, fate, 1))
            note(KEPT, number, context, step)
            raise Stumbled
        if context.wait(_act(fate, context)) and fate == "hangs":
            raise Stumbled  # told to end, with its worker for example; it has not done what it was for


async def on_loop(number: int, fate: str, step: int = 0) -> None:
    context = current()
    with noted(number, context, step):
        if fate == "goes_on" and step == 0:
            await context.checkpoint_async(app.job_types[context.job].body(number, fate, 1))
            note(KEPT, number, context, step)
            raise Stumbled
        await asyncio.sleep(_act(fate, context))


def nothing() -> None:
    pass


async def nothing_on_loop() -> None:
    pass


FUNCTIONS: dict[str, Callable[..., Any]] = {"process": in_process, "thread": in_thread, "async": on_loop}
for _pool in POOLS:
    for _name, _settings in SETTINGS.items():
        app.job(queue=_pool, name=f"{_pool}_{_name}", pool=_pool, retry=RETRY, **_settings)(FUNCTIONS[_pool])

app.job(queue="thread", name="thread_nothing", pool="thread")(nothing)
app.job(queue="async", name="async_nothing", pool="async")(nothing_on_loop)
