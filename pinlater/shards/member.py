"""One shard as the router sees it: the chain to its store, whether it is in, and how its clock stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from pinlater.backends.base import Shard
from pinlater.clock import Clock
from pinlater.errors import (
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    QueueNotFound,
    ShardConnectionFailed,
    StoreConflict,
)
from pinlater.model import ShardView
from pinlater.shards.calls import NoTurn
from pinlater.shards.health import Health

R = TypeVar("R")
_log = structlog.get_logger("pinlater.shards")


class Member:
    """A shard of a router. `store_id` is None, and the shard out, until it could be opened."""

    def __init__(
        self,
        shard: Shard,
        clock: Clock,
        *,
        dequeue_only: bool = False,
        health: Health | None = None,
        store: str = "",
    ) -> None:
        """`dequeue_only` as configured; `store` is its address for people, without passwords."""
        self.shard = shard
        self.store = store
        self.configured_dequeue_only = dequeue_only
        self.ordered_dequeue_only = False
        """By an operator's command, beside the configuration."""
        self.health = health or Health()
        self.health.trip(0)
        self.store_id: str | None = None
        self.skew_ms = 0
        """How far the store's clock was from ours at the last ping, beyond what the round trip explains."""
        self.trouble = "it was not reached yet"
        """Why it is out, or would be if that happened more often; "" while all is well."""
        self._clock = clock

    @property
    def is_in(self) -> bool:
        return self.health.is_in

    @property
    def dequeue_only(self) -> bool:
        """Whether it takes no new jobs."""
        return self.configured_dequeue_only or self.ordered_dequeue_only

    def view(self) -> ShardView:
        """As this process sees it."""
        state = "in" if self.health.is_in else "unopened" if self.store_id is None else "out"
        return ShardView(
            self.shard.shard_id,
            self.store,
            state,
            self.dequeue_only,
            trouble=self.trouble,
            skew_ms=self.skew_ms,
        )

    async def call(self, call: Coroutine[Any, Any, R]) -> R:
        """Await a call of this shard, and learn from its outcome."""
        try:
            answer = await call
        except (StoreConflict, NoTurn):
            raise
        except (NothingStored, OutcomeUnknown) as error:
            self.trouble = error.message
            if self.health.call_failed(self._clock.now_ms()):
                _log.warning("shard_out", shard=self.shard.shard_id, error=error.message)
            raise
        self.health.call_succeeded()
        return answer


def missing(members: Sequence[Member]) -> ShardConnectionFailed:
    """The error that names shards which were needed and are out."""
    return ShardConnectionFailed(f"shard {troubles(members)}")


def troubles(members: Sequence[Member]) -> str:
    """Each shard, and why it cannot be used."""
    return "; ".join(
        f"{member.shard.shard_id or '(not yet known)'} cannot be used now: {member.trouble or 'no answer'}"
        for member in members
    )


async def ask_all(
    members: Sequence[Member], call: Callable[[Shard], Coroutine[Any, Any, R]]
) -> list[R | PinLaterError]:
    """The same call on all of them at once; an answer or an error for each, in their order."""
    if len(members) == 1:
        return [await _outcome(members[0], call)]
    return list(await asyncio.gather(*[_outcome(member, call) for member in members]))


async def _outcome(member: Member, call: Callable[[Shard], Coroutine[Any, Any, R]]) -> R | PinLaterError:
    try:
        return await member.call(call(member.shard))
    except PinLaterError as error:
        return error.with_traceback(None)  # else whoever keeps the error keeps the frames of its call


def answers(outcomes: Sequence[R | PinLaterError]) -> list[R]:
    """The answers of those that gave one. None did: what kept them from it, QueueNotFound only if all say so."""
    found = [outcome for outcome in outcomes if not isinstance(outcome, PinLaterError)]
    if not found:
        errors = [outcome for outcome in outcomes if isinstance(outcome, PinLaterError)]
        raise next((error for error in errors if not isinstance(error, QueueNotFound)), errors[0])
    return found
