"""Few keys that many contend for: with windows, late resends, priorities that change, and jobs that are cancelled or
deleted. When all jobs have ended, each key is free again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from pinlater.errors import EnqueueRejected, PinLaterError
from pinlater.model import WHILE_KEPT, EnqueuedJobs, ExtendedJob, JobFilter, JobInfo, JobState, KeyRef, OnDuplicate
from pinlater.model.status_text import NOT_REPLACED
from tests.simulation.callers import Caller, Callers
from tests.simulation.parts.part import Part, PartSettings, Program
from tests.simulation.parts.worker import Habits, Worker
from tests.simulation.virtual_time import now_ms

KEYS, CHAINS = 8, 6
WINDOWS_MS = (0, 0, 1_000, 3_000, WHILE_KEPT)
Request = tuple[str, list[ExtendedJob]]


class Contested(Part):
    NAME = "contested"
    QUEUES: ClassVar[tuple[str, str]] = ("contested", "contested-kept")
    """Their ended jobs are removed at once, and after some seconds."""

    def __init__(self, callers: Callers, rng: random.Random, settings: PartSettings | None = None) -> None:
        super().__init__(callers, rng, settings)
        self._sent: deque[Request] = deque(maxlen=30)
        """What was sent last with send ids."""

        self._keys: dict[tuple[str, KeyRef], None] = {}
        """Those that may be taken."""

    async def set_up(self) -> None:
        brief, kept = self.QUEUES
        await self.set_up_queue(brief, succeeded_ttl="0s", failed_ttl="0s")
        await self.set_up_queue(kept, succeeded_ttl="3s", failed_ttl="5s")

    def programs(self) -> Iterable[Program]:
        return (
            *self.producers(self.produce),
            *self.producers(self.send_again, "sender"),
            *self.workers(self._work),
            Program("replacer", self._replace_running, is_producer=True),
            Program("renewer", self._bring_anew, is_producer=True),
            Program("remover", self._remove, is_producer=True),
            Program("finder", self.find, is_producer=True),
        )

    async def _work(self, caller: Caller, rng: random.Random) -> None:
        habits = Habits(fails_for_good=0.1, changes=0.0, is_unfenced=0.0)
        await Worker(self, caller, rng, self.QUEUES, habits).run()

    # -- enqueues ----------------------------------------------------------------------------------------------------

    async def produce(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            request = rng.choice(self.QUEUES), self.jobs(caller, rng)
            if request[1][0].send_id:
                self._sent.append(request)
            await self._enqueue(caller, *request)

    async def send_again(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            if self._sent:
                await self._enqueue(caller, *rng.choice(self._sent))

    async def _enqueue(self, caller: Caller, queue: str, jobs: list[ExtendedJob]) -> Sequence[str]:
        named = (KeyRef(each.dedupe_key, each.serialize_key) for each in jobs if each.dedupe_key)
        self._keys.update(dict.fromkeys((queue, key) for key in named))
        try:
            stored = await caller.client.enqueue(queue, jobs)
        except PinLaterError as error:
            self.callers.failed(error, "enqueue")
            is_part = not isinstance(error, EnqueueRejected)
            stored = [each for each in error.job_descriptors or () if each and is_part]
        self.accepted(stored)
        return stored

    def jobs(self, caller: Caller, rng: random.Random) -> list[ExtendedJob]:
        """One job, or several with keys that differ."""
        send_id = f"{rng.getrandbits(48):x}" if rng.random() < 0.4 else ""
        kind = rng.choice(("dedupe", "both", "chain"))
        jobs = [self._job(caller, rng, kind) for _ in range(rng.choice((1, 1, 2, self.settings.burst)))]
        if kind == "chain" and not send_id:
            return jobs[:1]
        if len(jobs) > 1:
            jobs = [replace(each, on_duplicate=OnDuplicate.KEEP) for each in jobs]
        return [replace(each, send_id=f"{send_id}-{place}") for place, each in enumerate(jobs)] if send_id else jobs

    def _job(self, caller: Caller, rng: random.Random, kind: str) -> ExtendedJob:
        key = rng.randrange(KEYS)
        job = ExtendedJob(
            self.body(caller),
            1 + key % 3 if rng.random() < 0.9 else rng.randint(1, 3),
            self.run_after_ms(rng, 0.4),
            rng.randint(1, 3),
            serialize_key="" if kind == "dedupe" else f"contested-{rng.randrange(CHAINS)}",
        )
        if kind != "chain":
            job.dedupe_key = f"key-{key}"
            job.dedupe_for_ms = rng.choice(WINDOWS_MS)
            job.on_duplicate = rng.choice(tuple(OnDuplicate))
        if rng.random() < 0.1:
            job.expires_at_ms = now_ms() + rng.randint(500, 3_000)
        return job

    async def _replace_running(self, caller: Caller, rng: random.Random) -> None:
        """Sees a job that runs, brings newer arguments for it, and sees it again."""
        while True:
            for info in await self._one_of_each(caller, rng, JobState.IN_PROGRESS):
                kept = await self._enqueue_like(caller, info, OnDuplicate.REPLACE)
                for later in await self._look(caller, [info.descriptor]) if kept == [info.descriptor] else ():
                    if later.claim_descriptor == info.claim_descriptor and NOT_REPLACED not in later.custom_status:
                        self.problems.append(f"{info.descriptor} does not say that it was not replaced")

    async def _bring_anew(self, caller: Caller, rng: random.Random) -> None:
        """Sees a job that has not begun, cancels it, and brings it anew."""
        while True:
            for info in await self._one_of_each(caller, rng, JobState.PENDING):
                await self.call("cancel", caller.client.cancel([info.descriptor]))
                await self._enqueue_like(caller, info, OnDuplicate.KEEP)

    async def _one_of_each(self, caller: Caller, rng: random.Random, state: JobState) -> list[JobInfo]:
        """A job of each queue in this state, with a dedupe key."""
        await self.rest(rng)
        infos = await self._look(caller, self.some_known(rng, 50))
        return list({_queue(info): info for info in infos if info.state is state and info.dedupe_key}.values())

    async def _enqueue_like(self, caller: Caller, info: JobInfo, on_duplicate: OnDuplicate) -> Sequence[str]:
        """A job with the same keys."""
        job = ExtendedJob(
            self.body(caller),
            info.priority,
            dedupe_key=info.dedupe_key or "",
            serialize_key=info.serialize_key or "",
            on_duplicate=on_duplicate,
        )
        return await self._enqueue(caller, _queue(info), [job])

    # -- whoever asks or removes -------------------------------------------------------------------------------------

    async def _look(self, caller: Caller, names: list[str]) -> list[JobInfo]:
        found = await self.call("lookup", caller.client.lookup(names)) if names else None
        return list((found or {}).values())

    async def find(self, caller: Caller, rng: random.Random) -> None:
        while True:
            await self.rest(rng)
            await self._look(caller, self.some_known(rng, 20))
            found = caller.client.lookup(queue=rng.choice(self.QUEUES), keys=[KeyRef(f"key-{rng.randrange(KEYS)}")])
            await self.call("lookup", found)

    async def _remove(self, caller: Caller, rng: random.Random) -> None:
        client = caller.client
        while True:
            await self.rest(rng)
            if rng.random() < 0.3:
                await self.call("cancel", client.cancel(self.some_known(rng, 5)))
            elif rng.random() < 0.5:
                key = KeyRef(f"key-{rng.randrange(KEYS)}")
                await self.call("cancel", client.cancel(rng.choice(self.QUEUES), keys=[key]))
            else:
                chosen = JobFilter(self.QUEUES[1], rng.choice((JobState.SUCCEEDED, JobState.FAILED)), rng.randint(1, 3))
                await self.call("delete_jobs", client.delete_jobs(chosen, limit=rng.randint(1, 5)))

    # -- its end -----------------------------------------------------------------------------------------------------

    async def unended(self, caller: Caller) -> dict[str, str]:
        """Also the keys that are taken by a job that is not there."""
        left = await super().unended(caller)
        for queue, key in [] if left else list(self._keys):
            probe = ExtendedJob(self.body(caller), dedupe_key=key.dedupe_key, serialize_key=key.serialize_key)
            stored = await self.call("enqueue", caller.client.enqueue(queue, [probe]))
            if stored is None or (isinstance(stored, EnqueuedJobs) and any(stored.outcomes)):
                left[f"{queue} {key}"] = "is not free" if stored is None else f"is taken by {stored[0]}"
            else:
                self.accepted(stored)
                del self._keys[queue, key]
                left[stored[0]] = "is new"
        return left


def _queue(info: JobInfo) -> str:
    return info.descriptor.partition(":")[0]
