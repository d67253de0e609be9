"""Groups of jobs in a store: fair shares among the groups of a queue.

A job may have a group, a text as the name of a tenant. Among due jobs of one priority the groups take turns, whatever
each has waiting: a due job waits in the line of its group, by run_after and id, and a claim hands out the first job of
the group whose turn is the lowest. Then the turn of that group is one higher. Jobs without a group are a group of their
own, with the name "".

The *virtual time* of a priority is the turn at which a job of it was handed out last. A group that comes to have a job
in line has its next turn at the virtual time, or later where it had turns ahead of that: so a group that was away gets
no credit for it, and one that comes again and again with one job is served no more often than others. This is
start-time fair queueing (Goyal, Vin, Cheng 1996).

Beside one job of a group, at most one job of each other group of its priority is handed out before it, and one of each
that comes later; jobs of one claim count in their order. This holds from when the job is in line: where it was stored
due, at once; where it was put off or has come back, ENTERED jobs of its queue and priority at most come into line with
each claim, by run_after. Each shard has virtual times of its own.

What leaves its line otherwise than by a hand-out is not charged; a requeued job gives its group the turn back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ENTERED = 500
"""Due jobs of a priority that come into line with one claim."""

TURN = 1.0
"""What a hand-out costs a group."""


class ReadyCounts(list[int]):
    """What `count_ready` answers where the jobs of a queue have groups: its counts, and of each priority the groups
    that have jobs in line.
    """

    __slots__ = ("_groups",)

    def __init__(self, counts: Iterable[int], groups: Sequence[int]) -> None:
        super().__init__(counts)
        self._groups = groups

    def groups_at(self, level: int) -> int:
        """Those of a priority; at least one: due jobs may not be in line yet."""
        return max(1, self._groups[level])
