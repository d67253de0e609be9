"""The wrapper of a shard that changes nothing: what the other wrappers start from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pinlater.backends.base import Shard, ShardEvents
from pinlater.backends.operations import OPERATIONS

if TYPE_CHECKING:
    from pinlater.shards.bulkhead import Bulkhead

M = TypeVar("M", bound=Callable[..., Any])


def _forwarded(method: M) -> M:
    """A method of the protocol, carried out by the shard inside."""
    name = method.__name__

    async def forward(self: ShardDecorator, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.inner, name)(*args, **kwargs)

    forward.__name__, forward.__doc__ = name, method.__doc__
    return cast(M, forward)


class ShardDecorator:
    """Hands every call of the protocol on to the shard inside.

    What a subclass leaves as it is costs no call: the inner shard's own method stands in its place.
    """

    def __init__(self, inner: Shard) -> None:
        self.inner = inner
        self._innermost: Shard = inner._innermost if isinstance(inner, ShardDecorator) else inner
        for name in ("subscribe", *OPERATIONS):
            if getattr(type(self), name) is getattr(ShardDecorator, name):
                setattr(self, name, getattr(inner, name))

    @property
    def shard_id(self) -> str:
        return self._innermost.shard_id

    @shard_id.setter
    def shard_id(self, shard_id: str) -> None:
        self._innermost.shard_id = shard_id

    @property
    def events(self) -> ShardEvents:
        return self._innermost.events

    @events.setter
    def events(self, events: ShardEvents) -> None:
        self._innermost.events = events

    @property
    def keeps_order(self) -> bool:
        return self._innermost.keeps_order

    @property
    def has_own_clock(self) -> bool:
        return self.inner.has_own_clock

    @property
    def bulkhead(self) -> Bulkhead | None:
        """The calls to the store, where they are bounded: how they go, and by what."""
        return self.inner.bulkhead if isinstance(self.inner, ShardDecorator) else None

    open = _forwarded(Shard.open)
    close = _forwarded(Shard.close)
    ping = _forwarded(Shard.ping)
    put_config = _forwarded(Shard.put_config)
    list_config = _forwarded(Shard.list_config)
    enqueue = _forwarded(Shard.enqueue)
    enqueue_extended = _forwarded(Shard.enqueue_extended)
    find_keys = _forwarded(Shard.find_keys)
    count_ready = _forwarded(Shard.count_ready)
    next_due = _forwarded(Shard.next_due)
    subscribe = _forwarded(Shard.subscribe)
    claim = _forwarded(Shard.claim)
    claim_listed = _forwarded(Shard.claim_listed)
    peek = _forwarded(Shard.peek)
    ack = _forwarded(Shard.ack)
    ack_and_claim = _forwarded(Shard.ack_and_claim)
    checkpoint = _forwarded(Shard.checkpoint)
    heartbeat = _forwarded(Shard.heartbeat)
    reschedule = _forwarded(Shard.reschedule)
    requeue = _forwarded(Shard.requeue)
    expire_disconnected = _forwarded(Shard.expire_disconnected)
    expire_listed = _forwarded(Shard.expire_listed)
    requeue_undelivered = _forwarded(Shard.requeue_undelivered)
    cancel = _forwarded(Shard.cancel)
    lookup = _forwarded(Shard.lookup)
    count = _forwarded(Shard.count)
    scan = _forwarded(Shard.scan)
    watch_ends = _forwarded(Shard.watch_ends)
    blocked_chains = _forwarded(Shard.blocked_chains)
    retry_failed = _forwarded(Shard.retry_failed)
    retry_listed = _forwarded(Shard.retry_listed)
    taken_keys = _forwarded(Shard.taken_keys)
    delete_jobs = _forwarded(Shard.delete_jobs)
    delete_listed = _forwarded(Shard.delete_listed)
    replay = _forwarded(Shard.replay)
    mark_moved = _forwarded(Shard.mark_moved)
    expire_claims = _forwarded(Shard.expire_claims)
    expired_claims = _forwarded(Shard.expired_claims)
    expire_jobs = _forwarded(Shard.expire_jobs)
    dead_letter = _forwarded(Shard.dead_letter)
    prune = _forwarded(Shard.prune)
    last_firings = _forwarded(Shard.last_firings)
    raise_marks = _forwarded(Shard.raise_marks)
    key_slots = _forwarded(Shard.key_slots)
    list_windows = _forwarded(Shard.list_windows)
    put_windows = _forwarded(Shard.put_windows)
    drop_windows = _forwarded(Shard.drop_windows)
    has_chains = _forwarded(Shard.has_chains)
    list_barriers = _forwarded(Shard.list_barriers)
    lift_barriers = _forwarded(Shard.lift_barriers)
    list_references = _forwarded(Shard.list_references)
    dropped_references = _forwarded(Shard.dropped_references)
    forget_references = _forwarded(Shard.forget_references)
    kv_put = _forwarded(Shard.kv_put)
    kv_list = _forwarded(Shard.kv_list)
    take_tokens = _forwarded(Shard.take_tokens)
    set_quota = _forwarded(Shard.set_quota)
    stats = _forwarded(Shard.stats)
