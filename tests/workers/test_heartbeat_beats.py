"""One beat: how many calls it is, and what a shard that is out costs."""

from __future__ import annotations

import math
from typing import Any

from pinlater import AsyncClient, errors
from pinlater.model import JobInfo, JobState
from pinlater_workers.heartbeat.beats import HeartbeatCalls, beat
from pinlater_workers.heartbeat.messages import HeartbeatEntry
from tests.server.memory_api import FIRST_ID, EchoService
from tests.server.serving import serving

TIMEOUT_S = 10.0


class OneShardOut(EchoService):
    """Every job is in progress under the claim "c", but shard 2 does not answer, in calls of those kinds."""

    def __init__(self, *out: str) -> None:
        super().__init__()
        self.out = out

    def _look(self, name: str, descriptors: list[str]) -> None:
        if name in self.out and any(":s2:" in descriptor for descriptor in descriptors):
            raise errors.ShardConnectionFailed("shard 2 cannot be used")

    async def checkpoint(self, queue: str, checkpoints: Any, *, context: Any = None, **more: Any) -> None:
        self._note("checkpoint", [each.descriptor for each in checkpoints], context)
        self._look("checkpoint", [each.descriptor for each in checkpoints])

    async def lookup(self, descriptors: Any, **more: Any) -> dict[str, Any]:
        context = more.get("context")
        self._note("lookup", descriptors, context)
        self._look("lookup", descriptors)
        return {name: JobInfo(name, JobState.IN_PROGRESS, 1, 2, 2, "", 1, 1, 1, "c") for name in descriptors}


class OlderServers(AsyncClient):
    """A client whose servers are of the version before heartbeatJobs."""

    async def heartbeat(self, *args: Any, **options: Any) -> Any:
        raise errors.MethodUnknown("heartbeatJobs")


def claim(queue: str, shard: int, number: int, claim: str = "c") -> HeartbeatEntry:
    return HeartbeatEntry(number, queue, f"{queue}:s{shard}:p1:{FIRST_ID + number}", claim, 0.0, 0.0, math.inf)


async def test_one_call_for_each_queue_and_one_look_in_slices() -> None:
    claims = [claim("mail", 1, number) for number in range(1_001)]
    claims += [claim("images", 1, 2_000), claim("images", 1, 2_001, "another")]
    async with serving(OneShardOut()) as served, OlderServers(f"127.0.0.1:{served.port}") as client:
        outcome = await beat(HeartbeatCalls(client), claims, TIMEOUT_S)
        assert sorted(outcome.good) == [*range(1_001), 2_000]
        assert (outcome.lost, outcome.failed) == ([2_001], [])
        asked = sorted((name, len(descriptors)) for name, descriptors in served.service.calls)
        assert asked == [("checkpoint", 1), ("checkpoint", 2), ("checkpoint", 1_000), ("lookup", 3), ("lookup", 1_000)]


async def test_where_the_server_names_no_claims_a_job_in_progress_is_held() -> None:
    claims = [claim("mail", 1, 1, ""), claim("mail", 1, 2, "another")]
    async with serving(OneShardOut()) as served, OlderServers(f"127.0.0.1:{served.port}") as client:
        outcome = await beat(HeartbeatCalls(client), claims, TIMEOUT_S)
    assert (outcome.good, outcome.lost) == ([1], [2])


async def test_a_shard_that_is_out_makes_only_its_own_claims_doubtful() -> None:
    claims = [claim("mail", 1, 1), claim("mail", 2, 2), claim("mail", 1, 3), claim("images", 2, 4)]
    for out in ("checkpoint", "lookup"):
        service = OneShardOut(out)
        async with (
            serving(service) as served,
            OlderServers(f"127.0.0.1:{served.port}", retry_unavailable=False) as client,
        ):
            outcome = await beat(HeartbeatCalls(client), claims, TIMEOUT_S)
            assert (sorted(outcome.good), outcome.lost, sorted(outcome.failed)) == ([1, 3], [], [2, 4])
            assert "shard 2 cannot be used" in outcome.detail
