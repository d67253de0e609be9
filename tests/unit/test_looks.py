"""Questions to the stores that lines share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.model import Job
from pinlater.service.longpoll.due import DueQuery
from tests.unit.stand import stand

WITHIN_S = 60.0


async def test_after_a_failure_that_nobody_foresaw_the_next_look_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(queues: Sequence[str], priorities: Sequence[int]) -> dict[str, int | None]:
        raise ZeroDivisionError("unforeseen")

    async with stand(1) as at:
        await at.service.enqueue("mail", [Job(b"x")])
        looks = DueQuery(at.members)
        async with asyncio.timeout(WITHIN_S):
            with monkeypatch.context() as patched:
                patched.setattr(at.members.all[0].shard, "next_due", broken)
                with pytest.raises(ZeroDivisionError):
                    await looks.next_due("mail", (1,))
            assert await looks.next_due("mail", (1,)) == at.clock.now_ms()
