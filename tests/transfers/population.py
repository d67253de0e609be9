"""A shard with jobs of every kind, brought there by the operations that servers use, from one seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pinlater.backends.base import (
    AckRequest,
    CheckpointRequest,
    ClaimKey,
    ClaimRequest,
    ConfigEntry,
    DeadLetterTarget,
    EndRules,
    JobKey,
    PerQueue,
    Retention,
    Shard,
    UnrenewedClaim,
)
from pinlater.backends.extended import HeartbeatRequest, KeyWindow, Offer
from pinlater.backends.key_windows import WindowText
from pinlater.model import (
    DequeuedJob,
    ExtendedJob,
    Job,
    LogLine,
    OnDuplicate,
    ReplaceRunning,
    parse_descriptor,
)
from pinlater.model.body_reference import BodyReference, BodyRule

START_MS = 1_800_000_000_000
QUEUES = ("mail", "reports", "mail_dead")
WITH_GROUPS = QUEUES[-1]
"""Turns begin anew in the store that a shard comes to, so the order of its jobs there is another."""

SCHEDULE = "@schedule/nightly"
RULES = PerQueue(EndRules(), {"mail": EndRules(dead_letters=True, crash_budget=3), "reports": EndRules()})
LETTERS = {"mail": DeadLetterTarget("mail_dead", 2)}
KEEP = PerQueue(Retention(10**12, 10**12))
NAMES = tuple(f"k{number}" for number in range(40))


def key_of(job: DequeuedJob) -> JobKey:
    ref = parse_descriptor(job.descriptor)
    assert ref is not None
    return JobKey(ref.priority, ref.id)


def _version(number: int) -> str:
    return f"{(START_MS + number) * 1000:016d}-{number:08x}"


class Population:
    """Makes jobs, and lets them live: claims, ends, and what servers do."""

    def __init__(self, shard: Shard, seed: int, *, tiered: bool = True) -> None:
        self.shard, self.random, self.now_ms, self._tiered = shard, Random(seed), START_MS, tiered
        self._claims = 0

    async def make(self, jobs: int) -> None:
        """About so many jobs. At the end most kinds of everything are there."""
        await self._begin()
        per_round = max(20, jobs // 12)
        made = 0
        while made < jobs:
            for queue in QUEUES[:2]:
                made += await self._enqueue(queue, min(per_round, jobs - made) // 2 + 1)
            await self._live(per_round // 3)
            self.now_ms += 1_000
        await self._end()

    async def _begin(self) -> None:
        entries = [ConfigEntry(name, _version(at), '{"x": "ü"}') for at, name in enumerate(QUEUES)]
        entries += [ConfigEntry("gone", _version(8)), ConfigEntry("gone", _version(9), "{}", _version(9))]
        entries += [
            ConfigEntry("@homes", _version(10), '{"homes": 1}'),
            ConfigEntry(SCHEDULE, _version(11), '{"cron": 1}'),
        ]
        await self.shard.put_config(entries, self.now_ms)
        await self.shard.set_quota("mail", 77, 5, self.now_ms)
        for namespace, name in (("audit", "a/1"), ("audit", "b*"), ("alarm", "x"), ("odd-[1]", "y")):
            await self.shard.kv_put(namespace, name, b"\0body", self.now_ms + 10**11, self.now_ms)
        await self.shard.kv_put("audit", "over", b"", START_MS + 5, self.now_ms)
        windows = [
            KeyWindow(
                f"mail:{number}",
                number,
                self.now_ms + 10**9,
                WindowText("mail", f"mail:s9:p1:{10**15 + number}", **kinds).dump(),
            )
            for number, kinds in enumerate(
                (
                    {"dedupe_key": "moved"},
                    {"dedupe_key": "moved", "serialize_key": "s"},
                    {"send_id": "sent", "outcome": 1},
                )
            )
        ]
        if self._has_forms_alike:
            await self.shard.put_windows(windows, self.now_ms)
        await self.shard.raise_marks({SCHEDULE: "00001700000000000"})

    @property
    def _has_forms_alike(self) -> bool:
        return True

    async def _enqueue(self, queue: str, count: int) -> int:
        rnd = self.random
        jobs = [self._job(rnd, queue) for _ in range(count // 2 + 1)]
        await self.shard.enqueue(queue, jobs, self.now_ms)
        offers = [self._offer(rnd, queue) for _ in range(count // 2)]
        await self.shard.enqueue_extended(queue, offers, self.now_ms)
        return len(jobs) + len(offers)

    def _job(self, rnd: Random, queue: str) -> Job:
        run_after_ms = self.now_ms + rnd.choice((-5, 0, 0, 700, 10**7)) if rnd.random() < 0.7 else None
        return Job(
            self._body(rnd, queue),
            rnd.choice((1, 1, 3, 10)),
            run_after_ms,
            rnd.randint(1, 4),
            rnd.choice(("", "", "début")),
        )

    def _body(self, rnd: Random, queue: str) -> bytes:
        body = rnd.randbytes(rnd.choice((0, 9, 300, 6_000)))
        if self._tiered and rnd.random() < 0.15:
            return BodyReference.new("s3", queue, body * 9, self.now_ms, BodyRule.SIZE)
        return body

    def _offer(self, rnd: Random, queue: str) -> Offer:
        base = self._job(rnd, queue)
        job = ExtendedJob(base.body, base.priority, base.run_after_ms, base.attempts_allowed, base.custom_status)
        slot = 0
        if rnd.random() < 0.4:
            job.dedupe_key, slot = rnd.choice(NAMES), 100
            job.dedupe_for_ms = rnd.choice((0, 5_000, 10**9, -1))
            job.on_duplicate = rnd.choice((OnDuplicate.KEEP, OnDuplicate.REPLACE))
            if job.on_duplicate is OnDuplicate.REPLACE:
                job.replace_running = rnd.choice(list(ReplaceRunning))
        if rnd.random() < 0.4:
            job.serialize_key = rnd.choice(NAMES)
            slot = 200 + NAMES.index(job.serialize_key)
        if rnd.random() < 0.2:
            job.send_id = rnd.randbytes(6).hex()
            slot = slot or 300
        if rnd.random() < 0.2:
            job.tags = rnd.sample(("red", "grün", "blue"), 2)
        if queue == WITH_GROUPS and rnd.random() < 0.5:
            job.group = rnd.choice(("acme", "bärbel"))
        if rnd.random() < 0.2:
            job.claim_timeout_ms = rnd.choice((900, 60_000))
        if rnd.random() < 0.2:
            job.expires_at_ms = self.now_ms + rnd.choice((1_500, 10**9))
        barrier = "9" if job.serialize_key in NAMES[:3] else ""
        return Offer(job, slot, behind=barrier, by="ops")

    async def _live(self, count: int) -> None:
        rnd, now_ms = self.random, self.now_ms
        for queue in QUEUES:
            self._claims += 1
            claim = ClaimRequest(
                f"{queue}:10.0.0.{self._claims % 9}:worker-{self._claims}:1:src",
                count,
                (1, 3, 10),
                4_000,
                10**9,
                is_default_timeout=True,
            )
            (jobs,) = await self.shard.claim(queue, [claim], now_ms)
            self.now_ms = now_ms = now_ms + 7
            acks = []
            for at, job in enumerate(jobs):
                key, held = key_of(job), job.claim_descriptor
                what = rnd.random()
                if what < 0.35:
                    result = rnd.choice((None, None, b"", b"done", self._result(rnd, queue)))
                    acks.append(AckRequest(*key, True, "fine\n", claim_descriptor=held, result=result))
                elif what < 0.6:
                    permanent = rnd.random() < 0.3
                    acks.append(AckRequest(*key, False, "why\n", rnd.choice((0, 900)), held, permanent))
                elif what < 0.7:
                    await self.shard.cancel(queue, [key], now_ms, "ops")
                    if at % 2:
                        acks.append(AckRequest(*key, False, "stopped", claim_descriptor=held))
                elif what < 0.8:
                    line = LogLine(f"line {at} é", now_ms, 1)
                    await self.shard.heartbeat(
                        queue, [HeartbeatRequest(*key, held, rnd.choice((None, 0.5)), "half", [line])], now_ms
                    )
                elif what < 0.85:
                    await self.shard.requeue_undelivered(
                        queue, [UnrenewedClaim(*key, held, job.claim_expires_at_ms)], now_ms
                    )
                elif what < 0.88:
                    await self.shard.requeue(queue, [ClaimKey(*key, held)], now_ms)
                elif what < 0.91:
                    await self.shard.mark_moved(queue, [(ClaimKey(*key, held), "mail:s9:p1:1000000000000077")], now_ms)
                elif what < 0.94:
                    await self.shard.checkpoint(
                        queue, [CheckpointRequest(*key, "", held, b"newer body", run_after_ms=now_ms + 50)], now_ms
                    )
            rules = RULES.get(queue)._replace(keep_succeeded=rnd.random() < 0.7, result_ttl_ms=10**10)
            await self.shard.ack(queue, acks, now_ms, rules)
        await self.shard.expire_claims(count // 4, now_ms, RULES)
        await self.shard.expire_jobs(count // 8, now_ms, RULES)
        await self.shard.dead_letter(count // 4, now_ms, LETTERS)
        await self._replay()

    def _result(self, rnd: Random, queue: str) -> bytes:
        result = rnd.randbytes(900)
        if self._tiered:
            return BodyReference.new("s3", queue, result, self.now_ms, BodyRule.SIZE)
        return result

    async def _replay(self) -> None:
        (letters,) = await self.shard.claim(
            "mail_dead", [ClaimRequest(f"x:{self.now_ms}", 6, (1, 3, 10), 1_000, 10**9)], self.now_ms
        )
        keys = [key_of(each) for each in letters]
        await self.shard.requeue(
            "mail_dead",
            [ClaimKey(*key, each.claim_descriptor) for key, each in zip(keys, letters, strict=True)],
            self.now_ms,
        )
        await self.shard.replay("mail_dead", keys[:3], self.now_ms, None)
        for state_queue in QUEUES[:2]:
            await self.shard.retry_failed(state_queue, 3, 2, None, 2, self.now_ms)

    async def _follow(self, serialize_key: str) -> None:
        """A running job and its successor."""
        fields = {"on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
        jobs = [
            ExtendedJob(body, priority, dedupe_key="followed", serialize_key=serialize_key, **fields)  # type: ignore[arg-type]
            for body, priority in ((b"1", 3), (b"2", 1))
        ]
        (running,) = await self.shard.enqueue_extended("mail", [Offer(jobs[0], 100)], self.now_ms)
        ref = parse_descriptor(running.descriptor)
        assert ref is not None
        claim = ClaimRequest(f"mail:10.0.0.7:{serialize_key}:1:src", 1, (3,), 10**9, 10**9)
        await self.shard.claim_listed("mail", [JobKey(ref.priority, ref.id)], claim, self.now_ms)
        await self.shard.enqueue_extended("mail", [Offer(jobs[1], 100)], self.now_ms)

    async def _end(self) -> None:
        self.now_ms += 10
        for serialize_key in ("", "followed"):
            await self._follow(serialize_key)
        await self.shard.prune(5, self.now_ms, KEEP)
        await self.shard.take_tokens("mail", 1, 5.0, 10.0, self.now_ms)


async def populate(shard: Shard, jobs: int, seed: int = 1, *, tiered: bool = True) -> int:
    """The time at which it ended."""
    made = Population(shard, seed, tiered=tiered)
    await made.make(jobs)
    return made.now_ms


def flat(lists: Sequence[Sequence[DequeuedJob]]) -> list[DequeuedJob]:
    return [job for each in lists for job in each]
