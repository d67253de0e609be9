"""Ended jobs on their way to the worker: told once in a turn of the loop, however many there are."""

from __future__ import annotations

import asyncio

from pinlater_workers.pools.base import Ended
from pinlater_workers.running import Running
from pinlater_workers.verdict import Verdict


class Report:
    """For the loop's own thread alone."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._jobs: list[tuple[Running, Verdict]] = []
        self._closed = False

    def add(self, running: Running, verdict: Verdict) -> None:
        if not self._jobs:
            asyncio.get_running_loop().call_soon(self._tell)
        self._jobs.append((running, verdict))

    def close(self) -> None:
        """What has ended is told now, and nothing after it."""
        self._tell()
        self._closed = True

    def _tell(self) -> None:
        jobs, self._jobs = self._jobs, []
        if jobs and not self._closed:
            self._ended(jobs)
