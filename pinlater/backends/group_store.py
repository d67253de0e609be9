"""Groups of jobs in a store: fair shares among the groups of a queue.

A job may have a group, a text as the name of a tenant. Among due jobs of one priority the groups take turns, whatever
each has waiting: a due job waits in the line of its group, by run_after and id, and a claim hands out the first job of
the group whose turn is the lowest. Then the turn of that group is one higher. Jobs without a group are a group of their
own, with the name "".

The *virtual time* of a priority is the highest turn at which a job of it was handed out. A group that comes to have a
job in line has its next turn at the virtual time, or later where it had turns ahead of that: so a group that was away
gets no credit for it, and one that comes again and again with one job is served no more often than others. This is
start-time fair queueing (Goyal, Vin, Cheng 1996).

Beside one job of a group, at most one job of each other group of its priority is handed out before it, and one of each
that comes later; jobs of one claim count in their order. This holds from when the job is in line: where it was stored
due, at once; where it was put off or has come back, ENTERED jobs of its queue and priority at most come into line with
each claim, by run_after. Each shard has virtual times of its own.

What leaves its line otherwise than by a hand-out is not charged; a requeued job gives its group the turn back.

A rule (group_rules.py) gives a group another weight than 1, or pauses it. A turn of a group of weight w costs one w-th,
so beside one job of a group of weight v at most ceil(w / v) jobs of it are handed out, and one more. The jobs of a
paused group stay in line, and none is handed out; when the pause ends, its turn is beside the others'. Both count from
the moment when `put_config` took the rule.

A claim may say on how many shards a group has jobs in line (ClaimRequest.spread): then a turn of it costs so many times
as much, so that what it gets on all of them together goes by its weight.

Groups may be taken off all jobs of a queue (`clear_groups`), step by step. From the first step on until a job with a
group comes in, no job comes into line: a claim takes those that are in line by turns, and then others of the priority
by run_after, and the steps put what is in line back among the others. When no job has a group and none is in line, the
queue is as one that never had groups. While jobs with groups go on coming, that may never be. Any step may come again,
or be the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pinlater.backends.operations import StorePart, operation

ENTERED = 500
"""Due jobs of a priority that come into line with one claim."""

TURN = 1.0
"""What a hand-out costs a group of weight 1; a group of weight w pays one w-th of it."""

HELD_AT_ONCE = 500
"""Groups that are held back, since they are paused or have no room, which one step holds, frees or counts at most."""

WEIGHED = 1_000
"""Groups of a priority whose weights `count_ready` adds up, or that `waiting_groups` names: they go no further."""

MOST_COUNTED = 10_000
"""Jobs of a group and a priority, when groups are listed: beyond that a count goes no further."""


class GroupCounts(NamedTuple):
    """The jobs of a group that are in line, and the run_after of the first of them. `limited`: how many of them wait
    where the group is held back, since it is paused or has no room.
    """

    ready: int
    oldest_run_after_ms: int
    limited: int = 0

    def plus(self, other: GroupCounts) -> GroupCounts:
        """The same group at two priorities, or on two shards."""
        oldest_ms = min(self.oldest_run_after_ms, other.oldest_run_after_ms)
        return GroupCounts(self.ready + other.ready, oldest_ms, self.limited + other.limited)


class ClearedGroups(NamedTuple):
    """What one step of `clear_groups` did: how many jobs it took the group off, and where the next one goes on; "":
    no job of the queue has a group any more.
    """

    jobs: int
    position: str


class GroupStore(StorePart):
    """A store that lacks it keeps no groups, and has nothing to list or to clear."""

    @operation(reads=True, bulk=True, optional=True)
    async def list_groups(
        self, queue: str, priorities: Sequence[int], first: str, limit: int, limited_at_ms: int | None = None
    ) -> dict[str, GroupCounts]:
        """Of the groups of a queue that have jobs in line with these priorities, up to `limit` from that name on, by
        the bytes of their names; "" is the group of jobs without one. QueueNotFound.

        `limited` is counted with `limited_at_ms`: of groups that are held back at that time, as claims found them.
        """
        return {}

    @operation(reads=True, bulk=True, optional=True)
    async def count_groups(
        self,
        queue: str,
        priorities: Sequence[int],
        groups: Sequence[str],
        most: int = MOST_COUNTED,
        limited_at_ms: int | None = None,
    ) -> dict[str, GroupCounts]:
        """The same of these groups: those that have jobs in line, counted up to `most` for each priority.
        QueueNotFound.
        """
        return {}

    @operation(reads=True, bulk=True, optional=True)
    async def waiting_groups(self, queue: str, priorities: Sequence[int]) -> dict[int, dict[str, int]]:
        """Of each priority the groups that wait for their turns, with their weights: up to WEIGHED, those whose turns
        are next. Empty where no job of the queue has a group. QueueNotFound.
        """
        return {}

    @operation(bulk=True, optional=True)
    async def clear_groups(self, queue: str, position: str, limit: int, dry_run: bool) -> ClearedGroups:
        """Take the group off jobs of a queue, in whatever state: one step from a position on, "" for the beginning, in
        one transaction of about `limit` jobs. `dry_run`: count them only. QueueNotFound.
        """
        return ClearedGroups(0, "")


class ReadyCounts(list[int]):
    """What `count_ready` answers where the jobs of a queue have groups: its counts, and of each priority `weights`, the
    sum of the weights of groups that have jobs in line; 0 where due jobs are not in line yet.
    """

    __slots__ = ("weights",)

    def __init__(self, counts: Iterable[int], weights: Sequence[int]) -> None:
        super().__init__(counts)
        self.weights = weights
