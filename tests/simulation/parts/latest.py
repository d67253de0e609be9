"""Few keys whose newest job counts: it waits for the one that runs, or has it stopped, and replacements postpone jobs
for a while. When all jobs have ended, each key is free again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from pinlater.model import ExtendedJob, KeyRef, OnDuplicate, ReplaceRunning
from tests.simulation.callers import Caller
from tests.simulation.parts.contested import Contested
from tests.simulation.parts.part import Program
from tests.simulation.parts.worker import Habits, SlowWorker

KEYS, CHAINS = 4, 2
WITHIN_MS = (None, 1, 1_500)


class Latest(Contested):
    NAME = "latest"
    QUEUES = ("latest", "latest-kept")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self.produce),
            *self.producers(self.send_again, "sender"),
            *self.workers(self._work),
            Program("canceller", self._cancel_some, is_producer=True),
            Program("finder", self.find, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        habits = Habits(fails=0.3, snoozes=0.1, forgets=0.05, renews=0.7, changes=0.0, is_unfenced=0.0, stops=0.9)
        await SlowWorker(self, caller, rng, self.QUEUES, habits).run()

    def jobs(self, caller: Caller, rng: random.Random) -> list[ExtendedJob]:
        """The newest one of a key."""
        key = rng.randrange(KEYS)
        job = ExtendedJob(
            self.body(caller),
            1 + key % 3,
            self.run_after_ms(rng, 0.3),
            rng.randint(1, 4),
            dedupe_key=f"key-{key}",
            serialize_key=f"latest-{key % CHAINS}" if key % 2 else "",
            on_duplicate=OnDuplicate.REPLACE,
            replace_running=rng.choice((*ReplaceRunning, ReplaceRunning.ENQUEUE)),
            replace_within_ms=rng.choice(WITHIN_MS),
            send_id=f"{rng.getrandbits(48):x}" if rng.random() < 0.3 else "",
        )
        return [job]

    async def _cancel_some(self, caller: Caller, rng: random.Random) -> None:
        """Those of a key, or one of them."""
        client = caller.client
        while True:
            await self.rest(rng)
            running = rng.random() < 0.5
            names = self.some_known(rng, 2)
            if rng.random() < 0.5:
                keys = [self._key(rng)]
                await self.call("cancel", client.cancel(rng.choice(self.QUEUES), keys=keys, running=running))
            elif names:
                await self.call("cancel", client.cancel(names, running=running))

    def _key(self, rng: random.Random) -> KeyRef:
        key = rng.randrange(KEYS)
        return KeyRef(f"key-{key}", f"latest-{key % CHAINS}" if key % 2 else "")
