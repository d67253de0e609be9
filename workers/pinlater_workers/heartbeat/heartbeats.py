"""The heartbeats of a worker: the claims to keep alive, and the process that does it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import random
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

import msgspec

from pinlater.child_process import Restarts, children_inherit_sockets, exit_text
from pinlater.client.client_tls import Tls
from pinlater.client.token import Token
from pinlater.log_guard import GuardedLogger
from pinlater_workers.child_sockets import LoopSocket, start_child
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.heartbeat.beats import silence_s, surely_held_s, usual_interval_s
from pinlater_workers.heartbeat.loop_witness import LoopWitness
from pinlater_workers.heartbeat.messages import (
    Alive,
    Begin,
    BlockedBy,
    ClaimsCancelled,
    ClaimsEnded,
    ClaimsFailing,
    ClaimsRenewed,
    ForgetClaims,
    HeartbeatEntry,
    ProcessReady,
    ProgressEntry,
    SendProgress,
    ToProcess,
    ToWorker,
    WatchClaims,
    WorkerCommanded,
    WorkerState,
    read_by_worker,
    written,
)
from pinlater_workers.heartbeat.own_beats import OwnBeats
from pinlater_workers.jobs.context import StopReason

LIVED_LONG_S = 1.0
READY_WITHIN_S = 10.0
"""A worker begins without it then, and beats itself: the machine is busy."""

LOOK_S = 0.25
ALIVE_PER_SILENCE = 3
TELLS_WITHIN_S = 0.5
END_S = 2.0
UNREAD_BYTES = 16 * 2**20
_MAY_PASS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)

_log = GuardedLogger("pinlater_workers.heartbeat")
_NO_PROCESS = (
    "on this system there is no heartbeat process: this worker's event loop keeps claims alive, so a job that holds "
    "the interpreter lock for longer than the lease loses its claim, and an idle worker is in no list"
)


class Heartbeats:
    """Keeps claims alive from a process that no job can block, and that ends with this one, however this one does.

    `lost(number, why)` is called on the loop: OUT_OF_TOUCH when two beats of a claim in a row have failed (it stays
    watched), CLAIM_LOST when the job is not in progress under that claim any more, or when no beat got through for
    nearly the whole lease (it is forgotten).
    `ended(number)` likewise, when the job has succeeded or failed and nobody claimed it after (it is forgotten): the
    worker's own ack has done that, or somebody else's.
    `cancelled(number, by)` likewise, once, when somebody asks that the job stops (it stays watched).
    `good_s` of what is watched becomes later with every good beat.
    While this event loop does not go round, also claims in `queues` that were made for `source` and are not watched:
    nobody could read of them. `source` is to be this worker's alone then.
    `describe` says what the worker runs; the process tells the servers every now and then, for the list of workers.
    A process that dies is replaced at once and told of every claim; until the next one beats this event loop does.
    `commanded(command)` is called with what an operator wants the worker to do, also more than once.
    `failed(error)` is called, once, when no process comes to beat any more.
    `blocked_by()` is called in a thread when this event loop does not go round for long: the process logs what it says,
    and ends this one when that goes on beyond a job's time limit, where it `may_end` it.
    """

    def __init__(
        self,
        servers: Sequence[str],
        source: str,
        lease_s: float,
        lost: Callable[[int, StopReason], None],
        ended: Callable[[int], None],
        cancelled: Callable[[int, str], None],
        *,
        interval_s: float | None = None,
        queues: Sequence[str] = (),
        describe: Callable[[], WorkerState] | None = None,
        tls: Tls | None = None,
        token: Token | None = None,
        failed: Callable[[ConfigurationError], None] = lambda error: None,
        commanded: Callable[[WorkerCommanded], None] = lambda command: None,
        blocked_by: Callable[[], BlockedBy] = BlockedBy,
        may_end: bool = False,
    ) -> None:
        self._silent_s = silence_s(lease_s)
        interval_s = interval_s or usual_interval_s(lease_s)
        self._begin = Begin(
            list(servers),
            source,
            lease_s,
            interval_s,
            list(queues),
            self._silent_s,
            tls,
            token,
            hears_cancels=True,
            hears_ready=True,
            hears_commands=True,
            may_end=may_end,
        )
        self._blocked_by = blocked_by
        self._held_s = surely_held_s(lease_s)
        self._on_lost = lost
        self._on_ended = ended
        self._on_cancelled = cancelled
        self._on_failed = failed
        self._on_command = commanded
        self._describe = describe
        self._described: WorkerState | None = None
        """As the process knows it."""
        self._claims: dict[int, HeartbeatEntry] = {}
        self._out_of_touch: set[int] = set()
        """Those of which that was told, since their last good beat: two may beat for a moment."""
        self._process: HeartbeatProcess | None = None
        self._own: OwnBeats | None = None
        """While no process beats, and there are claims."""
        self._handing_over: dict[asyncio.Task[None], OwnBeats] = {}
        self._began = self._is_over = False
        """The last process came to beat; none will any more."""
        self._first: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one at the moment."""
        return None if self._process is None else self._process.pid

    def __len__(self) -> int:
        """How many claims are watched."""
        return len(self._claims)

    async def open(self) -> None:
        """Starts the process, as soon as it can be started. In the thread that lives as long as the worker does."""
        self._first = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())
        await asyncio.sleep(0)

    async def ready(self) -> None:
        """Returns when a process beats, or after a while. ConfigurationError: the first one could not begin."""
        assert self._first is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WITHIN_S):
                await asyncio.shield(self._first)
        self._first.cancel()

    async def close(self) -> None:
        """Ends the process. The claims stay as they are, until their leases are over."""
        if self._describe is not None:
            self._send(Alive(msgspec.structs.replace(self._describe(), is_stopping=True, has_stopped=True)))
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        for task in self._handing_over:
            task.cancel()
        for own in [self._own, *self._handing_over.values()]:
            if own is not None:
                await own.close()

    def watch(self, claims: Sequence[HeartbeatEntry]) -> None:
        """Keep these alive. When this returns the message has left, whatever this process does then.

        A beat binds a claim to the process's connection. For a claim that may have been bound to another one since,
        this is called again.
        """
        if not claims:
            return
        self._claims.update({entry.number: entry for entry in claims})
        self._send(WatchClaims(list(claims)))
        self._beat_meanwhile()

    def forget(self, numbers: Iterable[int]) -> None:
        """These have ended. Unknown ones are no error."""
        forgotten = [number for number in numbers if self._claims.pop(number, None) is not None]
        if forgotten:
            self._send(ForgetClaims(forgotten))

    def send_progress(self, progress: Sequence[ProgressEntry]) -> None:
        """With beats of these claims, which are watched; at once."""
        if progress:
            self._send(SendProgress(list(progress)))

    def say_alive(self) -> None:
        """And what the worker runs, where that has changed since it was said last."""
        if self._process is None and self._own is None:
            return
        state = None if self._describe is None else self._describe()
        if state == self._described:
            state = None
        else:
            self._described = state
        self._send(Alive(state))

    def _send(self, message: ToProcess) -> None:
        """To all that beat, or are about to."""
        if self._process is not None:
            self._process.send(message)
        if self._own is not None:
            self._own.send(message)

    # -- the process -----------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """There is a process, again and again. Waits where one could not be started, or did not live long."""
        assert self._first is not None
        if not children_inherit_sockets():
            _log.warning(_NO_PROCESS)
            self._first.set_result(None)
            while True:
                await self._without(math.inf)
        restarts = Restarts()
        while True:
            began_s, may_pass = monotonic(), False
            try:
                code = await self._one_process()
            except OSError as error:
                why, may_pass = f"cannot be started: {error}", error.errno in _MAY_PASS
                _log.error("the heartbeat process %s", why)
            except Exception as error:
                why = f"was lost: {error}"
                _log.exception("the heartbeat process was lost, and is replaced")
            else:
                why, may_pass = f"ended: {exit_text(code)}", code == -signal.SIGKILL
                _log.warning("the heartbeat process %s, and is replaced", why)
            if self._began and monotonic() - began_s >= LIVED_LONG_S:
                restarts.served()
            else:
                restarts.failed(may_pass=may_pass)
            if restarts.is_over or not (self._first.done() or may_pass):
                self._give_up(self._first, why)
            await self._without(restarts.pause_s * random.uniform(0.5, 1.0))

    async def _one_process(self) -> int:
        """The exit code. OSError: it cannot be started."""
        self._began = False
        process = HeartbeatProcess(self._received_from_process, self._blocked_by)
        try:
            self._process = process
            process.send(self._begin)
            self._described = None
            self.say_alive()
            if self._claims:
                process.send(WatchClaims(list(self._claims.values())))
            await self._until_ended(process)
        finally:
            self._process = None
            self._beat_meanwhile()
            code = await process.end()
        return code

    def _give_up(self, first: asyncio.Future[None], why: str) -> None:
        """Told to who waits for the first process, and else to the worker, once."""
        error = ConfigurationError(
            f"the heartbeat process, which keeps claims alive, {why}; what it has written to standard error says why. "
            f"It is started as {sys.executable}, with this program's import path"
        )
        if not first.done():
            first.set_exception(error)
            first.exception()  # nobody has to wait for it
        elif not self._is_over:
            self._is_over = True
            self._on_failed(error)

    @property
    def _process_beats(self) -> bool:
        return self._process is not None and self._began

    def _beat_meanwhile(self) -> None:
        """Until a process beats, where there is something to beat and the worker does not end."""
        if self._own is None and self._claims and not self._process_beats and self._keeper is not None:
            self._own = OwnBeats(self._begin, self._received)
            self._described = None
            self.say_alive()
            self._own.send(WatchClaims(list(self._claims.values())))

    def _note_beats(self) -> None:
        """The process does, and has been told of all claims."""
        assert self._first is not None
        self._began = True
        if not self._first.done():
            self._first.set_result(None)
        own, self._own = self._own, None
        if own is not None:
            task = asyncio.create_task(own.hand_over())
            self._handing_over[task] = own
            task.add_done_callback(self._handing_over.pop)

    async def _until_ended(self, process: HeartbeatProcess) -> None:
        """A process that lives and says nothing, of claims that it should have told as lost, is ended.

        What looks so twice in a row: after this process was held up, there may be messages that it has not read.
        """
        before: set[int] = set()
        reported_s = monotonic()
        while not process.ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await process.ended.wait()
            if monotonic() - reported_s >= self._silent_s / ALIVE_PER_SILENCE:
                reported_s = monotonic()
                self.say_alive()
            overdue = self._overdue(monotonic() - TELLS_WITHIN_S)
            silent = overdue & before
            if silent:
                _log.error("the heartbeat process does not answer, and is ended")
                process.kill()
                self._lose(sorted(silent))
            before = overdue - silent

    async def _without(self, seconds: float) -> None:
        """Waits while there is no process; leases that end meanwhile are told."""
        until_s = monotonic() + seconds
        while (left_s := until_s - monotonic()) > 0:
            self._lose(sorted(self._overdue(monotonic())))
            self.say_alive()
            await asyncio.sleep(min(left_s, LOOK_S))

    def _overdue(self, now_s: float) -> set[int]:
        """Without a good beat for nearly a lease."""
        until_s = now_s - self._held_s
        return {number for number, entry in self._claims.items() if entry.good_s <= until_s}

    # -- what it says ----------------------------------------------------------------------------------------------

    def _received_from_process(self, message: ToWorker) -> None:
        """Whatever it says, it beats: one of an earlier version does not say so."""
        if not self._began:
            self._note_beats()
        if not isinstance(message, ProcessReady):
            self._received(message)

    def _received(self, message: ToWorker) -> None:
        assert not isinstance(message, ProcessReady)
        if isinstance(message, WorkerCommanded):
            self._on_command(message)
            return
        numbers = [number for number in message.numbers if number in self._claims]
        if isinstance(message, ClaimsCancelled):
            for number, by in zip(message.numbers, message.by, strict=True):
                if number in self._claims:
                    self._on_cancelled(number, by)
        elif isinstance(message, ClaimsRenewed):
            self._note_good(numbers, message.good_s)
        elif isinstance(message, ClaimsEnded):
            for number in numbers:
                del self._claims[number]
            for number in numbers:
                self._on_ended(number)
        else:
            self._note_failing(numbers, message)

    def _note_good(self, numbers: Iterable[int], good_s: float) -> None:
        for number in numbers:
            entry = self._claims[number]
            entry.good_s = max(entry.good_s, good_s)
        if self._out_of_touch:
            self._out_of_touch.difference_update(numbers)

    def _note_failing(self, numbers: Sequence[int], failing: ClaimsFailing) -> None:
        if failing.reason is StopReason.CLAIM_LOST:
            self._lose(numbers)
            return
        news = [number for number in numbers if number not in self._out_of_touch]
        self._out_of_touch &= self._claims.keys()
        self._out_of_touch.update(news)
        if news:
            _log.warning("heartbeats of %d claims fail: %s", len(news), failing.detail)
        for number in news:
            self._on_lost(number, failing.reason)

    def _lose(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            del self._claims[number]
        for number in numbers:
            self._on_lost(number, StopReason.CLAIM_LOST)


class HeartbeatProcess:
    """One heartbeat process, started when this is made. OSError: the system starts no process.

    `received` is called on the loop. `ended` is set when the process is gone, or does not listen any more. To be made
    in the thread that lives as long as the worker: the process ends with the thread that started it.
    """

    def __init__(self, received: Callable[[ToWorker], None], blocked_by: Callable[[], BlockedBy]) -> None:
        self.ended = asyncio.Event()
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._child, (connection, witness) = start_child(
            "pinlater_workers.heartbeat.process", 1, self._exited, quiet=True, more=1
        )
        LoopWitness(witness, blocked_by)
        self._socket = LoopSocket(connection, read_by_worker, received, self.ended.set)

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, message: ToProcess) -> None:
        """Nothing where it is gone: its successor is told all. One that does not listen is ended.

        What is sent has left this process when this returns, unless the other one is far behind.
        """
        if self._socket.unsent_bytes > UNREAD_BYTES:
            self.kill()
        else:
            self._socket.send(written(message))

    def kill(self) -> None:
        """`ended` follows."""
        self._child.kill()

    def _exited(self, code: int) -> None:
        self._exit_code.set_result(code)
        self.ended.set()

    async def end(self) -> int:
        """The exit code. It ends by itself when it is not spoken to any more, or is killed soon."""
        self._socket.close()
        try:
            await asyncio.wait([self._exit_code], timeout=END_S)
        finally:
            self._child.kill_now()
        return self._exit_code.result()
