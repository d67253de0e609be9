"""The states of a worker's queues, and what its log says of them."""

from __future__ import annotations

import logging
import random

import pytest

from pinlater.errors import DequeueRateLimited, QueueNotFound, ServerUnreachable
from pinlater_workers.worker.queue_state import IncidentLog, QueueStates

PAUSED = DequeueRateLimited("a is paused", reason="QUEUE_PAUSED")
AWAY = ServerUnreachable("no answer")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pinlater_workers.worker")
    return caplog


def states_of(*queues: str) -> QueueStates:
    return QueueStates(dict.fromkeys(queues, 1), IncidentLog(), random.Random(1))


def texts(said: pytest.LogCaptureFixture) -> list[str]:
    """Without how long it took."""
    return [each.partition(" (after")[0] for each in said.messages]


def test_a_pause_is_over_only_when_a_server_says_so(said: pytest.LogCaptureFixture) -> None:
    states = states_of("a", "b")
    states.failed("a", PAUSED)
    states.answered(["b"])
    for queue in ("a", "b"):
        states.failed(queue, AWAY)
    states.failed("a", PAUSED)
    states.answered(["b"])
    assert texts(said) == [
        "no jobs from queue a while it is paused: a is paused",
        "no jobs come, and the worker keeps trying: no answer",
        "servers answer again",
    ]
    states.answered(["a"])
    assert texts(said)[3:] == ["queue a is not paused any more"]


def test_a_queue_that_is_there_again_and_paused_is_said_to_be_both(said: pytest.LogCaptureFixture) -> None:
    states = states_of("a")
    states.failed("a", QueueNotFound.of("a"))
    states.failed("a", PAUSED)
    assert texts(said)[1:] == ["queue a is there", "no jobs from queue a while it is paused: a is paused"]
