"""Children that are dear to make: whoever makes them waits for them, and nobody else does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pinlater.backends.base import EndRules
from pinlater.backends.requests import ExpiryRequest
from pinlater.errors import FlowsUnavailable, RequestInvalid
from pinlater.flows import child_maker, end_records
from pinlater.flows.budgets import MAX_STEPS
from pinlater.flows.child_maker import MAX_ACK_STEPS, QUICK_STEPS, ChildMaker
from pinlater.flows.ends import ItemEnd, UnmadeChildren
from pinlater.model import Ack, AckOutcome, DequeueRequest, RequestContext, parse_descriptor
from pinlater.model.callers import Caller
from pinlater.model.flow_words import Applet, AppletKind, NewFlow, NewItem, Stage
from tests.flows.flow_stand import FlowStand, flow_stand
from tests.flows.stand import ROOT

SUMS = "[" + ",".join(["sum(payload)"] * 140) + "]"
ONES = msgspec.json.encode([1] * 32_000)
CHEAP, MIDDLING = "{a: payload[0]}", "payload[:900].{a: @}"


def unmade(expression: str, flow: int = 1, payload: bytes = ONES) -> UnmadeChildren:
    return UnmadeChildren(flow, payload, b"1", [(1, Applet(AppletKind.MAP, expression))])


@asynccontextmanager
async def opened() -> AsyncIterator[ChildMaker]:
    maker = ChildMaker()
    try:
        yield maker
    finally:
        await maker.close()


async def test_callers_have_their_turns_by_what_they_have_spent() -> None:
    async with opened() as maker:
        ended: list[str] = []

        async def make(caller: str, expression: str) -> None:
            await maker.make([unmade(expression)], caller)
            ended.append(caller)

        dear = [asyncio.create_task(make("token:a", SUMS)) for _ in range(3)]
        await asyncio.sleep(0)
        for _ in range(4):
            await make("token:b", MIDDLING)
        assert ended.count("token:a") <= 1
        await asyncio.gather(*dear)


async def test_flows_have_their_turns_where_nobody_is_known() -> None:
    async with opened() as maker:
        dear = asyncio.create_task(maker.make([unmade(SUMS, flow=1)] * 2, ""))
        await asyncio.sleep(0)
        ((made,),), _ = await maker.make([unmade(MIDDLING, flow=2)], "")
        assert (len(made.payloads), dear.done()) == (900, False)
        await dear


async def test_what_is_quick_waits_for_nothing_that_is_dear() -> None:
    async with opened() as maker:
        dear = asyncio.create_task(maker.make([unmade(SUMS)], "token:a"))
        ticks = 0
        while not dear.done():
            ((made,),), steps = await maker.make([unmade(CHEAP, payload=b"[7]")], "token:a")
            assert list(made.payloads) == [b'{"a":7}']
            assert MAX_ACK_STEPS - steps < QUICK_STEPS
            await asyncio.sleep(0)
            ticks += 1
        assert ticks > 100  # the event loop stood for none of it


async def test_many_calls_that_are_quick_share_a_turn_of_the_event_loop() -> None:
    """A hundred at once made it half a second long."""
    async with opened() as maker:
        item = unmade("payload[:150].{a: @}", payload=msgspec.json.encode([1] * 150))
        making = [asyncio.create_task(maker.make([item] * 5, f"token:{number}")) for number in range(40)]
        turns = 0
        while not all(each.done() for each in making):
            await asyncio.sleep(0)
            turns += 1
        spent = sum(MAX_ACK_STEPS - each.result()[1] for each in making)
        assert spent > 30 * QUICK_STEPS
        assert spent / turns < QUICK_STEPS


async def test_the_items_of_one_ack_share_a_budget() -> None:
    async with opened() as maker:
        some = [unmade(SUMS)] * 4 + [unmade(CHEAP)]
        made, steps = await maker.make(some, "token:a", 2 * MAX_STEPS + QUICK_STEPS)
        errors = [each.error for (each,) in made]
        assert steps == 0
        assert f"the {MAX_STEPS:,} steps of one item were used up at sum()" in errors[0]
        assert all(f"the {MAX_ACK_STEPS:,} steps of the items of one ack" in error for error in errors[3:])
        ((again,),), _ = await maker.make([unmade(CHEAP)], "token:a")
        assert not again.error


async def test_who_waits_too_long_may_send_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as maker:
        monkeypatch.setattr(child_maker, "MAX_WAIT_S", 0.01)
        with pytest.raises(FlowsUnavailable, match="expressions of token:a have waited") as refused:
            await maker.make([unmade(SUMS)], "token:a")
        assert refused.value.retryable


async def test_a_caller_goes_on_when_there_are_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place was taken for good, and behind four such callers nobody had children of dear expressions."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with opened() as maker:
        with monkeypatch.context() as out_of_threads:
            out_of_threads.setattr(threading.Thread, "start", fail)
            for number in range(child_maker.MAX_AT_ONCE):
                with pytest.raises(FlowsUnavailable, match="no expression can be evaluated") as refused:
                    await maker.make([unmade(MIDDLING)], f"token:{number}")
                assert refused.value.retryable
        ((made,),), _ = await maker.make([unmade(MIDDLING)], "token:0")
        assert len(made.payloads) == 900


# -- at a service ------------------------------------------------------------------------------------------------------


def below(expression: str, queue: str = "below") -> Stage:
    return Stage("below", "x", queue, ROOT.name, Applet(AppletKind.MAP, expression))


async def claimed(stand: FlowStand, queue: str, expression: str, *payloads: bytes) -> tuple[str, list[Ack]]:
    """A flow, and acks of all of its items as they were dequeued."""
    root = Stage("calculate", "x", queue)
    items = {"calculate": [NewItem(each) for each in payloads]}
    created = await stand.at.service.create_flow(NewFlow(queue, [root, below(expression, f"{queue}_b")], items=items))
    acks: list[Ack] = []
    while len(acks) < len(payloads):
        request = DequeueRequest(queue, 100, wait_ms=10_000)
        jobs = await stand.at.service.dequeue(request, context=RequestContext("me"))
        acks += [Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=b"[1]") for job in jobs]
    return created.id, acks


async def test_dear_expressions_of_one_flow_hold_up_no_other(tmp_path: Path) -> None:
    """14 items in one ack held all flows of everybody for nine seconds."""
    async with flow_stand(tmp_path) as stand:
        service = stand.at.service
        hostile, dear = await claimed(stand, "a", SUMS, *[ONES] * 14)
        calm, cheap = await claimed(stand, "b", "{a: payload.b}", *[b'{"b":1}'] * 5)
        contexts = [RequestContext(name, caller=Caller(f"token:{name}")) for name in "ab"]
        ending = asyncio.create_task(service.ack("a", dear, [], context=contexts[0]))
        for ack in cheap:
            await service.ack("b", [ack], [], context=contexts[1])
        status = await service.get_flow(calm)
        assert [each.items for each in status.stages] == [5, 5]
        assert not ending.done()
        await ending
        status = await service.get_flow(hostile)
        assert (status.stages[0].succeeded, status.stages[0].applet_errors, status.stages[1].items) == (14, 14, 0)
        assert any("too dear" in each for each in status.troubles)
        resumed = await service.resume_flow(hostile, stage="below", expression="{n: length(payload)}")
        assert (resumed.troubles, resumed.stages[1].items) == ([], 14)


async def test_a_claim_does_not_expire_while_the_children_of_its_success_are_made(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as stand:
        flow_id, (ack,) = await claimed(stand, "a", SUMS, ONES)
        job = parse_descriptor(ack.descriptor)
        assert job is not None
        claim = ExpiryRequest(job.priority, job.id, ack.claim_descriptor, 0)
        end = ItemEnd(ack.descriptor, b"[1]", ack.claim_descriptor)
        ending = asyncio.create_task(stand.flows.ends.record("a", [end]))
        await asyncio.sleep(0)
        while not ending.done():
            outcomes = await stand.flows.ends.expire("a", job.shard, [claim], "lost", EndRules())
            assert outcomes == [AckOutcome.IGNORED]
            await asyncio.sleep(0.01)
        status = await stand.at.service.get_flow(flow_id)
        assert (status.stages[0].succeeded, status.stages[0].applet_errors) == (1, 1)


async def test_an_ack_whose_payloads_are_large_is_recorded_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_records, "MAX_TRANSACTION_BYTES", 150_000)
    async with flow_stand(tmp_path) as stand:
        payload = b'"%b"' % (b"x" * 65_000)
        amount = 9
        flow_id, acks = await claimed(stand, "large", "[length(payload), result]", *[payload] * amount)
        await stand.at.service.ack("large", acks, [])
        status = await stand.at.service.get_flow(flow_id)
        assert [each.items for each in status.stages] == [amount, 2 * amount]


async def test_a_flow_with_an_expression_that_is_none_is_not_made(tmp_path: Path) -> None:
    async with flow_stand(tmp_path) as stand:
        with pytest.raises(RequestInvalid, match="expression of stage below"):
            await claimed(stand, "a", "[" * 1_999)
        flow_id, _ = await claimed(stand, "a", "payload")
        with pytest.raises(RequestInvalid, match="expression of stage below"):
            await stand.at.service.resume_flow(flow_id, stage="below", expression="a b")
