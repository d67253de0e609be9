"""An event loop whose time is virtual, and the clocks that go by it.

Where nothing is left to do at a moment, time jumps to the next timer. So a run depends on its seed alone, and neither
on the machine nor on what else runs there.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeVar
from unittest.mock import patch

import apscheduler.schedulers.base

import pinlater.maintenance.periodic

R = TypeVar("R")
EPOCH_MS = 1_790_000_000_000
"""The time of day at which every run begins."""


class NothingLeft(RuntimeError):
    """Everybody waits, and no timer is set: a deadlock."""


TURNS, TURN_S = 100, 0.000_1
"""A moment has so many turns of the loop; each further one takes time, as somebody is turning until time has passed."""


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: where no timer is due, `passed_s` moves on to the next."""

    passed_s = 0.0
    _turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise NothingLeft("everybody waits, and no timer is set")
        if not ready and timeout:
            self.passed_s += timeout
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS:
                self.passed_s += TURN_S
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.passed_s


def passed_ns() -> int:
    """What passed since the run began, for all machines."""
    return round(asyncio.get_running_loop().time() * 1_000_000_000)


def now_ms() -> int:
    """The true time of day."""
    return EPOCH_MS + passed_ns() // 1_000_000


class MachineClock:
    """The clock of one machine, which may be wrong."""

    uncertainty_ms = 0

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def wall_ns(self) -> int:
        return (EPOCH_MS + self.ahead_ms) * 1_000_000 + passed_ns()

    def now_ms(self) -> int:
        return self.wall_ns() // 1_000_000


class VirtualDatetime(datetime):
    """In the place of `datetime` where somebody asks it for the time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        began = datetime.fromtimestamp(EPOCH_MS / 1000, UTC)
        return (began + timedelta(seconds=asyncio.get_running_loop().time())).astimezone(tz)


@contextmanager
def _virtual(seed: int) -> Iterator[None]:
    """All that is left to chance follows from the seed, also names that are random; the clockwork of background jobs,
    which goes by the time of day, goes by the virtual one.
    """
    rng, before = random.Random(seed), random.getstate()
    random.seed(seed)
    with (
        patch.object(secrets, "token_hex", lambda nbytes=32: rng.randbytes(nbytes).hex()),
        patch.object(secrets, "token_bytes", lambda nbytes=32: rng.randbytes(nbytes)),
        patch.object(apscheduler.schedulers.base, "datetime", VirtualDatetime),
        patch.object(pinlater.maintenance.periodic, "datetime", VirtualDatetime),
    ):
        try:
            yield
        finally:
            random.setstate(before)


def run(work: Coroutine[Any, Any, R], seed: int) -> R:
    """Run it to its end in virtual time; what it leaves behind is cancelled then."""
    with _virtual(seed), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
