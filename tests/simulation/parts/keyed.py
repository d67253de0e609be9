"""Jobs with keys, send ids, expiries, tags and claim time-outs of their own, in two queues with chains in common."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from pinlater.errors import EnqueueRejected, OutcomeUnknown, PinLaterError
from pinlater.model import WHILE_KEPT, ExtendedJob, KeyRef, OnDuplicate
from tests.simulation.callers import Caller
from tests.simulation.parts.part import Part, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

QUEUES = ("keyed", "keyed-too")
KEYS, CHAINS = 6, 3
"""So few that they meet."""


class Keyed(Part):
    NAME = "keyed"

    async def set_up(self) -> None:
        for queue in QUEUES:
            await self.set_up_queue(queue, succeeded_ttl=self.rng.choice(("0s", "20s", "24h")), failed_ttl="1h")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self._produce),
            Program("worker-of-all", self._work_for_all),
            *self.workers(self._work_for_one),
            Program("finder", self._find, is_producer=True),
        )

    async def _work_for_all(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, QUEUES, Habits()).run()

    async def _work_for_one(self, caller: Caller, rng: random.Random) -> None:
        await Worker(self, caller, rng, [rng.choice(QUEUES)], Habits()).run()

    async def _produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            queue = rng.choice(QUEUES)
            jobs = self._jobs(caller, rng)
            for _ in range(rng.choice((1, 1, 1, 2))):  # what has a send id may come again, also when it was answered
                await self._enqueue(caller, queue, jobs)
                if not jobs[0].send_id:
                    break

    async def _enqueue(self, caller: Caller, queue: str, jobs: list[ExtendedJob]) -> None:
        for _ in range(3):
            try:
                sent = jobs[0] if len(jobs) == 1 else jobs
                descriptors = await caller.client.enqueue(queue, sent)
                self.accepted([descriptors] if isinstance(descriptors, str) else descriptors)
                return
            except PinLaterError as error:
                self.callers.failed(error, "enqueue")
                if not isinstance(error, EnqueueRejected):
                    self.accepted(each for each in error.job_descriptors or () if each)
                if not (isinstance(error, OutcomeUnknown) and jobs[0].send_id):
                    return

    def _jobs(self, caller: Caller, rng: random.Random) -> list[ExtendedJob]:
        """All with the same kinds of keys, and with the same chain where that is their only key: a request with others
        is refused.
        """
        kind = rng.choice(("dedupe", "dedupe", "chain", "chain", "both", "none"))
        jobs = [self._job(caller, rng, kind) for _ in range(rng.randint(1, self.settings.burst))]
        if len(jobs) > 1:
            jobs = [
                replace(each, on_duplicate=rng.choice((OnDuplicate.KEEP, OnDuplicate.REPLACE)))
                if kind in ("dedupe", "both")
                else replace(each, serialize_key=jobs[0].serialize_key)
                for each in jobs
            ]
        if rng.random() < 0.3:
            send_id = f"{rng.getrandbits(48):x}"
            jobs = [replace(each, send_id=send_id) for each in jobs]
        return jobs

    def _job(self, caller: Caller, rng: random.Random, kind: str) -> ExtendedJob:
        key = rng.randrange(KEYS)
        job = ExtendedJob(
            self.body(caller),
            1 + key % 3 if rng.random() < 0.95 else rng.randint(1, 3),  # that of a key is the same, nearly always
            self.run_after_ms(rng, 0.2),
            rng.randint(1, 4),
            claim_timeout_ms=rng.choice((None, None, rng.randint(2_000, 15_000))),
            tags=tuple(rng.sample(("red", "green", "blue"), rng.choice((0, 0, 1, 2)))),
        )
        if kind in ("dedupe", "both"):
            job.dedupe_key = f"key-{key}"
            job.dedupe_for_ms = rng.choice((0, 0, 2_000, 10_000, WHILE_KEPT))
            job.on_duplicate = rng.choice(tuple(OnDuplicate))
        if kind in ("chain", "both"):
            job.serialize_key = f"chain-{rng.randrange(CHAINS)}"
        if rng.random() < 0.15:
            job.expires_at_ms = now_ms() + rng.randint(500, round(self.settings.delay_s * 1000))
        return job

    async def _find(self, caller: Caller, rng: random.Random) -> None:
        """Jobs by their keys."""
        while True:
            await self.rest(rng)
            keys = [KeyRef(f"key-{rng.randrange(KEYS)}"), KeyRef("", f"chain-{rng.randrange(CHAINS)}")]
            found = caller.client.lookup(queue=rng.choice(QUEUES), keys=[rng.choice(keys)])
            await self.call("lookup", found)
