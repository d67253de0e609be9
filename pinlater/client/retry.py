"""The rules of sending again: which failed calls, and when. Pure: no clock, no sockets."""

from __future__ import annotations

import random

from pinlater.background_tasks import exponential_backoff_s
from pinlater.client.connection import CallFailed
from pinlater.errors import (
    DequeueRateLimited,
    Draining,
    EnqueueRejected,
    NoHealthyShards,
    NothingStored,
    OutcomeUnknown,
    PinLaterError,
    ShardConnectionFailed,
)
from pinlater.wire.methods import Idempotency

QUEUE_PAUSED = "QUEUE_PAUSED"
FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 2.0
MAX_ROUNDS = 4
"""How often a call of an impatient client goes round all servers before it is said that none can be reached."""

SHORTEST_ROUND_S = 0.05
"""With less time left than this no further round begins: cut off by its end, it would make an answer that is known, as
that a shard is out, one that nobody knows.
"""


def may_send_again(error: CallFailed | PinLaterError, idempotency: Idempotency) -> bool:
    """Whether the call that failed so may be sent again by the client itself."""
    if isinstance(error, CallFailed):
        return idempotency is not Idempotency.ONCE or not error.sent
    if isinstance(error, ShardConnectionFailed) and not isinstance(error, NothingStored):
        return error.retryable and idempotency is not Idempotency.ONCE
    if isinstance(error, EnqueueRejected) or (isinstance(error, DequeueRateLimited) and error.reason == QUEUE_PAUSED):
        return False  # it may, but an operator decided so, and the caller should learn of it at once
    return error.retryable


def may_be_done(error: CallFailed | PinLaterError) -> bool:
    """Whether a call that failed so, and may be sent again, may have been carried out, if only in part."""
    if isinstance(error, CallFailed):
        return error.sent
    return isinstance(error, ShardConnectionFailed) and not isinstance(error, NothingStored)


def blames_server(error: CallFailed | PinLaterError) -> bool:
    """Whether another server would probably answer where this one did not."""
    return isinstance(error, Draining) or (isinstance(error, CallFailed) and not error.busy)


def blames_shards(error: CallFailed | PinLaterError) -> bool:
    """Whether shards that are needed cannot be used, which is so for a while."""
    if isinstance(error, ShardConnectionFailed):
        return not isinstance(error, NothingStored | OutcomeUnknown)
    return isinstance(error, NoHealthyShards)


def first_share(idempotency: Idempotency) -> float:
    """How much of its time the first attempt may use: half where a second one would be safe and quick."""
    return 0.5 if idempotency is Idempotency.READ or idempotency is Idempotency.REPEAT else 1.0


def backoff_s(round_number: int, retry_after_ms: int | None, rng: random.Random) -> float:
    """How long to wait before round 2, 3, …: full jitter under a bound that doubles, never before the server's wish."""
    if retry_after_ms is not None:
        return retry_after_ms / 1000 + rng.uniform(0.0, FIRST_BACKOFF_S)
    return rng.uniform(0.0, exponential_backoff_s(round_number - 1, FIRST_BACKOFF_S, LONGEST_BACKOFF_S))
