"""Jobs that hold the interpreter lock, as C code does, and what is claimed meanwhile."""

from __future__ import annotations

import ctypes
import time

from pinlater_workers import App

QUEUE = "held"
OPENS_WITHIN_S = 0.5
"""The worker asks for more jobs as soon as this one runs."""

app = App(servers=["127.0.0.1:1"])


@app.job(queue=QUEUE)
def hold(seconds: int) -> None:
    time.sleep(OPENS_WITHIN_S)
    print(f"holds for {seconds} s", flush=True)
    ctypes.PyDLL(None).sleep(seconds)


@app.job(queue=QUEUE, attempts=1)
def holds_from_its_first_instant(seconds: int) -> None:
    if seconds:
        print(f"holds for {seconds} s", flush=True)
        ctypes.PyDLL(None).sleep(seconds)


@app.job(queue=QUEUE, attempts=1)
def quick() -> None:
    print("quick ran", flush=True)
