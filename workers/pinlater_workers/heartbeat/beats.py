"""One beat: a checkpoint for each queue, then a look at what is there, and what that says of each claim."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError, ShardConnectionFailed
from pinlater.model import Checkpoint, JobInfo, JobState, parse_descriptor
from pinlater_workers.heartbeat.messages import Watched

CLAIMS_PER_CALL = 1_000

Part = Sequence[Watched]


@dataclass(slots=True)
class Outcome:
    """Numbers of claims. `good`: there, and beaten; `lost`: gone; `ended`: the job has succeeded or failed, and nobody
    claimed it after; `failed`: nobody knows, and `detail` says why."""

    good: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    detail: str = ""

    def of(self, info: JobInfo | None, claim: str) -> list[int]:
        """The list for that claim of a job that looks so; None: there is no such job.

        `claim` "": the server does not tell workers their claims. Then any job in progress is taken for held.
        """
        if info is None or (claim and info.claim_descriptor != claim):
            return self.lost
        if info.state is JobState.IN_PROGRESS:
            return self.good
        return self.ended if claim else self.lost

    def failing(self, part: Part, error: Exception) -> None:
        self.failed += [watched.number for watched in part]
        self.detail = str(error)


async def beat(client: AsyncClient, claims: Sequence[Watched], timeout_s: float) -> Outcome:
    """Every claim is in one list of the outcome. Each call takes `timeout_s` at most; where a shard is out, two rounds.

    A checkpoint that is taken ties its claim to the connection it came by.
    """
    outcome = Outcome()
    beaten: list[Watched] = []

    async def checkpoint(part: Part) -> None:
        kept = [Checkpoint(watched.descriptor, claim_descriptor=watched.claim) for watched in part]
        await client.checkpoint(part[0].queue, kept, timeout=timeout_s)
        beaten.extend(part)

    async def look(part: Part) -> None:
        found = await client.lookup([watched.descriptor for watched in part], timeout=timeout_s)
        for watched in part:
            outcome.of(found.get(watched.descriptor), watched.claim).append(watched.number)

    await _each(checkpoint, _parts(claims, lambda watched: watched.queue), outcome)
    await _each(look, _parts(beaten, lambda watched: ""), outcome)
    return outcome


def _parts(claims: Iterable[Watched], of: Callable[[Watched], object]) -> list[Part]:
    """By what `of` says, and no more than a call takes."""
    grouped: dict[object, list[Watched]] = {}
    for watched in claims:
        grouped.setdefault(of(watched), []).append(watched)
    return [
        group[start : start + CLAIMS_PER_CALL]
        for group in grouped.values()
        for start in range(0, len(group), CLAIMS_PER_CALL)
    ]


async def _each(call: Callable[[Part], Awaitable[None]], parts: Iterable[Part], outcome: Outcome) -> None:
    await asyncio.gather(*(_whole_or_by_shard(call, part, outcome) for part in parts))


async def _whole_or_by_shard(call: Callable[[Part], Awaitable[None]], part: Part, outcome: Outcome) -> None:
    """Where one shard is out, the claims on the others go by themselves."""
    try:
        await call(part)
    except ShardConnectionFailed as error:
        shards = _parts(part, _shard)
        if len(shards) == 1:
            outcome.failing(part, error)
        else:
            await asyncio.gather(*(_one_shard(call, on_shard, outcome) for on_shard in shards))
    except PinLaterError as error:
        outcome.failing(part, error)


async def _one_shard(call: Callable[[Part], Awaitable[None]], part: Part, outcome: Outcome) -> None:
    try:
        await call(part)
    except PinLaterError as error:
        outcome.failing(part, error)


def _shard(watched: Watched) -> object:
    ref = parse_descriptor(watched.descriptor)
    return ref and ref.shard
