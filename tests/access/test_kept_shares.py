"""Shares of what servers keep and carry for their callers: one floods it, and a calm one gets what it got before."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pinlater.bodies.tier import MAX_PUTS, Tier
from pinlater.clock import SystemClock
from pinlater.metrics import Metrics
from pinlater.model import AccessAction, Caller, Grant, is_queue_name, queue_order
from pinlater.timetable import is_every_hour
from tests.speed import slower


@pytest.mark.parametrize("pool", ["bodies on their way to and from a tier"])
async def test_bodies_of_one_queue_do_not_hold_up_those_of_another(tmp_path: Path, pool: str) -> None:
    tier = Tier("files", tmp_path.as_uri(), SystemClock(), Metrics(), put_ms=60_000, get_ms=60_000)
    await tier.open()
    body, at_once = b"x" * 200_000, 10 * MAX_PUTS
    try:
        flood = [
            asyncio.ensure_future(tier.put(f"store/noisy/1/{number:x}-1", body, queue="noisy"))
            for number in range(at_once)
        ]
        await asyncio.sleep(0)
        await tier.put("store/calm/1/1-1", b"calm", queue="calm")
        assert sum(each.done() for each in flood) < at_once / 2, pool
        await asyncio.gather(*flood)
        flood = [
            asyncio.ensure_future(tier.get(f"store/noisy/1/{number:x}-1", queue="noisy")) for number in range(at_once)
        ]
        await asyncio.sleep(0)
        assert await tier.get("store/calm/1/1-1", queue="calm") == b"calm"
        assert sum(each.done() for each in flood) < at_once / 2, pool
        await asyncio.gather(*flood)
    finally:
        await tier.close()


@pytest.mark.parametrize("pool", ["what is worked out once and kept: callers, rights, descriptors, expressions, times"])
def test_what_is_not_kept_any_more_is_worked_out_anew(pool: str) -> None:
    calm = Caller("token:calm", grants=[Grant((AccessAction.READ,), ["calm-*"])])
    noisy = Caller("token:noisy", grants=[Grant((AccessAction.READ,), ["noisy-*"])])

    def asked() -> tuple[object, ...]:
        may = [calm.may((AccessAction.READ,), name) for name in ("calm-1", "noisy-1")]
        return may, is_queue_name("calm-1"), queue_order("calm-1"), is_every_hour("0 3 * * *")

    before = asked()
    for number in range(12_000):
        name = f"noisy-{number}"
        assert noisy.may((AccessAction.READ,), name)
        assert is_queue_name(name)
        queue_order(name)
        if number < 5_000:
            is_every_hour(f"{number % 60} {number // 60 % 24} * * {number % 7}")
    begun_s = time.process_time()
    assert asked() == before, pool
    assert time.process_time() - begun_s < slower() * 0.5
