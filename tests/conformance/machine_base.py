"""What every rule of the state machine stands on: both sides, what they are told, and what they must agree on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, precondition

from pinlater.backends.aged_levels import levels_of
from pinlater.backends.base import ClaimKey, ConfigEntry, EndRules, JobKey, PerQueue, Retention, Shard
from pinlater.errors import QueueNotFound
from pinlater.model import JobState
from tests.conformance.reference import Reference
from tests.conformance.shelf import ALL_AT_ONCE, EVERY_MARK
from tests.conformance.subject import ALL, NO_BOUND, START_MS

R = TypeVar("R")
FOR_EVER = PerQueue(Retention(10**12, 10**12))
_examples = count(1)

SOURCES = ["worker", "a:b", ""]
QUEUES = ["one", "two"]
queues = st.sampled_from(QUEUES)
states = st.sampled_from(list(JobState))
priorities = st.sampled_from(ALL)
some_priorities = st.sampled_from([(1,), (2,), (1, 2), (1, 3), ALL])
some_levels = st.one_of(some_priorities, st.builds(levels_of, some_priorities, st.sampled_from([1, 5, 20])))
"""Those of queues whose jobs age, too."""

limits = st.integers(1, 5)
steps_ms = st.sampled_from([0, 1, 2, 5, 10, 20])
late_ms = st.sampled_from([0, 0, 0, 1, 7, 60_000, 60_030])
"""By which a renewal comes late."""

texts = st.sampled_from(["", "x", "ü🦆", "a\0b", "s" * 4_990])
bodies = st.sampled_from([b"", b"\0\xff", b"body", b"b" * 10])
attempts = st.integers(1, 4)
offsets = st.one_of(st.none(), st.integers(-10, 20))
byte_bounds = st.sampled_from([1, 10, 15, NO_BOUND])
end_rules = st.builds(
    EndRules, st.integers(0, 3), st.booleans(), st.booleans(), st.booleans(), result_ttl_ms=st.just(10**12)
)
own_end_rules = st.one_of(end_rules, st.just(EndRules(lists_expired=True)))
"""Of one queue."""

retentions = st.builds(Retention, steps_ms, steps_ms)

jobs: Bundle[Named] = Bundle("jobs")
letters: Bundle[Named] = Bundle("letters")
held: Bundle[Held] = Bundle("held")
unheard: Bundle[ConfigEntry] = Bundle("unheard")


def given(bundle: Bundle[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Only where the bundle has something: what draws lists from an empty one makes the whole example void."""
    return precondition(lambda machine: bool(machine.bundle(bundle.name)))


@dataclass(frozen=True)
class Named:
    """A job as the machine knows it, by the short name of its queue."""

    queue: str
    key: JobKey


@dataclass(frozen=True)
class Held:
    """A job and a claim that it was handed out with, once."""

    job: Named
    claim: str

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(*self.job.key, self.claim)


class MachineBase(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, shard: Shard, *, has_tags: bool = True) -> None:
        super().__init__()
        self.has_tags = has_tags
        self.runner = runner
        self.shard = shard
        self.reference = Reference(shard.shard_id)
        self.now_ms = START_MS + next(_examples) * 1_000_000
        self.suffix = f"_{self.now_ms}"
        self.known: dict[str, list[JobKey]] = {queue: [] for queue in QUEUES}
        self.versions = count(1)
        self.revision = 0
        self.seen = 0
        for queue in QUEUES:
            self.put(ConfigEntry(queue + self.suffix, self.version()))

    def teardown(self) -> None:
        """Leave nothing, not even the marks, to the next example."""
        for queue in QUEUES:
            version = self.version()
            self.put(ConfigEntry(queue + self.suffix, version, "{}", version))
        self.collect_until_nothing_is_left(PerQueue(Retention(0, 0)), EVERY_MARK)
        assert not self.on_shard(self.shard.key_slots())

    def version(self) -> str:
        """Higher than all before it."""
        return f"{self.now_ms * 1000:016d}-{next(self.versions):08x}"

    def put(self, *records: ConfigEntry) -> None:
        taken = self.on_shard(self.shard.put_config(records, self.now_ms))
        self.reference.newest_ms = self.now_ms
        assert taken == [self.reference.put_record(record) for record in records]
        if any(record.deleted_version for record in records):
            self.prune_keys()

    def prune_keys(self) -> None:
        """What counts no more goes, and what is left of deleted queues; no job does."""
        self.collect_until_nothing_is_left(FOR_EVER, "")
        self.reference.prune_keys(self.now_ms)

    def expire_jobs(self) -> None:
        """Whether statistics count a job whose time is over as ready or waiting is not said."""
        counts = self.drained(lambda: self.shard.expire_jobs(ALL_AT_ONCE, self.now_ms, PerQueue(EndRules())))
        expected = self.reference.expire_jobs(self.now_ms, PerQueue(EndRules()))
        assert dict(counts[0] if counts else {}) == expected

    def collect_until_nothing_is_left(self, retention: PerQueue[Retention], tombstones_before: str) -> list[Any]:
        def collect() -> Awaitable[Any]:
            return self.shard.prune(ALL_AT_ONCE, self.now_ms, retention, tombstones_before=tombstones_before)

        answers = self.drained(collect)
        assert not self.on_shard(collect())
        return answers

    def per_queue(self, default: R, of: dict[str, R]) -> PerQueue[R]:
        return PerQueue(default, {queue + self.suffix: value for queue, value in of.items()})

    # -- both sides --------------------------------------------------------------------------------------------------

    def on_shard(self, call: Awaitable[R]) -> R | None:
        """The answer; None for an unknown queue."""

        async def answer() -> R | None:
            try:
                return await call
            except QueueNotFound:
                return None

        return self.runner.run(answer())

    def on_reference(self, call: Callable[[], R]) -> R | None:
        try:
            return call()
        except QueueNotFound:
            return None

    def both(self, on_shard: Callable[[str], Awaitable[R]], on_reference: Callable[[str], R], queue: str) -> R | None:
        """The same on both sides, with the same answer."""
        name = queue + self.suffix
        got = self.on_shard(on_shard(name))
        expected = self.on_reference(lambda: on_reference(name))
        assert got == expected, f"the shard says {got!r}, the reference {expected!r}"
        return got

    def drained(self, step: Callable[[], Awaitable[Any]]) -> list[Any]:
        """The answers of bounded steps, until one finds nothing more."""
        answers = []
        while answer := self.on_shard(step()):
            answers.append(answer)
            assert len(answers) < 1_000
        return answers
