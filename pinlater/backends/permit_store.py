"""Permits of groups in a store: how many jobs of a group may be in progress over all shards, and how fast they come.

A job of a group with a limit is handed out in two steps. Its shard puts it under a claim, and then the claim needs a
*permit* of the queue's home, one of the shards, which counts the permits of each group and has its token bucket. A
claim without a permit goes back, and nobody has seen it. So a limit over many shards is exact: a permit names its
claim, and is taken back once the claim has ended.

Where a claim got no permit its shard is told: it has no *room* for the group, and hands out none of its jobs for a
while. Then the shard waits at the home. When a permit is taken back, the shard that has waited longest is told to have
room for one job, and goes to the end of those that wait. Room and waiting only save work: where they are lost or wrong,
the room ends by itself, and a claim asks the home again.

A claim ends on its shard, and a process may stop before the home learns of it. Each permit has a time at which it is to
be checked: whoever does that asks the shard of the claim.

Jobs without a group need no permit.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.backends.operations import StorePart, operation


def permit_holder(shard_id: str, job_id: int) -> str:
    """The name of a job, which has one permit at most."""
    return f"{shard_id}:{job_id}"


class PermitKey(NamedTuple):
    """A job under a claim, on its shard."""

    shard_id: str
    priority: int
    id: int
    claim_descriptor: str

    @property
    def holder(self) -> str:
        return permit_holder(self.shard_id, self.id)

    @classmethod
    def of_holder(cls, holder: str, priority: int, claim_descriptor: str) -> PermitKey:
        shard_id, _, job_id = holder.partition(":")
        return cls(shard_id, priority, int(job_id), claim_descriptor)


class PermitRequest(NamedTuple):
    """Claims of one group that need permits, the first before the others. `concurrency`: the most permits of the group;
    None: its claims need none, but tokens only. `per_second`: the rate of its tokens, one for each; None: no rate.
    """

    group: str
    keys: Sequence[PermitKey]
    concurrency: int | None = None
    per_second: float | None = None


class PermitAnswer(NamedTuple):
    """So many of the first claims may be handed out. `retry_after_ms`: when the rate allows the next one; 0 where it is
    not the rate that forbids more.
    """

    granted: int
    retry_after_ms: int = 0


class Permit(NamedTuple):
    """A permit that a claim has."""

    group: str
    key: PermitKey


class FreedPermits(NamedTuple):
    """How many permits of a group were taken back, and the shards that wait for some, those first that have waited
    longest. So many of the first wait behind the others from now on.
    """

    permits: int
    waiting: Sequence[str]


class GroupRoom(NamedTuple):
    """Until that time claims hand out so many jobs of a group, and no more. 0: none; else these come to those that it
    has room for already.
    """

    jobs: int
    until_ms: int


class PermitStore(StorePart):
    """Each call is atomic as a whole. QueueNotFound."""

    # -- at the home -------------------------------------------------------------------------------------------------

    @operation()
    async def take_permits(
        self, queue: str, requests: Sequence[PermitRequest], check_at_ms: int, now_ms: int
    ) -> list[PermitAnswer]:
        """Permits and tokens for claims, of each group as far as its limits allow; one request for each group. A job
        that has a permit already keeps it: under the new claim where that may be handed out, else under the old one,
        which may be the later of the two.
        """

    @operation()
    async def end_permits(self, queue: str, keys: Sequence[PermitKey]) -> dict[str, FreedPermits]:
        """Take back the permits of these claims; what is under another claim stays. A `claim_descriptor` of "" stands
        for whichever claim the job has. By group, of those for which some shard waits.
        """

    @operation()
    async def await_permits(
        self, queue: str, shard_id: str, groups: Mapping[str, int], until_ms: int
    ) -> dict[str, int]:
        """From now on this shard waits for permits of these groups, which have so many at most; 0: it waits no more.
        Of those that wait, the permits that are free by then. After `until_ms` it may be forgotten that shards wait.
        """

    @operation(reads=True)
    async def read_permits(self, queue: str, holders: Sequence[str]) -> list[Permit]:
        """The permits of these jobs (permit_holder), of those that have one."""

    @operation()
    async def due_permits(self, queue: str, limit: int, now_ms: int, next_check_ms: int) -> list[Permit]:
        """Up to `limit` permits that are to be checked by now; they are to be checked again at that later time. The
        bucket of a group and the shards that wait for it are forgotten where that is of no use any more.
        """

    @operation(reads=True)
    async def count_permits(self, queue: str, groups: Sequence[str]) -> dict[str, int]:
        """How many permits each group has; groups without any are left out."""

    # -- where jobs are ----------------------------------------------------------------------------------------------

    @operation()
    async def put_rooms(self, queue: str, rooms: Mapping[str, GroupRoom], now_ms: int) -> list[str]:
        """What claims whose requests have `most_of_group` keep to from now on; where a group had no bound before, the
        room that is put is all. Those of the groups that have jobs which are due: others that were to have room for
        jobs have no bound from now on. Who waits for jobs is notified of those that there is room for.
        """
