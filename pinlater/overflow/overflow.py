"""The overflow shard of a server, as each of its processes sees it: owned here, or reached where it is owned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from pinlater.api import Api
from pinlater.client.addresses import Address
from pinlater.data_folder.identity import overflow_id
from pinlater.errors import (
    EnqueueRejected,
    OutcomeUnknown,
    PinLaterError,
    RequestInvalid,
    ServerUnreachable,
    ShardConnectionFailed,
)
from pinlater.maintenance import Periodic
from pinlater.model import DequeuedJob, DequeueFromQueuesRequest, DequeueRequest, Job, RequestContext
from pinlater.overflow.ownership import STORE, OwnedOverflow, OwnerDirectory, OwnerLock, own, read_address
from pinlater.overflow.service import OverflowService
from pinlater.overflow.store import ServerContext

R = TypeVar("R")
_log = structlog.get_logger("pinlater.overflow")

LOCK = "overflow.lock"
LOOK_EVERY_MS = 1_000
MOVE_EVERY_MS = 500


class Overflow:
    """`bound_bytes` 0: nothing is taken, but what the data folder has from before is kept, and moved.

    `host` is where the owner listens, `advertised` the name that other servers reach it by.
    """

    def __init__(
        self, folder: Path, server: str, bound_bytes: int, context: ServerContext, *, host: str, advertised: str = ""
    ) -> None:
        self.id = overflow_id(server)
        self.context = context
        self._folder = folder
        self._bound = bound_bytes
        self._host = host
        self._advertised = advertised or host
        self._lock = OwnerLock(folder / LOCK)
        self._owners = OwnerDirectory(context, self.id)
        self._turn = asyncio.Lock()
        self._owned: OwnedOverflow | None = None
        self.under_way: set[asyncio.Task[Any]] = set()
        """Acks that are carried out although their callers are gone; the end waits for them."""
        self.is_leaving = False
        self._is_closed = False
        self._error = ""

    @property
    def service(self) -> OverflowService | None:
        """The shard itself, where this process owns it."""
        return None if self._owned is None else self._owned.service

    @property
    def takes_jobs(self) -> bool:
        """Whether it is there to take jobs, and not only to move those that are left."""
        return self._bound > 0

    @property
    def is_owner(self) -> bool:
        return self._owned is not None

    # -- the life of it ----------------------------------------------------------------------------------------------

    async def open(self, periodic: Periodic | None = None) -> None:
        """Own the file or find its owner, and go on looking. Raises nothing: what fails is tried again."""
        await self.look()
        if periodic is not None:
            periodic.every(LOOK_EVERY_MS, "overflow_owner", self.look)
            periodic.every(LOOK_EVERY_MS, "overflow_tidy", self.tidy, rests=self._is_elsewhere)
            periodic.every(MOVE_EVERY_MS, "overflow_move", self.move, rests=self._is_elsewhere)

    def _is_elsewhere(self) -> bool:
        return not self.is_owner

    async def look(self) -> None:
        """Take the file over where nobody has it; learn where the owners are."""
        async with self._turn:
            if self._is_closed:
                return
            self._owners.learn()
            if self._owned is not None:
                return
            try:
                if not self.is_leaving and self._wants_it() and self._lock.take():
                    self._owned = await own(self._folder, self.id, self._bound, self.context, self._host)
                    self._error = ""
                    self._owners.forget(self.id)
                else:
                    self._owners.seen(self.id, read_address(self._folder))
            except Exception as error:  # whatever it is: another process may be able to
                self._lock.free()
                if self._error != str(error):
                    self._error = str(error)
                    is_known = isinstance(error, PinLaterError | OSError)
                    _log.error(
                        "overflow_not_opened",
                        file=str(self._folder / STORE),
                        error=self._error,
                        exc_info=not is_known,
                    )

    def _wants_it(self) -> bool:
        return self._bound > 0 or (self._folder / STORE).exists()

    async def tidy(self) -> None:
        """Maintenance of the file, where this process owns it."""
        if self.service is not None:
            try:
                await self.service.tidy()
            except PinLaterError as error:
                _log.warning("overflow_not_tidied", shard=self.id, error=error.message)

    async def move(self) -> None:
        """Jobs that wait go to the shards, where this process owns the file and a shard takes jobs."""
        service = self.service
        if service is not None and service.mover.holding and service.mover.can_move():
            moved = await service.mover.move()
            if moved:
                await service.count_jobs()
                _log.info("overflow_jobs_moved", shard=self.id, jobs=moved, left=service.waiting)

    def start_leaving(self) -> None:
        """This process ends soon: the file is taken over no more."""
        self.is_leaving = True

    async def drain(self, timeout_s: float) -> None:
        """Move what can be moved in that time; what is moved beside it ends with it."""
        self.start_leaving()
        try:
            async with asyncio.timeout(timeout_s):
                await self.move()
        except TimeoutError:
            _log.warning("overflow_drain_not_ended", shard=self.id, timeout_ms=round(timeout_s * 1000))
        finally:
            if self.service is not None:
                self.service.mover.stop()

    async def close(self) -> None:
        """Leave the file to others; says how many jobs are in it. After `Periodic.close`."""
        if self.under_way:
            await asyncio.wait(self.under_way)
        async with self._turn:
            self.is_leaving = self._is_closed = True
            owned, self._owned = self._owned, None
            if owned is not None:
                await owned.close()
            self._lock.free()
            await self._owners.close()

    def describe(self) -> dict[str, Any]:
        """For the lease of this process: nothing where it owns no overflow shard."""
        if self._owned is None:
            return {}
        return {
            "overflow_id": self.id,
            "overflow_tls": self.context.tls is not None,
            "overflow_address": str(Address(self._advertised, self._owned.port)),
            "overflow_since_ms": self._owned.since_ms,
            "overflow_jobs": self._owned.service.waiting,
        }

    # -- asking owners -----------------------------------------------------------------------------------------------

    async def at(self, shard_id: str, call: Callable[[Api], Coroutine[Any, Any, R]]) -> R:
        """The call at the owner of that overflow shard. ShardConnectionFailed: it cannot be reached."""
        why = "no server has reported where it is"
        for _ in range(2):
            owner = self._owner(shard_id)
            if owner is None:
                await self.look()
                owner = self._owner(shard_id)
            if owner is None:
                break
            try:
                return await call(owner)
            except ServerUnreachable as error:
                why = error.message
                await self.look()
        raise ShardConnectionFailed(f"overflow shard {shard_id}: server {shard_id[1:]} cannot be reached now: {why}")

    def _owner(self, shard_id: str) -> Api | None:
        if shard_id == self.id and self.service is not None:
            return self.service.api
        return self._owners.client(shard_id)

    async def enqueue(
        self, queue: str, jobs: Sequence[Job], context: RequestContext | None, refusal: PinLaterError
    ) -> list[str]:
        """Keep jobs that no shard took; `refusal` says why none did, and is raised where they cannot be kept either.

        EnqueueRejected: no room. OutcomeUnknown: they may be kept.
        """
        if self._bound == 0:
            raise refusal
        try:
            return await self.at(self.id, lambda owner: owner.enqueue(queue, jobs, context=context))
        except (EnqueueRejected, OutcomeUnknown, RequestInvalid):
            raise
        except PinLaterError as error:
            text = f"{refusal.message}; nor did the overflow shard: {error.message}"
            raise type(refusal)(
                text,
                reason=refusal.reason,
                retry_after_ms=refusal.retry_after_ms,
                job_descriptors=refusal.job_descriptors,
            ) from error

    async def dequeue(self, request: DequeueRequest, context: RequestContext | None) -> list[DequeuedJob] | None:
        """Jobs of this server's overflow shard; None: it has none, or cannot be asked."""
        return await self._ask(lambda owner: owner.dequeue(request, context=context))

    async def dequeue_from_queues(
        self, request: DequeueFromQueuesRequest, context: RequestContext | None
    ) -> list[DequeuedJob] | None:
        """As `dequeue`. That a queue is not there means nothing here: it comes with its jobs."""
        dequeued = await self._ask(lambda owner: owner.dequeue_from_queues(request, context=context))
        return None if dequeued is None else list(dequeued)

    async def _ask(self, call: Callable[[Api], Coroutine[Any, Any, R]]) -> R | None:
        if self._owned is None and not self._wants_it():
            return None
        try:
            return await self.at(self.id, call)
        except RequestInvalid:
            raise
        except PinLaterError:
            return None
