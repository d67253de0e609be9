"""The verdict on a history: explained, or what contradicts docs/semantics.md, in its shortest part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

RULES = {
    "ack": "decision 1, late acks: the outcome of an ack or a heartbeat follows from the claim under which the job is",
    "attempts": "decision 6, attempts: failed acks and expired claims take one each, and nothing else does",
    "body": "rows `enqueue`, `checkpoint` and `reschedule`: the body is the one that was given last",
    "chain": "decision 29, the serialize key: one job of a key at a time, in the order of the enqueues",
    "claim": "decision 1, late acks: a claim descriptor belongs to one dequeue call and is never used again",
    "count": "decision 23, statistics: on a queue at rest counts agree with the jobs that are there",
    "early": "decision 4, never early: no job is handed out before its run_after",
    "ended": "decision 7, at least once: what has ended is not handed out again",
    "expired": "decision 33, expiry of a job: from expiresAtMillis on it is not handed out",
    "flow": "docs/flows.md: an item fails once a claim, and ends once; the flow ends once, when all its items have",
    "full": "docs/fairness.md, limits: a group is full where its jobs that wait would pass group_max_pending",
    "gone": "rows `cancel`, `delete` and `prune`: a job that was removed is not handed out",
    "id": "decision 15, ids never come again on a shard: each is that of one job, under one name",
    "key": "decision 28, the dedupe key: while a key is taken, there is no second job of it",
    "limit": "decision 3, order: a dequeue never claims more jobs than its limit; nor does an operator change more",
    "lost": "decision 7, at least once: a job whose enqueue was answered is not lost",
    "once": "decision 8, one request, one shard: what an enqueue was answered lies on one shard, and nowhere else",
    "order": "decision 3, order: within a priority, a shard hands out by run_after and then by age",
    "paused": "decisions 18 and 42: a paused queue hands out no job, and a paused group gets none",
    "permit": "decision 42, groups: a group never has more jobs in progress than its maximum, over all shards",
    "probe": "decision 18, each queue by its own rules: while its circuit breaker is open, one job at a time is tried",
    "quota": "decision 20, never above a quota",
    "rate": "decision 21, a token for each job; decision 42, for groups too",
    "result": "decision 31, results: the last success of a job leaves its result",
    "schedule": "decision 36, the mark of a schedule: each of its times fires once, and none early",
    "send": "decision 30, the send id: a request that is sent again gets the first answer",
    "state": "the tables of changes: no order of the calls leads to the state that was answered",
    "shown": "the bound `order of a scan`: what scans and searches show has what was asked for, in order, and once",
    "stop": "decision 32, stopping what runs: whatever but a success ends it as cancelled",
    "stuck": "decision 7, at least once: when all was drained, each job that was accepted has ended",
    "turn": "decision 42, groups: beside a job of a group one job of each other group, and one more that comes later",
    "twice": "row `claim`: a job that is claimed is handed out again only when that claim has ended",
}
"""Each rule, and what of docs/semantics.md it holds a history to."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One contradiction: what cannot be explained, and the calls that contradict each other, one line each."""

    rule: str
    subject: str
    """A job, a key, a queue, a schedule or a flow."""

    text: str
    at_ms: float
    part: tuple[str, ...] = ()
    """In the order in which the calls began."""

    calls: tuple[int, ...] = ()
    """The numbers of these calls."""

    @property
    def basis(self) -> str:
        """The row or the decision of docs/semantics.md."""
        return RULES[self.rule]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.rule}: {self.subject}: {self.text}"
        yield f"  against {self.basis}"
        for each in self.part:
            yield f"    {each}"


@dataclass(slots=True)
class Verdict:
    """What was judged of a history, and what cannot be explained."""

    violations: list[Violation] = field(default_factory=list)
    left_out: int = 0
    """Violations beyond the bound of the list."""

    judged: Counter[str] = field(default_factory=Counter)
    """Calls, by method."""

    passed_over: Counter[str] = field(default_factory=Counter)
    """Calls of methods that nothing is known of, and lines that no begin belongs to."""

    unknown: int = 0
    """Calls without an answer that says what they changed."""

    jobs: int = 0
    unjudged_jobs: int = 0
    """Of these: so many calls were under way at once that not all orders were tried."""

    unsettled_jobs: int = 0
    """Of these: nobody saw them end, although something may have ended them."""

    callers: int = 0
    first_ms: float | None = None
    last_ms: float | None = None
    is_over: bool = False
    """The history says that everything was drained."""

    @property
    def is_explained(self) -> bool:
        return not self.violations

    @property
    def calls(self) -> int:
        return self.judged.total() + self.passed_over.total()

    @property
    def span_ms(self) -> float:
        return 0.0 if self.first_ms is None or self.last_ms is None else self.last_ms - self.first_ms

    def lines(self) -> Iterator[str]:
        """For people: the violations, then what was judged."""
        for violation in self.violations:
            yield from violation.lines()
        if self.left_out:
            yield f"and {self.left_out} more"
        yield (
            f"{'explained' if self.is_explained else 'NOT EXPLAINED'}: {self.judged.total()} calls about {self.jobs} "
            f"jobs by {self.callers} callers in {self.span_ms / 1000:.3f} s, {self.unknown} of unknown outcome"
        )
        if self.passed_over:
            listed = ", ".join(f"{method} {number}" for method, number in sorted(self.passed_over.items()))
            yield f"not judged: {listed}"
        if self.unjudged_jobs:
            yield f"not judged: {self.unjudged_jobs} jobs, with too many calls at once"
        if self.unsettled_jobs:
            yield f"not seen to end: {self.unsettled_jobs} jobs"
