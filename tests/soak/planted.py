"""Faults that a test plants in the processes of servers, to show that a soak finds them. No code of the product knows.

`variables(FOLDER, NAME...)` are for the environment of a server: its Python then finds a `sitecustomize` that calls
`plant`, before any module of the product is there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

PLANTED = "SOAK_PLANTED"
ROOT = Path(__file__).parents[2]
PRELOADED = "import tests.soak.planted\ntests.soak.planted.plant()\n"
LEAK_EVERY_S = 0.1
LEAK_BYTES = 256 * 1024
LOST_OF = 15
"""One enqueue of so many loses its jobs."""

MOST_LEAKS = 800
"""More than a test needs, and less than the machine has."""


def variables(folder: Path, *names: str) -> dict[str, str]:
    """`names`: functions of this module."""
    assert all(name in FAULTS for name in names)
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PRELOADED)
    path = filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {PLANTED: ",".join(names), "PYTHONPATH": os.pathsep.join(path)}


def plant() -> None:
    """In a server process, and in no other: their supervisors have the same environment."""
    if "pinlater.app" in sys.orig_argv:
        for name in os.environ[PLANTED].split(","):
            FAULTS[name]()


def _go_on(leak: Any) -> None:
    def leaking() -> None:
        kept: list[object] = []
        while len(kept) < MOST_LEAKS:
            kept.append(leak())
            time.sleep(LEAK_EVERY_S)
        threading.Event().wait()  # so that all of it is kept

    threading.Thread(target=leaking, daemon=True).start()


def memory() -> None:
    """A server process keeps a little more, again and again."""
    _go_on(lambda: b"x" * LEAK_BYTES)


def descriptors() -> None:
    """It opens files that it never closes."""
    _go_on(lambda: os.open(os.devnull, os.O_RDONLY))


def rows() -> None:
    """Jobs that have ended stay, however old they are."""
    shards = import_module("pinlater.backends.sql.sqlite").SqliteShard

    async def nothing(shard: Any, *arguments: Any, **more: Any) -> dict[str, int]:
        return {}

    shards.prune = nothing


def lost_jobs() -> None:
    """Some enqueues are answered, and their jobs are not there."""
    key_of = import_module("pinlater.backends.requests").JobKey
    shards = import_module("pinlater.backends.sql.sqlite").SqliteShard
    real, calls = shards.enqueue, count(1)

    async def enqueue(shard: Any, queue: str, jobs: Sequence[Any], now_ms: int) -> list[str]:
        found: list[str] = await real(shard, queue, jobs, now_ms)
        if next(calls) % LOST_OF == 0:
            keys = [key_of(job.priority, int(name.rpartition(":")[2])) for job, name in zip(jobs, found, strict=True)]
            await shard.cancel(queue, keys, now_ms)
        return found

    shards.enqueue = enqueue


FAULTS = {each.__name__: each for each in (memory, descriptors, rows, lost_jobs)}
