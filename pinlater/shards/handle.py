"""One shard as the router sees it: the chain to its store, whether it is in, and how its clock stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from pinlater.backends.base import KeyStore, Shard
from pinlater.clock import Clock
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
    StoreConflict,
    StoreFull,
    StoreRefused,
)
from pinlater.model import ShardView
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.decorator import ShardDecorator
from pinlater.shards.health import Health, HealthSettings, Pause

R = TypeVar("R")
FIRST_ROOM_PAUSE_MS, ROOM_PAUSE_MS = 1_000, 5_000
"""How long a full shard is believed to be full at least: longer when it was so again soon."""

ROOM_LASTED_MS = 60_000
NOT_TRIED = "it was not reached yet"
_log = structlog.get_logger("pinlater.shards")

_SKEW_FOR_MS = 8_000
"""A quick answer about the time is kept for so long before a slower one."""


class ShardHandle:
    """A shard of a router. `store_id` is None, and the shard out, until it could be opened.

    What its calls to the store come to decides over its health, however they were made. A store that lacks room is
    well all the same: it takes no new jobs, and all else goes on as far as the store lets it.
    """

    def __init__(
        self,
        shard: Shard,
        clock: Clock,
        *,
        dequeue_only: bool = False,
        health: HealthSettings | None = None,
        store: str = "",
    ) -> None:
        """`dequeue_only` as configured; `store` is its address for people, without passwords."""
        self.shard = shard
        self.store = store
        self.configured_dequeue_only = dequeue_only
        self.ordered_dequeue_only = False
        """Whether an operator's command keeps new jobs away, beside the configuration."""
        self.on_health_change: Callable[[], None] | None = None
        """Called whenever `is_healthy` may have changed."""
        self._bulkhead = shard.bulkhead if isinstance(shard, ShardDecorator) else None
        self.health = Health(health)
        self.store_id: str | None = None
        self.skew_ms = 0
        """How far the store's clock was ahead of ours at the last ping, beyond what the round trip explains."""
        self.skew_error_ms: int | None = None
        """How much further it may have been ahead; None: it was never asked."""
        self.machine_ahead_ms = 0
        """How far this machine's clock is ahead of the one by which skews are measured, where it was set since."""
        self.newest_ms = 0
        """The largest time that jobs were stored at there, as of the last ping."""
        self.last_error = NOT_TRIED
        """Why it is out, or would be if that happened more often; "" while all is well."""
        self.refused_calls = 0
        """Since it is out: calls that needed it, and no other shard, as their keys live there."""
        self.full = ""
        """Why the store has no room for new jobs, and what to do; "" while it has."""
        self._full_for = Pause(FIRST_ROOM_PAUSE_MS, ROOM_PAUSE_MS)
        self._had_room_ms = 0
        self.deadline_ms = BulkheadSettings().deadline_ms
        """How long one call may take."""
        self.on_refusal: Callable[[ShardHandle], None] | None = None
        """Called when the store refused a call, and may be gone."""
        self.is_alone: Callable[[], bool] = lambda: False
        """Whether no other shard serves in its place."""
        self._clock = clock
        self._skew_at_ms = 0
        if self._bulkhead is not None:
            self._bulkhead.report = self.learn
            self.deadline_ms = self._bulkhead.deadline_ms

    def _health_changed(self) -> None:
        if self.on_health_change is not None:
            self.on_health_change()

    @property
    def health(self) -> Health:
        return self._health

    @health.setter
    def health(self, health: Health) -> None:
        self._health = health
        health.on_change = self._health_changed
        if self._bulkhead is not None:
            self._bulkhead.health = health

    @property
    def is_healthy(self) -> bool:
        return self._health.is_healthy

    @property
    def dequeue_only(self) -> bool:
        """Whether it is meant to take no new jobs."""
        return self.configured_dequeue_only or self.ordered_dequeue_only

    @property
    def takes_jobs(self) -> bool:
        """Whether new jobs may go there, while it is in."""
        return not (self.full or self.configured_dequeue_only or self.ordered_dequeue_only)

    @property
    def may_be_home(self) -> bool:
        """Whether keys may come to live there: it is meant to take new jobs, and its store keeps keys."""
        return not self.dequeue_only and KeyStore not in self.shard.lacks

    @property
    def store_ahead_ms(self) -> int:
        """The milliseconds by which the store's clock is ahead of this machine's."""
        return self.skew_ms - self.machine_ahead_ms

    def note_clock(self, store_ms: int, sent_ms: int, answered_ms: int) -> None:
        """The store gave its time in answer to a ping that was sent and answered at these times of ours. Of the last
        such answers the quickest counts, while the others do not contradict it.
        """
        skew_ms, error_ms = min(store_ms - sent_ms, 0) or max(store_ms - answered_ms, 0), answered_ms - sent_ms + 1
        known_ms = self.skew_error_ms
        is_old = answered_ms - self._skew_at_ms >= _SKEW_FOR_MS
        if known_ms is None or is_old or error_ms <= known_ms or abs(skew_ms - self.skew_ms) > error_ms + known_ms:
            self.skew_ms, self.skew_error_ms, self._skew_at_ms = skew_ms, error_ms, answered_ms

    def learn(self, name: str, is_late: bool, error: BaseException | None) -> None:
        """Note how a call to the store ended. An error that the store itself answered with is a good answer."""
        if error is None and not is_late:
            self.health.answered(name)
            return
        if isinstance(error, StoreFull):
            self.note_full(error.message)
            error = None
        if isinstance(error, NothingStored | OutcomeUnknown):
            self.note_failure(name, error.message)
            if isinstance(error, NothingStored) and not (is_late or isinstance(error, StoreConflict)):
                self._refused()
        elif isinstance(error, StoreRefused):
            self._refused()
        elif (error is None or isinstance(error, PinLaterError)) and self.health.succeeded(
            name, self._clock.now_ms(), is_slow=is_late
        ):
            self._went_out(f"its answers take longer than half of {self.deadline_ms} ms")

    def _refused(self) -> None:
        if self.is_healthy and self.on_refusal is not None:
            self.on_refusal(self)

    def note_failure(self, kind: str, error: str) -> None:
        """Something failed that must not fail too often."""
        if self.is_healthy or self.store_id is None:
            self.last_error = error
        if self.health.failed(kind, self._clock.now_ms()):
            self._went_out(error)

    def eject(self, error: str) -> None:
        """Out, for a pause that begins now."""
        is_news = self.last_error != error or self.is_healthy
        self.health.trip(self._clock.now_ms())
        if is_news:
            self._went_out(error)

    def _went_out(self, error: str) -> None:
        self.last_error = error
        _log.warning("shard_out", shard=self.shard.shard_id, error=error)

    def readmit(self) -> None:
        self.last_error = ""
        self.refused_calls = 0
        self.health.admit(self._clock.now_ms())

    # -- room --------------------------------------------------------------------------------------------------------

    def note_full(self, why: str) -> None:
        """A write was refused for lack of room, or the store says that one would be."""
        now_ms = self._clock.now_ms()
        if not self.full:
            if now_ms - self._had_room_ms >= ROOM_LASTED_MS:
                self._full_for.forget()
            self._full_for.lengthen()
            _log.warning("shard_full", shard=self.shard.shard_id, why=why)
        self.full = why
        self._full_for.since_ms = now_ms

    def may_have_room(self) -> bool:
        """It is full, and it is time to try whether it still is."""
        return bool(self.full) and self._full_for.is_over(self._clock.now_ms())

    def no_room_yet(self) -> None:
        """A try found none: the next one comes later."""
        self._full_for.lengthen()

    def note_room(self) -> None:
        """A try found room."""
        self.full = ""
        self._had_room_ms = self._clock.now_ms()
        _log.info("shard_has_room", shard=self.shard.shard_id)

    # -- for people ----------------------------------------------------------------------------------------------------

    def next_probe_ms(self) -> int:
        """The time at which a shard that is out is tried again."""
        return self.health.next_probe_ms(is_alone=self.is_alone())

    def is_due(self) -> bool:
        """Whether it is time to try a shard that is out."""
        return self.health.is_due(self._clock.now_ms(), is_alone=self.is_alone())

    def view(self) -> ShardView:
        """The shard's state for people, as this process sees it."""
        if self.store_id is None:
            state = "unopened"
        elif self.is_healthy:
            state = "in"
        else:
            state = "probing" if self.health.is_probing else "out"
        good, samples = self.health.good()
        return ShardView(
            self.shard.shard_id,
            self.store,
            state,
            self.dequeue_only,
            trouble=self.last_error or self.full,
            good=good,
            samples=samples,
            skew_ms=self.store_ahead_ms,
            next_try_ms=None if self.is_healthy or self.store_id is None else self.next_probe_ms(),
            is_full=self.is_healthy and bool(self.full),
        )


