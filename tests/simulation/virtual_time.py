"""An event loop whose time is virtual, the clocks that go by it, and processes that can be frozen on it.

Where nothing is left to do at a moment, time jumps to the next timer. So a run depends on its seed alone, and neither
on the machine nor on what else runs there.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import selectors
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count
from typing import Any, Self, TypeVar
from unittest.mock import patch

import pinlater.maintenance.periodic
from tests.simulation.threads import at_once

R = TypeVar("R")
EPOCH_MS = 1_790_000_000_000
"""The time of day at which every run begins."""

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""Whose work a callback of the loop is; "" is nobody's: a caller's, the network's, the test's."""


class NothingLeft(RuntimeError):
    """Everybody waits, and no timer is set: a deadlock."""


TURNS, TURN_S = 100, 0.000_1
"""A moment has so many turns of the loop; each further one takes time, as somebody is turning until time has passed."""


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: where no timer is due, `passed_s` moves on to the next."""

    passed_s = 0.0
    _turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self.passed_s += timeout
            self._turns = 0
        elif timeout is None:
            raise NothingLeft("everybody waits, and no timer is set")
        else:
            self._turns += 1
            if self._turns > TURNS:
                self.passed_s += TURN_S
        return []


_numbers = count(1)


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, which are many, are in one order in each run: by hashes that say which came first."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._number = next(_numbers)
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._number

    @classmethod
    def begin(cls, loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Self:
        return cls(work, loop=loop, **named)


class _NumberedFuture(asyncio.Future[Any]):
    """Likewise."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0. Nothing comes from outside: no socket is read, and what runs on a thread elsewhere is run
    at once.
    """

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._ready: deque[asyncio.Handle]
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self.set_task_factory(_NumberedTask.begin)

    def time(self) -> float:
        return self._jumping.passed_s

    def run_in_executor(self, executor: Any, func: Callable[..., R], *args: Any) -> asyncio.Future[R]:
        return at_once(self, func, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(loop=self)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    # -- frozen processes --------------------------------------------------------------------------------------------

    def freeze(self, process: str) -> None:
        """Nothing of this process runs any more, as after SIGSTOP; what would, waits until `thaw`."""
        self._frozen.setdefault(process, [])
        self.call_soon = self._call_soon_unless_frozen  # type: ignore[method-assign]  # for nobody else it costs a step

    def thaw(self, process: str) -> None:
        """It goes on with all that waits, in order; what is cancelled meanwhile does not run."""
        held = self._frozen.pop(process, None)
        if held is not None:
            self._ready.extend(held)
            if not self._frozen:
                del self.call_soon

    def _call_soon_unless_frozen(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = PROCESS.get() if context is None else context.get(PROCESS, "")
        if process in self._frozen:
            handle = asyncio.Handle(callback, args, self, context)
            self._frozen[process].append(handle)
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = PROCESS.get() if context is None else context.get(PROCESS, "")
        if not process:
            return super().call_at(when, callback, *args, context=context)
        own: list[asyncio.TimerHandle] = []
        timer = super().call_at(when, self._due, process, own, callback, args, context=context)
        own.append(timer)
        return timer

    def _due(self, process: str, own: list[asyncio.TimerHandle], callback: Callable[..., object], args: Any) -> None:
        if process in self._frozen:
            self._frozen[process].append(
                asyncio.Handle(self._due, (process, own, callback, args), self, copy_context())
            )
        elif not own[0].cancelled():
            callback(*args)


def virtual_loop() -> VirtualLoop:
    """The loop of the run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def as_process(process: str) -> Context:
    """A context in which all that is begun is work of this process."""
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


# -- clocks ------------------------------------------------------------------------------------------------------------


def passed_s() -> float:
    """In the place of `time.monotonic`."""
    return asyncio.get_running_loop().time()


def passed_ns() -> int:
    """What passed since the run began, for all machines."""
    return round(asyncio.get_running_loop().time() * 1_000_000_000)


def now_ms() -> int:
    """The true time of day."""
    return EPOCH_MS + passed_ns() // 1_000_000


class MachineClock:
    """The clock of one machine. It may be wrong by a constant, be set, and go too fast or too slow."""

    uncertainty_ms = 0

    def __init__(self, ahead_ms: int = 0) -> None:
        self._ahead_ns = ahead_ms * 1_000_000
        self._drift_ppm = 0
        self._since_ns = 0

    def set_ahead(self, ahead_ms: int, drift_ppm: int = 0) -> None:
        """From now on it is so far ahead of the true time, and gains so many millionths of what passes."""
        self._ahead_ns, self._drift_ppm, self._since_ns = ahead_ms * 1_000_000, drift_ppm, passed_ns()

    def wall_ns(self) -> int:
        passed = passed_ns()
        gained_ns = (passed - self._since_ns) * self._drift_ppm // 1_000_000
        return EPOCH_MS * 1_000_000 + passed + self._ahead_ns + gained_ns

    def now_ms(self) -> int:
        return self.wall_ns() // 1_000_000


class VirtualDatetime(datetime):
    """In the place of `datetime` where somebody asks it for the time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        began = datetime.fromtimestamp(EPOCH_MS / 1000, UTC)
        return (began + timedelta(seconds=asyncio.get_running_loop().time())).astimezone(tz)


# -- a run -------------------------------------------------------------------------------------------------------------


@contextmanager
def _virtual(seed: int) -> Iterator[None]:
    """All that is left to chance follows from the seed, also names that are random; the clockwork of background jobs,
    which goes by the time of day, goes by the virtual one.
    """
    rng, before = random.Random(seed), random.getstate()
    random.seed(seed)
    with ExitStack() as stack:
        for owner, name, value in (
            (secrets, "token_hex", lambda nbytes=32: rng.randbytes(nbytes).hex()),
            (secrets, "token_bytes", lambda nbytes=32: rng.randbytes(nbytes)),
            (secrets, "token_urlsafe", lambda nbytes=32: rng.randbytes(nbytes).hex()),
            (uuid, "uuid4", lambda: uuid.UUID(bytes=rng.randbytes(16), version=4)),
            (random, "SystemRandom", lambda: random.Random(rng.random())),
            (pinlater.maintenance.periodic, "datetime", VirtualDatetime),
        ):
            stack.enter_context(patch.object(owner, name, value))
        try:
            yield
        finally:
            random.setstate(before)


def run(work: Coroutine[Any, Any, R], seed: int) -> R:
    """Run it to its end in virtual time; what it leaves behind is cancelled then."""
    from tests.simulation.machines import machines  # noqa: PLC0415  # which go by the time of this module

    with _virtual(seed), machines(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
