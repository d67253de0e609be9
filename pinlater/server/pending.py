"""One call of a connection, from its last byte to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from pinlater.eager import EagerTask
from pinlater.model import ConnectionRef, DequeuedJob


class Room(Protocol):
    """A connection, as the room for its answers."""

    async def reserve(self, pending: PendingCall, size: int) -> None:
        """As soon as there is room. Overloaded."""

    def reserve_now(self, size: int) -> bool:
        """Where there is room at once."""


class PendingCall(EagerTask):
    """What is kept of a call until its answer is written; `on_end` is told when it is over.

    `gone` says that the caller can no longer be answered with jobs: the connection broke, or its sending side ended,
    which is how the death of a process looks. `size` is that of the message in bytes, `unsent` that of an answer that
    waits for earlier ones. `peer` is the caller's address. `jobs` are those that were claimed
    for this call, until their answer is written; `needs_receipt`: the caller said that he confirms them. `waits` marks
    a long poll that waits, which ends when the caller is gone; `long_poll` a call that was one. `room` is what the
    connection has for answers, and `reserved` what of it is kept for this one until it is made.
    """

    __slots__ = (
        "_on_end",
        "connection",
        "gone",
        "jobs",
        "long_poll",
        "needs_receipt",
        "peer",
        "reply",
        "reserved",
        "room",
        "size",
        "unsent",
        "waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[PendingCall], None],
        size: int,
        peer: object,
        connection: ConnectionRef,
        room: Room | None = None,
    ) -> None:
        super().__init__(loop)
        self._on_end = on_end
        self.size = size
        self.peer = peer
        self.connection = connection
        self.unsent = self.reserved = 0
        self.room = room
        self.reply: bytes | None = None
        self.jobs: Sequence[DequeuedJob] = ()
        self.waits = self.long_poll = self.needs_receipt = False
        self.gone = False

    def on_done(self, value: None, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._loop.call_exception_handler({"message": "a call broke off", "exception": error})
        self._on_end(self)

    async def wait_for_room(self, size: int) -> None:
        """Until there is room for an answer of up to so many bytes, which is then kept for it. Overloaded."""
        if self.room is not None:
            await self.room.reserve(self, size)
            self.reserved += size

    def take_room(self, size: int) -> bool:
        """Keep room for so many bytes more; False where there is none now."""
        if self.room is None:
            return True
        if self.room.reserve_now(size):
            self.reserved += size
            return True
        return False

    def caller_is_gone(self) -> None:
        """No jobs any more for this call; a long poll ends."""
        self.gone = True
        if self.waits:
            self.cancel()
