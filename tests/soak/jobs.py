"""The jobs of the soak: each writes its number into a file outside of every store when it ends.

Lines of `journal`, in the folder of the worker: `done NUMBER`, `tick DESCRIPTOR`, `item FLOW`; one short append each,
so that those of many processes never mix.
"""

from __future__ import annotations

import functools
import os
import time

from pinlater_workers import App, Fail
from pinlater_workers.jobs.context import current

JOURNAL = "journal"
QUEUES = ("mail", "keyed", "chained", "tenants", "large", "apart", "later", "web", "ticks", "steps")
ATTEMPTS = 60
"""More than all kills of a run can spend on one job."""

RETRY = f"constant delay=100ms retries={ATTEMPTS}"
HELD_S = 0.02
FINE, STUMBLES, REFUSES = "fine", "stumbles", "refuses"
"""What becomes of a job: it succeeds, fails once before that, or fails for good."""

app = App(servers=["127.0.0.1:1"])


class Stumbled(Exception):
    """Expected, once for each job that stumbles."""


@functools.cache
def _journal() -> int:
    return os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _note(*words: object) -> None:
    os.write(_journal(), (" ".join(map(str, words)) + "\n").encode())


def _work(number: int, fate: str) -> None:
    if fate == STUMBLES and current().attempt == 1:
        raise Stumbled
    time.sleep(HELD_S)
    _note("done", number)
    if fate == REFUSES:
        raise Fail("as it was told to")


@app.job(queue="mail", attempts=ATTEMPTS, retry=RETRY)
def work(number: int, fate: str = FINE, filling: str = "") -> None:
    if filling and not filling.startswith(f"{number} "):
        raise Fail(f"another body than that of {number}")
    _work(number, fate)


@app.job(queue="apart", pool="process", attempts=ATTEMPTS, retry=RETRY)
def work_apart(number: int, fate: str = FINE) -> None:
    _work(number, fate)


@app.job(queue="ticks", attempts=ATTEMPTS, retry=RETRY)
def tick() -> None:
    _note("tick", current().descriptor)


@app.job(queue="steps", attempts=ATTEMPTS, retry=RETRY)
def step(flow: str, item: int) -> int:
    _note("item", flow)
    return item
