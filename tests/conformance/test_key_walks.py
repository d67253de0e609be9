"""Whatever is done to keyed jobs, at random: once, in order, and nothing stands still or stays behind.

The walks are always the same ones; PINLATER_TEST_EXAMPLES=500 takes so many others.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from pinlater.backends.base import Shard
from tests.conformance.key_walk import KeyWalk
from tests.conformance.subject import START_MS, Subject
from tests.queues import make_queue

MORE = int(os.environ.get("PINLATER_TEST_EXAMPLES", "0"))
STEPS = 150


@pytest.mark.parametrize("seed", range(MORE or 2))
async def test_keys_hold_whatever_is_done(shard: Shard, seed: int) -> None:
    first = Subject(shard)
    await make_queue(shard, first.queue, START_MS)
    walk = KeyWalk([first, await first.beside("post"), await first.beside("letters")], Random(seed))
    try:
        for _ in range(STEPS):
            await walk.step()
            await walk.check()
        await walk.finish()
    except AssertionError as error:
        error.add_note(f"after {len(walk.steps)} steps, the last: {', '.join(walk.steps[-8:])}")
        raise
