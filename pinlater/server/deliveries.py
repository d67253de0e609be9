"""Answers with claimed jobs that their callers may not have received yet.

A claim whose answer nobody received costs no attempt, where that is proved: the caller's machine has not acknowledged
the bytes, or the caller, who said that it would confirm them, has not. A hand-out pays a few microseconds for that; it
is looked at within LOOK_EVERY_MS, when almost all are received, and again shortly before its claim expires.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pinlater.clock import Clock
from pinlater.model import ConnectionRef, DequeuedJob, Unreceived

LOOK_EVERY_MS = 500
"""While any is open: one system call for each connection with open ones."""

MARGIN_MS = 500
"""So long before its expiry a claim that nobody received is taken back: after it, maintenance may be quicker."""

ACKNOWLEDGED_WITHIN_S = 0.5
"""Nothing is proved by an answer that left less than this before: kernels wait up to 0.2 s with an acknowledgement, and
one that ends a connection by a reset may never send it.
"""

MOST_OPEN = 200_000
"""Jobs in all; what is handed out beyond that, or beyond as many of one caller as are free, is taken for received."""

MOST_KEPT_BYTES = 8_000_000
"""Of answers whose jobs are kept as they are until the next check; of others their names are taken at once."""

_SHORTEST_WAIT_MS = 10
_CLOSED = 7
_TCP_INFO_BYTES = 128
_BYTES_ACKED_AT = 120

Requeue = Callable[[Sequence[Unreceived]], None]


_Names = tuple[str, str, int]
"""As an Unreceived, of one job."""

_Delivery = tuple[int | None, float, Sequence[DequeuedJob] | list[_Names]]
"""One answer: where in the stream it ends, None where its receipt is awaited; when it left, by the loop's time; and its
jobs. Almost all are received before anybody reads them, so no object of a class is made for any.
"""


class Deliveries:
    """The jobs in unconfirmed answers of a server, by connection. `requeue` gets jobs that were proved undelivered; it
    may not raise.
    """

    def __init__(self, clock: Clock, requeue: Requeue) -> None:
        self._clock = clock
        self.requeue = requeue
        self._streams: dict[Stream, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.open = 0
        """Jobs whose delivery was not known when they were looked at last, and those that were handed out since."""
        self.kept = 0
        """Bytes of answers since then whose jobs are kept whole."""
        self._open_of: Counter[str] | None = None
        """By owner, as `open`; None: nobody has asked since the last look."""

    def takes(self, owner: str, jobs: int) -> bool:
        """Whether there is room for so many of one: no more than is free, so that some is left for others."""
        if self._open_of is None:
            self._open_of = Counter()
            for stream in self._streams:
                self._open_of[stream.owner] += stream.jobs
        if self._open_of[owner] + jobs > MOST_OPEN - self.open:
            return False
        self._open_of[owner] += jobs
        return True

    def watch(self, stream: Stream) -> None:
        self._streams[stream] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_MS / 1000, self._look)

    def close(self) -> None:
        """What is open now is left to the time-outs of its claims."""
        self._streams.clear()
        self.open = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ms, wait_ms = self._clock.now_ms(), LOOK_EVERY_MS
        self._timer = self._open_of = None
        self.open = self.kept = 0
        for stream in list(self._streams):
            due_ms = stream.check(now_ms)
            if due_ms is None:
                del self._streams[stream]
            else:
                self.open += stream.jobs
                wait_ms = min(wait_ms, max(_SHORTEST_WAIT_MS, due_ms - now_ms))
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look)


class Stream:
    """The bytes that one connection sends, from the first answer with jobs on. `written` is where they end."""

    __slots__ = ("_all", "_is_traced", "_loop", "_open", "_sock", "awaits_receipt", "owner", "written")

    def __init__(self, deliveries: Deliveries, transport: asyncio.Transport, owner: str = "") -> None:
        """`owner` is whose share of the room its jobs take."""
        self._all = deliveries
        self.owner = owner
        self._loop = asyncio.get_running_loop()
        sock = transport.get_extra_info("socket")
        self._sock = sock if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6) else None
        self._open: list[_Delivery] = []
        self.written = 0
        self.awaits_receipt = False
        acknowledged = self._acknowledged()
        self._is_traced = acknowledged is not None
        if acknowledged is not None:
            self.written = acknowledged[0] + _in_kernel(sock) + transport.get_write_buffer_size()

    def hand_out(self, jobs: Sequence[DequeuedJob], ahead: int, needs_receipt: bool) -> None:
        """The answer that ends `ahead` bytes behind all that was written holds these."""
        deliveries, end = self._all, None
        if deliveries.open + len(jobs) > MOST_OPEN // 2 and not deliveries.takes(self.owner, len(jobs)):
            return
        if needs_receipt:
            self.awaits_receipt = True
        elif self._is_traced:
            end = self.written + ahead
        else:
            return
        deliveries.open += len(jobs)
        if not self._open:
            deliveries.watch(self)
        deliveries.kept += ahead
        self._open.append((end, self._loop.time(), jobs if deliveries.kept <= MOST_KEPT_BYTES else _named(jobs)))

    @property
    def jobs(self) -> int:
        """Those that are open."""
        return sum(len(jobs) for _, _, jobs in self._open)

    def confirmed(self) -> None:
        """The caller says that it has received all answers so far."""
        self.awaits_receipt = False
        self._open = [each for each in self._open if each[0] is not None]

    def check(self, now_ms: int) -> int | None:
        """Take back what is due; the time at which the next may be. None: nothing is open any more."""
        self._drop_received()
        if not self._open:
            return None
        latest_ms, latest_s = now_ms + MARGIN_MS, self._loop.time() - ACKNOWLEDGED_WITHIN_S
        kept: list[_Delivery] = []
        late: list[_Names] = []
        first_ms: list[int] = []
        for end, left_s, jobs in self._open:
            names = _named(jobs)
            expires_at_ms = min([each[2] for each in names])
            if left_s <= latest_s and expires_at_ms <= latest_ms:
                late += names
            else:
                kept.append((end, left_s, names))
                first_ms.append(expires_at_ms - MARGIN_MS)
        self._open = kept
        if late:
            self._all.requeue(list(map(Unreceived._make, late)))
        return min(first_ms, default=None)

    def end_receipts(self, connection: ConnectionRef) -> None:
        """The caller can send nothing any more: what it has not confirmed it never will. That goes back at once; what
        is bound to the connection is told apart when it is released, after the grace.
        """
        owed = [jobs for end, _, jobs in self._open if end is None]
        self.confirmed()
        self._give_back(connection, owed)

    def disconnected(self, connection: ConnectionRef, *, is_ours: bool) -> None:
        """The connection is gone. Of what was not to be confirmed goes back, likewise, what no kernel tries to deliver
        any more. `is_ours`: this server closed it, and receipts may have been on their way: what these would confirm
        goes back shortly before it expires.
        """
        if not is_ours:
            self.end_receipts(connection)
        acknowledged = self._drop_received()
        has_given_up = acknowledged is not None and acknowledged[1]
        latest_s = self._loop.time() - ACKNOWLEDGED_WITHIN_S
        lost = [jobs for end, left_s, jobs in self._open if end is not None and has_given_up and left_s <= latest_s]
        owed = [each for each in self._open if each[0] is None]
        self._open = [(end, left_s, rest) for end, left_s, jobs in owed if (rest := _not_bound(connection, jobs))]
        self._sock = None
        self._give_back(connection, lost)

    def _give_back(self, connection: ConnectionRef, lost: Iterable[Sequence[DequeuedJob] | list[_Names]]) -> None:
        names = [each for jobs in lost for each in _not_bound(connection, jobs)]
        if names:
            self._all.requeue(list(map(Unreceived._make, names)))

    def forget(self) -> None:
        """The connection goes on elsewhere, or ends with this server: the time-outs decide."""
        self._open = []

    def _drop_received(self) -> tuple[int, bool] | None:
        """What was acknowledged is open no more; None where nobody can tell, or nobody has to."""
        if not self._open or not self._is_traced:
            return None
        acknowledged = self._acknowledged()
        if acknowledged is not None:
            arrived = acknowledged[0]
            if not self.awaits_receipt and (self._open[-1][0] or 0) <= arrived:  # all, as most often
                self._open = []
            else:
                self._open = [each for each in self._open if each[0] is None or each[0] > arrived]
        return acknowledged

    def _acknowledged(self) -> tuple[int, bool] | None:
        """How many bytes the other side has, and whether the kernel has given up; None where it cannot tell."""
        if self._sock is None:
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
        except OSError:
            return None
        if len(info) < _TCP_INFO_BYTES:
            return None
        return struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0], info[0] == _CLOSED


_TCP_INFO = getattr(socket, "TCP_INFO", 11)


def _in_kernel(sock: Any) -> int:
    """Bytes that the kernel took and the other side has not acknowledged."""
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("=i", answer)[0])


def _named(jobs: Sequence[DequeuedJob] | list[_Names]) -> list[_Names]:
    return [
        (job.descriptor, job.claim_descriptor, job.claim_expires_at_ms) if isinstance(job, DequeuedJob) else job
        for job in jobs
    ]


def _not_bound(connection: ConnectionRef, jobs: Sequence[DequeuedJob] | list[_Names]) -> list[_Names]:
    """Those that nobody received and whose claims are not bound to the connection; the others are marked."""
    return [names for names in _named(jobs) if not _mark_undelivered(connection, names)]


def _mark_undelivered(connection: ConnectionRef, job: _Names) -> bool:
    """Marks a claim that is bound to the connection: nobody received it."""
    bound = connection.claims.get(job[0])
    if bound is None or bound.claim_descriptor != job[1]:
        return False
    bound.is_undelivered = True
    return True
