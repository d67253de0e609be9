"""Whatever is done to a store, in whatever order, it answers and looks as the reference does.

The examples are always the same ones; PINLATER_TEST_EXAMPLES=500 tries so many others.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from pinlater.backends.base import Shard
from tests.conformance.bindings import Binding
from tests.conformance.machine import ShardMachine

MORE = int(os.environ.get("PINLATER_TEST_EXAMPLES", "0"))
SETTINGS = settings(
    stateful_step_count=100,
    derandomize=not MORE,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(600 + 10 * MORE)
def test_a_shard_answers_and_looks_as_the_reference(shard: Shard, binding: Binding, runner: asyncio.Runner) -> None:
    chosen = settings(SETTINGS, max_examples=MORE or binding.examples)
    run_state_machine_as_test(lambda: ShardMachine(runner, shard, has_tags=binding.has_tags), settings=chosen)
