"""An event loop whose time is virtual, the clocks that go by it, and processes that can be frozen on it.

Where nothing is left to do at a moment, time jumps to the next timer. So a run depends on its seed alone, and neither
on the machine nor on what else runs there.
"""

from __future__ import annotations

import asyncio
import gc
import random
import secrets
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import heapify, heappop, heappush
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

MANY_CANCELLED, CANCELLED_PART = 100, 0.5
"""Timers are rid of those that were cancelled, if there are so many in all and these are such a part of them."""

COLLECTIONS = (50_000, 20, 20)
"""The thresholds of the garbage collector."""

LONGEST_S = 86_400.0
"""That time jumps at once."""


class _Time:
    """What has passed of the run, and the numbers of its tasks and futures: there is one run at a time."""

    passed_s = 0.0
    numbers = count(1)


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, which are many, are in one order in each run: by hashes that say which came first."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._number = next(_Time.numbers)
        super().__init__(*args, **named)

    def __hash__(self) -> int:
        return self._number

    @classmethod
    def begin(cls, loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> Self:
        return cls(work, loop=loop, **named)


class _NumberedFuture(asyncio.Future[Any]):
    """Likewise."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = next(_Time.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0. Nothing comes from outside: no socket is read, and what runs on a thread elsewhere is run
    at once. Callbacks run in the order of asyncio's loop; what that does for sockets and threads is left out.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool
    _clock_resolution: float
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        _Time.passed_s, _Time.numbers = 0.0, count(1)
        self._turns = 0
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []
        self._frozen: dict[str, list[asyncio.Handle]] = {}
        self.set_task_factory(_NumberedTask.begin)

    def time(self) -> float:
        return _Time.passed_s

    def run_in_executor(self, executor: Any, func: Callable[..., R], *args: Any) -> asyncio.Future[R]:
        return at_once(self, func, *args)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(loop=self)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(_Time.passed_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        heappush(self._timers, (when, timer))
        return timer

    # -- turns ---------------------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """A turn: what is ready runs, and what is due; where there is neither, time jumps to the next timer."""
        timers, ready = self._timers, self._ready
        if len(timers) > MANY_CANCELLED and self._timer_cancelled_count / len(timers) > CANCELLED_PART:
            self._drop_cancelled()
            timers = self._timers
        while timers and timers[0][1].cancelled():
            heappop(timers)[1]._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1
        self._jump()
        until_s = _Time.passed_s + self._clock_resolution
        while timers and timers[0][0] < until_s:
            _, timer = heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled() and not (self._frozen and self._hold(handle)):
                handle._run()

    def _jump(self) -> None:
        after_s = 0.0
        if not self._ready and not self._stopping:
            if not self._timers:
                raise NothingLeft("everybody waits, and no timer is set")
            after_s = min(self._timers[0][0] - _Time.passed_s, LONGEST_S)
        if after_s > 0:
            _Time.passed_s += after_s
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS:
                _Time.passed_s += TURN_S

    def _drop_cancelled(self) -> None:
        kept = []
        for when, timer in self._timers:
            if timer.cancelled():
                timer._scheduled = False  # type: ignore[attr-defined]
            else:
                kept.append((when, timer))
        heapify(kept)
        self._timers = kept
        self._timer_cancelled_count = 0

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
        return VirtualLoop.call_soon(self, callback, *args, context=context)

    def _hold(self, handle: asyncio.Handle) -> bool:
        """Whether it is a timer of a frozen process, which waits then. What was ready before it froze still runs."""
        if not isinstance(handle, asyncio.TimerHandle):
            return False
        held = self._frozen.get(handle._context.get(PROCESS, ""))  # type: ignore[attr-defined]
        if held is None:
            return False
        held.append(handle)
        return True


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
    return _Time.passed_s


def passed_ns() -> int:
    """What passed since the run began, for all machines."""
    return round(_Time.passed_s * 1_000_000_000)


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


_BEGAN = datetime.fromtimestamp(EPOCH_MS / 1000, UTC)


def virtual_time_of(passed_s: float) -> datetime:
    """The time of day when so much of the run has passed."""
    return _BEGAN + timedelta(seconds=passed_s)


def virtual_seconds(time: datetime) -> float:
    """How much of the run has passed at this time of day."""
    return (time - _BEGAN).total_seconds()


class VirtualDatetime(datetime):
    """In the place of `datetime` where somebody asks it for the time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        now = virtual_time_of(_Time.passed_s)
        return now if tz is UTC else now.astimezone(tz)


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


@contextmanager
def _rare_collections() -> Iterator[None]:
    """A large cluster has millions of objects that stay: to search them for garbage often is a quarter of a run."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def run(work: Coroutine[Any, Any, R], seed: int) -> R:
    """Run it to its end in virtual time; what it leaves behind is cancelled then."""
    from tests.simulation.machines import machines  # noqa: PLC0415  # which go by the time of this module

    with _virtual(seed), machines(), _rare_collections(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
