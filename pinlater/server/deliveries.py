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
from collections.abc import Callable, Sequence
from typing import Any

from pinlater.clock import Clock
from pinlater.model import DequeuedJob, Holder, Unreceived

LOOK_EVERY_MS = 500
"""While any is open: one system call for each connection with open ones."""

MARGIN_MS = 500
"""So long before its expiry a claim that nobody received is taken back: after it, maintenance may be quicker."""

ACKNOWLEDGED_WITHIN_S = 0.5
"""Nothing is proved by an answer that left less than this before: kernels wait up to 0.2 s with an acknowledgement, and
one that ends a connection by a reset may never send it.
"""

MOST_OPEN = 100_000
"""Jobs in all; what is handed out beyond that is taken for received."""

_SHORTEST_WAIT_MS = 10
_CLOSED = 7
_TCP_INFO_BYTES = 128
_BYTES_ACKED_AT = 120

Requeue = Callable[[Sequence[Unreceived]], None]


class _Delivery:
    """One answer: the jobs in it, and where in the stream it ends; None: its receipt is awaited.

    Most are received before anybody asks for more than that: what names the jobs is put together only then.
    """

    __slots__ = ("_claim_descriptors", "_descriptors", "_expiries_ms", "end", "left_s")

    def __init__(self, jobs: Sequence[DequeuedJob], end: int | None, left_s: float) -> None:
        self._claim_descriptors = [job.claim_descriptor for job in jobs]  # each slice of large bodies has its own
        self._descriptors = [job.descriptor for job in jobs]
        self._expiries_ms = [job.claim_expires_at_ms for job in jobs]
        self.end = end
        self.left_s = left_s

    def __len__(self) -> int:
        return len(self._descriptors)

    @property
    def first_expiry_ms(self) -> int:
        return min(self._expiries_ms)

    @property
    def jobs(self) -> list[Unreceived]:
        return list(map(Unreceived, self._descriptors, self._claim_descriptors, self._expiries_ms))

    def keep(self, jobs: Sequence[Unreceived]) -> None:
        """Only these."""
        self._claim_descriptors = [job.claim_descriptor for job in jobs]
        self._descriptors = [job.descriptor for job in jobs]
        self._expiries_ms = [job.expires_at_ms for job in jobs]


class Deliveries:
    """Those of all connections of a server. `requeue` gets jobs that were proved undelivered; it may not raise."""

    def __init__(self, clock: Clock, requeue: Requeue) -> None:
        self._clock = clock
        self.requeue = requeue
        self._streams: dict[Stream, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.open = 0
        """Jobs whose delivery is not known yet."""

    def watch(self, stream: Stream) -> None:
        self._streams[stream] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_MS / 1000, self._look)

    def close(self) -> None:
        """What is open now is left to the time-outs of its claims."""
        self._streams.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ms, wait_ms = self._clock.now_ms(), LOOK_EVERY_MS
        self._timer = None
        for stream in list(self._streams):
            due_ms = stream.look(now_ms)
            if due_ms is None:
                del self._streams[stream]
            else:
                wait_ms = min(wait_ms, max(_SHORTEST_WAIT_MS, due_ms - now_ms))
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look)


class Stream:
    """The bytes that one connection sends, from the first answer with jobs on."""

    __slots__ = ("_all", "_loop", "_open", "_sock", "_written", "awaits_receipt")

    def __init__(self, deliveries: Deliveries, transport: asyncio.Transport) -> None:
        self._all = deliveries
        self._loop = asyncio.get_running_loop()
        self._sock = transport.get_extra_info("socket")
        self._open: list[_Delivery] = []
        self._written: int | None = None
        self.awaits_receipt = False
        acknowledged = self._acknowledged()
        if acknowledged is not None:
            self._written = acknowledged[0] + _in_kernel(self._sock) + transport.get_write_buffer_size()

    def hand_out(self, jobs: Sequence[DequeuedJob], ahead: int, *, needs_receipt: bool) -> None:
        """The answer that ends `ahead` bytes behind all that was written holds these."""
        if (self._written is None and not needs_receipt) or self._all.open >= MOST_OPEN:
            return
        end = None if needs_receipt or self._written is None else self._written + ahead
        if needs_receipt:
            self.awaits_receipt = True
        self._all.open += len(jobs)
        if not self._open:
            self._all.watch(self)
        self._open.append(_Delivery(jobs, end, self._loop.time()))

    def wrote(self, size: int) -> None:
        if self._written is not None:
            self._written += size

    def confirmed(self) -> None:
        """The caller says that it has received all answers so far."""
        self.awaits_receipt = False
        self._keep([each for each in self._open if each.end is not None])

    def look(self, now_ms: int) -> int | None:
        """Take back what is due; the time at which the next may be. None: nothing is open any more."""
        self._drop_received()
        latest_ms, latest_s = now_ms + MARGIN_MS, self._loop.time() - ACKNOWLEDGED_WITHIN_S
        late = [each for each in self._open if each.first_expiry_ms <= latest_ms and each.left_s <= latest_s]
        if late:
            self._keep([each for each in self._open if each.first_expiry_ms > latest_ms or each.left_s > latest_s])
            self._all.requeue([job for each in late for job in each.jobs])
        return min((each.first_expiry_ms - MARGIN_MS for each in self._open), default=None)

    def broke(self, holder: Holder) -> None:
        """The connection is gone. What is bound to it is told apart when it is released, after the grace. Of the rest
        goes back at once what no kernel tries to deliver any more; where a receipt may be on its way, later.
        """
        acknowledged = self._drop_received()
        has_given_up = acknowledged is not None and acknowledged[1]
        latest_s = self._loop.time() - ACKNOWLEDGED_WITHIN_S
        still_open, waiting, lost = self._open, [], []
        self._keep([])
        for each in still_open:
            if each.end is None:
                waiting.append(each)
            elif not has_given_up or each.left_s > latest_s:
                continue
            rest = [job for job in each.jobs if not _is_tied(holder, job)]
            if each.end is None:
                each.keep(rest)
            else:
                lost += rest
        self._keep([each for each in waiting if len(each)])
        self._sock = None
        if lost:
            self._all.requeue(lost)

    def forget(self) -> None:
        """The connection goes on elsewhere, or ends with this server: the time-outs decide."""
        self._keep([])

    def _drop_received(self) -> tuple[int, bool] | None:
        ends = [each.end for each in self._open if each.end is not None]
        acknowledged = self._acknowledged() if ends else None
        if acknowledged is not None:
            self._keep([each for each in self._open if each.end is None or each.end > acknowledged[0]])
        return acknowledged

    def _keep(self, kept: list[_Delivery]) -> None:
        self._all.open += sum(map(len, kept)) - sum(map(len, self._open))
        self._open = kept

    def _acknowledged(self) -> tuple[int, bool] | None:
        """How many bytes the other side has, and whether the kernel has given up; None where it cannot tell."""
        if self._sock is None or self._sock.family not in (socket.AF_INET, socket.AF_INET6):
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


def _is_tied(holder: Holder, job: Unreceived) -> bool:
    """Marks a claim that is bound to the connection: nobody received it."""
    tie = holder.ties.get(job.descriptor)
    if tie is None or tie.claim_descriptor != job.claim_descriptor:
        return False
    tie.is_undelivered = True
    return True
