"""A random walk of all operations on keyed jobs of three queues, and what must hold after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random

from pinlater.backends.base import NO_RULES, AckRequest, DeadLetterTarget, EndRules, PerQueue
from pinlater.backends.extended import Offer, OfferOutcome, RescheduleRequest
from pinlater.model import WHILE_KEPT, DequeuedJob, JobInfo, JobState, OnDuplicate, ReplaceRunning
from tests.conformance.extended_subject import offer_all, offer_of, stop
from tests.conformance.subject import Subject, key_of
from tests.queues import drop_queue, make_queue

PRIORITIES = (1, 2)
CHAINS = ["a", "b", "c"]
EVER_MS = 10**12
MOST_ROUNDS = 400


class KeyWalk:
    """The first queue has dead letters, which go to the last one."""

    def __init__(self, subjects: list[Subject], random: Random) -> None:
        self.subjects = subjects
        self.random = random
        self.steps: list[str] = []
        self._known: dict[str, list[str]] = {each.queue: [] for each in subjects}
        self._held: dict[str, list[DequeuedJob]] = {each.queue: [] for each in subjects}
        self._places: dict[str, int] = {}
        """When each live job of a serialize key came to its place in the chain; those of one step may be equal."""

    async def step(self) -> None:
        """One operation on one queue."""
        (name,) = self.random.choices(list(OPERATIONS), [weight for weight, _ in OPERATIONS.values()])
        subject = self.random.choice(self.subjects)
        self.steps.append(f"{name} {subject.queue}")
        await OPERATIONS[name][1](self, subject)

    async def check(self) -> None:
        """No key has two live jobs, but for a running one and its successor; of each chain the earliest is the first,
        and nothing else is handed out.

        Dead letters have their keys as history only.
        """
        letters = self.subjects[-1].queue
        live = [(queue, job) for queue, job in await self._live() if not (queue == letters and job.origin)]
        followed = {job.successor: job for _, job in live if job.successor}
        named = {job.descriptor: job for _, job in live}
        assert followed.keys() <= named.keys()
        for successor, running in followed.items():
            assert running.state is JobState.IN_PROGRESS
            assert named[successor].waits_for
        alone = [(queue, job) for queue, job in live if job.descriptor not in followed]
        keys = Counter((queue, job.serialize_key, job.dedupe_key) for queue, job in alone if job.dedupe_key)
        assert all(count == 1 for count in keys.values()), keys
        waiting = {job.descriptor for _, job in live if job.waits_for and not job.serialize_key}
        assert waiting <= followed.keys()
        self._note_places(live)
        for key in CHAINS:
            chain = [job for _, job in live if job.serialize_key == key]
            first = [job for job in chain if not job.waits_for]
            assert len(first) <= 1, (key, first)
            assert all(job.state is JobState.PENDING for job in chain if job.waits_for), chain
            for job in first:
                earliest = min(self._places[each.descriptor] for each in chain)
                assert self._places[job.descriptor] == earliest, (key, chain)

    async def finish(self) -> None:
        """Success of all that is left, which must leave nothing behind."""
        for _ in range(MOST_ROUNDS):
            if not await self._succeed_all():
                if not await self._live():
                    break
                self.subjects[0].tick(100_000)
                await self.subjects[0].expire()
        assert await self._live() == []
        subject = self.subjects[0]
        subject.tick(10**9)
        while await subject.prune(limit=1_000, succeeded_ttl_ms=0, failed_ttl_ms=0):
            pass
        assert await subject.shard.has_chains(CHAINS) == [False] * len(CHAINS)
        assert await subject.shard.blocked_chains(100, subject.now_ms) == []

    async def _succeed_all(self) -> bool:
        """False if there was nothing."""
        await self.subjects[0].shard.expire_jobs(1_000, self.subjects[0].now_ms, PerQueue(NO_RULES))
        found = False
        for subject in self.subjects:
            jobs = self._held[subject.queue] + await subject.claim(1_000)
            self._held[subject.queue] = []
            await subject.ack_all([job.descriptor for job in jobs])
            found = found or bool(jobs)
        return found

    async def _live(self) -> list[tuple[str, JobInfo]]:
        shows = [(JobState.PENDING, False), (JobState.PENDING, True), (JobState.IN_PROGRESS, False)]
        return [
            (subject.queue, job)
            for subject in self.subjects
            for state, future in shows
            for job in await subject.scan(state, future=future, limit=10_000)
        ]

    def _note_places(self, live: list[tuple[str, JobInfo]]) -> None:
        at = len(self.steps) * 100
        before = self._places
        self._places = {job.descriptor: before.get(job.descriptor, at) for _, job in live if job.serialize_key}

    def _some(self, subject: Subject, limit: int = 3) -> list[str]:
        known = self._known[subject.queue]
        return self.random.sample(known, min(len(known), self.random.randint(1, limit)))

    def _let_go(self, subject: Subject, limit: int = 1) -> list[DequeuedJob]:
        """Some of the claims that are held, now no more."""
        held = self._held[subject.queue]
        self.random.shuffle(held)
        self._held[subject.queue] = held[limit:]
        return held[:limit]

    def _rules(self, subject: Subject, **rules: bool) -> EndRules:
        budget = self.random.choice([0, 1])
        return EndRules(budget, dead_letters=subject is self.subjects[0], **rules)

    def _rarely_after(self, now_ms: int) -> int | None:
        return now_ms + self.random.randint(1, 20_000) if self.random.random() < 0.2 else None

    def _offer(self, now_ms: int) -> Offer:
        pick = self.random.choice
        dedupe_key = pick(["", "", "x", "y", "z"])
        return offer_of(
            b"body",
            priority=pick(PRIORITIES),
            attempts_allowed=pick([1, 2, 3]),
            serialize_key=pick(["", *CHAINS]),
            dedupe_key=dedupe_key,
            on_duplicate=pick(list(OnDuplicate)) if dedupe_key else OnDuplicate.KEEP,
            replace_running=pick(list(ReplaceRunning)),
            replace_within_ms=pick([None, 10_000]),
            by="walker",
            dedupe_for_ms=pick([0, 0, 5_000, WHILE_KEPT]) if dedupe_key else 0,
            send_id=pick(["", "", "", "", f"send {self.random.randint(0, 60)}"]),
            expires_at_ms=self._rarely_after(now_ms),
            run_after_ms=self._rarely_after(now_ms),
        )

    # -- operations ----------------------------------------------------------------------------------------------------

    async def enqueue(self, subject: Subject) -> None:
        offers = [self._offer(subject.now_ms) for _ in range(self.random.randint(1, 4))]
        for n, offered in enumerate(await offer_all(subject, *offers)):
            if offered.outcome is OfferOutcome.STORED:
                self._known[subject.queue].append(offered.descriptor)
                self._places.setdefault(offered.descriptor, len(self.steps) * 100 + n)

    async def claim(self, subject: Subject) -> None:
        self._held[subject.queue] += await subject.claim(self.random.randint(1, 4), priorities=PRIORITIES)

    async def ack(self, subject: Subject) -> None:
        acks = [
            AckRequest(
                *key_of(job.descriptor),
                self.random.random() < 0.4,
                permanent=self.random.random() < 0.3,
                retry_delay_ms=self.random.choice([0, 3_000]),
            )
            for job in self._let_go(subject, self.random.randint(1, 4))
        ]
        await subject.ack(*acks, rules=self._rules(subject, keep_succeeded=self.random.random() < 0.6))

    async def requeue(self, subject: Subject) -> None:
        await subject.requeue(*self._let_go(subject))

    async def requeue_undelivered(self, subject: Subject) -> None:
        await subject.requeue_undelivered(*self._let_go(subject))

    async def expire_disconnected(self, subject: Subject) -> None:
        await subject.expire_disconnected(*self._let_go(subject), budget=self.random.choice([0, 1]))

    async def tick(self, subject: Subject) -> None:
        subject.tick(self.random.choice([1, 1_000, 40_000, 700_000]))

    async def expire_claims(self, subject: Subject) -> None:
        rules = {each.queue: self._rules(each) for each in self.subjects}
        await subject.expire(limit=self.random.choice([1, 100]), of=rules)

    async def expire_jobs(self, subject: Subject) -> None:
        rules = {each.queue: self._rules(each) for each in self.subjects}
        await subject.shard.expire_jobs(self.random.choice([1, 100]), subject.now_ms, PerQueue(NO_RULES, rules))

    async def cancel(self, subject: Subject) -> None:
        await subject.cancel(*self._some(subject))

    async def stop(self, subject: Subject) -> None:
        for descriptor in self._some(subject, 1):
            await stop(subject, descriptor)

    async def delete(self, subject: Subject) -> None:
        await subject.delete(self._state(), priority=self.random.choice(PRIORITIES), limit=self.random.choice([1, 3]))

    async def delete_listed(self, subject: Subject) -> None:
        await subject.delete_listed(self._state(), *self._some(subject))

    def _state(self) -> JobState:
        return self.random.choice(list(JobState))

    async def retry_failed(self, subject: Subject) -> None:
        await subject.retry_failed(
            self.random.choice([1, 2]),
            priority=self.random.choice(PRIORITIES),
            run_after_ms=self._rarely_after(subject.now_ms),
            limit=self.random.choice([1, 3, 100]),
        )

    async def retry_listed(self, subject: Subject) -> None:
        await subject.retry_listed(*self._some(subject), attempts=self.random.choice([None, 2]))

    async def reschedule(self, subject: Subject) -> None:
        requests = [
            RescheduleRequest(
                *key_of(each),
                run_after_ms=subject.now_ms + self.random.choice([-5, 5_000]),
                body=self.random.choice([None, b"other"]),
            )
            for each in self._some(subject)
        ]
        await subject.shard.reschedule(subject.queue, requests, subject.now_ms)

    async def move(self, subject: Subject) -> None:
        for job in self._let_go(subject):
            await subject.move(job, f"{subject.queue}:s2:p1:1")

    async def prune(self, subject: Subject) -> None:
        limit, succeeded_ms = self.random.choice([1, 100]), self.random.choice([0, 5_000])
        await subject.prune(limit=limit, succeeded_ttl_ms=succeeded_ms, failed_ttl_ms=self.random.choice([0, 50_000]))

    async def make_anew(self, subject: Subject) -> None:
        """The queue deleted, with what it holds, and made again, at once or after what it held was removed."""
        await drop_queue(subject.shard, subject.queue, subject.now_ms)
        if self.random.random() < 0.5:
            await subject.prune(limit=2, succeeded_ttl_ms=EVER_MS, failed_ttl_ms=EVER_MS)
        subject.tick(1)
        await make_queue(subject.shard, subject.queue, subject.now_ms)
        self._known[subject.queue], self._held[subject.queue] = [], []
        while await subject.prune(limit=100, succeeded_ttl_ms=EVER_MS, failed_ttl_ms=EVER_MS):
            pass

    async def dead_letter(self, subject: Subject) -> None:
        target = DeadLetterTarget(self.subjects[-1].queue, 3)
        await subject.dead_letter({self.subjects[0].queue: target}, limit=self.random.choice([1, 100]))

    async def replay(self, subject: Subject) -> None:
        letters = [job.descriptor for job in await self.subjects[-1].scan(limit=100)]
        chosen = self.random.sample(letters, min(3, len(letters)))
        for descriptor in await self.subjects[-1].replay(*chosen):
            if descriptor:
                self._known[self.subjects[0].queue].append(descriptor)


OPERATIONS: Mapping[str, tuple[float, Callable[[KeyWalk, Subject], Awaitable[None]]]] = {
    "enqueue": (8, KeyWalk.enqueue),
    "claim": (8, KeyWalk.claim),
    "ack": (8, KeyWalk.ack),
    "requeue": (1, KeyWalk.requeue),
    "requeue_undelivered": (1, KeyWalk.requeue_undelivered),
    "expire_disconnected": (1, KeyWalk.expire_disconnected),
    "tick": (3, KeyWalk.tick),
    "expire_claims": (2, KeyWalk.expire_claims),
    "expire_jobs": (2, KeyWalk.expire_jobs),
    "cancel": (1, KeyWalk.cancel),
    "stop": (1, KeyWalk.stop),
    "delete": (1, KeyWalk.delete),
    "delete_listed": (1, KeyWalk.delete_listed),
    "retry_failed": (1, KeyWalk.retry_failed),
    "retry_listed": (1, KeyWalk.retry_listed),
    "reschedule": (1, KeyWalk.reschedule),
    "move": (1, KeyWalk.move),
    "prune": (2, KeyWalk.prune),
    "make_anew": (0.15, KeyWalk.make_anew),
    "dead_letter": (2, KeyWalk.dead_letter),
    "replay": (1, KeyWalk.replay),
}
