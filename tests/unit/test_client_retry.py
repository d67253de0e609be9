"""Which failed call is sent again, and when."""

from __future__ import annotations

import random

import pytest

from pinlater import errors
from pinlater.client.connection import CallFailed
from pinlater.client.retry import (
    FIRST_BACKOFF_S,
    LONGEST_BACKOFF_S,
    backoff_s,
    blames_server,
    first_share,
    may_send_again,
)
from pinlater.model import Ack, Checkpoint
from pinlater.wire.methods import Idempotency, ack_idempotency, checkpoint_idempotency

ALWAYS = [
    CallFailed("refused", sent=False),
    errors.NothingStored("x"),
    errors.StoreConflict("x"),
    errors.Overloaded("x"),
    errors.Draining("x"),
    errors.DequeueRateLimited("x"),
    errors.NoHealthyShards("x"),
    errors.UnknownError("x", reason="QUEUE_PAUSED", retryable=True),
]
UNLESS_ONCE = [CallFailed("broke", sent=True), errors.OutcomeUnknown("x"), errors.ShardConnectionFailed("x")]
NEVER = [
    errors.EnqueueRejected("x"),
    errors.DequeueRateLimited("x", reason="QUEUE_PAUSED"),
    errors.RequestInvalid("x"),
    errors.BodyTooLarge("x"),
    errors.QueueNotFound("x"),
    errors.PasswordInvalid("x"),
    errors.PriorityNotSupported("x"),
    errors.ProtocolError("x"),
    errors.UnknownError("x"),
    errors.NoHealthyShards("x", retryable=False),
    errors.ShardConnectionFailed("x", retryable=False),
]


def _name(value: object) -> str:
    return value.name if isinstance(value, Idempotency) else f"{type(value).__name__}{getattr(value, 'sent', '')}"


@pytest.mark.parametrize("safety", Idempotency, ids=_name)
@pytest.mark.parametrize("error", ALWAYS + UNLESS_ONCE + NEVER, ids=_name)
def test_a_call_is_sent_again_where_the_error_may_pass_and_nothing_can_happen_twice(
    error: CallFailed | errors.PinLaterError, safety: Idempotency
) -> None:
    expected = error in ALWAYS or (error in UNLESS_ONCE and safety is not Idempotency.ONCE)
    assert may_send_again(error, safety) is expected


def test_another_server_is_tried_at_once_where_this_one_is_to_blame() -> None:
    assert blames_server(CallFailed("broke", sent=True))
    assert blames_server(errors.Draining("x"))
    assert not blames_server(CallFailed("no connection free", sent=False, busy=True))
    assert not blames_server(errors.Overloaded("x"))
    assert not blames_server(errors.NoHealthyShards("x"))


def test_the_pause_has_full_jitter_under_a_bound_that_doubles() -> None:
    rng = random.Random(1)
    for number in range(2, 12):
        bound_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (number - 2))
        pauses_s = [backoff_s(number, None, rng) for _ in range(200)]
        assert min(pauses_s) < bound_s * 0.1
        assert bound_s * 0.9 < max(pauses_s) <= bound_s


def test_a_server_that_says_when_is_not_asked_earlier_nor_by_all_at_once() -> None:
    rng = random.Random(1)
    pauses_s = [backoff_s(2, 700, rng) for _ in range(200)]
    assert 0.7 <= min(pauses_s) < max(pauses_s) <= 0.7 + FIRST_BACKOFF_S
    assert len(set(pauses_s)) > 100


def test_the_first_attempt_leaves_time_for_a_second_one_where_that_is_safe() -> None:
    assert first_share(Idempotency.READ) == 0.5
    assert first_share(Idempotency.REPEAT) == 0.5
    assert first_share(Idempotency.SCAN) == 1.0
    assert first_share(Idempotency.ONCE) == 1.0


@pytest.mark.parametrize(
    ("failed", "safety"),
    [
        ([], Idempotency.REPEAT),
        ([Ack("d", claim_descriptor="c")], Idempotency.REPEAT),
        ([Ack("d", permanent=True)], Idempotency.REPEAT),
        ([Ack("d", claim_descriptor="c"), Ack("d")], Idempotency.ONCE),
    ],
)
def test_an_ack_may_be_sent_twice_but_for_a_failure_that_nothing_fences(failed: list[Ack], safety: Idempotency) -> None:
    assert ack_idempotency("q", [], failed) is safety


@pytest.mark.parametrize(
    ("checkpoint", "safety"),
    [
        (Checkpoint("d"), Idempotency.REPEAT),
        (Checkpoint("d", run_after_ms=5, attempts_allowed=3, claim_descriptor="c"), Idempotency.REPEAT),
        (Checkpoint("d", prepend_status="half"), Idempotency.ONCE),
        (Checkpoint("d", new_body=b""), Idempotency.ONCE),
        (Checkpoint("d", move_to_pending=True), Idempotency.ONCE),
        (Checkpoint("d", new_body=b"", claim_descriptor="c"), Idempotency.ONCE),
        (Checkpoint("d", prepend_status="half", claim_descriptor="c"), Idempotency.ONCE),
        (Checkpoint("d", b"", prepend_status="t", move_to_pending=True, claim_descriptor="c"), Idempotency.REPEAT),
    ],
)
def test_only_a_plain_heartbeat_and_what_ends_the_claim_it_names_may_be_sent_twice(
    checkpoint: Checkpoint, safety: Idempotency
) -> None:
    assert checkpoint_idempotency("q", [Checkpoint("d"), checkpoint]) is safety