def missing(handles: Sequence[ShardHandle]) -> ShardConnectionFailed:
    """The error that names shards which were needed and are out."""
    return ShardConnectionFailed(outage_text(handles))


def outage_text(handles: Sequence[ShardHandle]) -> str:
    """A text that names each of these shards, and why it cannot be used."""
    return "; ".join(
        f"shard {handle.shard.shard_id or '(not yet known)'} cannot be used now: {handle.last_error or 'no answer'}"
        for handle in handles
    )


async def ask_all(
    handles: Sequence[ShardHandle], call: Callable[[Shard], Coroutine[Any, Any, R]]
) -> list[R | PinLaterError]:
    """The same call on all of them at once; an answer or an error for each, in their order."""
    if len(handles) == 1:
        return [await _outcome(handles[0], call)]
    return list(await asyncio.gather(*[_outcome(handle, call) for handle in handles]))


async def _outcome(handle: ShardHandle, call: Callable[[Shard], Coroutine[Any, Any, R]]) -> R | PinLaterError:
    try:
        return await call(handle.shard)
    except PinLaterError as error:
        return error.with_traceback(None)  # else an error that is kept keeps the frames of its call


def answers(outcomes: Sequence[R | PinLaterError]) -> list[R]:
    """The answers of those that gave one. None did: what kept them from it, QueueNotFound only if all say so."""
    found = [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]
    if not found:
        errors = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        raise next((error for error in errors if not isinstance(error, QueueNotFound)), errors[0])
    return found
