"""An app whose import fails while the file that FLAW names is there; another, …-seen, counts how often."""

from __future__ import annotations

import os
from pathlib import Path

from pinlater_workers import App
from pinlater_workers.jobs.context import current

QUEUE = "flawed"
FLAW = "PINLATER_TEST_FLAW"


class Flawed(Exception):
    pass


def check() -> None:
    flaw = os.environ.get(FLAW)
    if flaw and Path(flaw).exists():
        with Path(f"{flaw}-seen").open("a") as file:
            file.write("x")
        raise Flawed("there is a flaw")


check()
app = App(servers=["127.0.0.1:1"])


@app.job(queue=QUEUE)
def own_id() -> None:
    current().set_status(str(os.getpid()))


@app.job(queue=QUEUE)
def exits() -> None:
    os._exit(1)
