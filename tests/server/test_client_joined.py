"""Concurrent single enqueues are few calls at the server, and each caller has its own descriptor."""

from __future__ import annotations

import asyncio

import pytest

from pinlater import AsyncClient, Job, errors
from pinlater.model import RequestContext
from tests.faults.proxy import Proxy
from tests.server.memory_api import EchoService
from tests.server.serving import Served, serving


def _sizes(served: Served) -> list[int]:
    return [len(what[1]) for name, what in served.service.calls if name == "enqueue"]


async def test_callers_in_a_loop_are_joined_without_being_asked() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:

        async def caller(number: int) -> None:
            for turn in range(10):
                assert (await client.enqueue("mail", [Job(b"%d" % number)]))[0].startswith("mail:")
                assert isinstance(await client.enqueue("mail", Job(b"%d" % turn)), str)

        await asyncio.gather(*map(caller, range(50)))
        assert sum(_sizes(served)) == 1_000
        assert len(_sizes(served)) <= 40


async def test_each_queue_is_joined_by_itself() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        queues = ["mail", "images"] * 20
        descriptors = await asyncio.gather(*(client.enqueue(queue, Job(b"")) for queue in queues))
        assert [descriptor.split(":")[0] for descriptor in descriptors] == queues
        assert len(_sizes(served)) == 2


async def test_a_gateway_joins_the_calls_of_each_caller_and_of_nobody_else() -> None:
    callers = [
        RequestContext("a", "1", token="plt_a", caller_address="10.0.0.1"),
        RequestContext("a", "2", token="plt_a", caller_address="10.0.0.1"),
        RequestContext("a", "3", token="plt_b", caller_address="10.0.0.1"),
        RequestContext("a", "4", token="plt_a", caller_address="10.0.0.2"),
        RequestContext("b", "5", token="plt_a", caller_address="10.0.0.1"),
        RequestContext("a", "6", token="plt_a", caller_address="10.0.0.1", on_behalf_of="cert:web"),
    ]
    async with serving() as served:
        for joins, sizes in ((False, [1] * 24), (True, [8, 4, 4, 4, 4])):
            served.service.calls.clear()
            async with AsyncClient(f"127.0.0.1:{served.port}", joins_contexts=joins) as client:
                found = await asyncio.gather(*(client.enqueue("mail", Job(b""), context=who) for who in callers * 4))
            assert all(each.startswith("mail:") for each in found)
            assert sorted(_sizes(served), reverse=True) == sizes


async def test_a_joined_call_that_is_cut_off_is_of_unknown_outcome_to_each_and_nobody_else() -> None:
    async with serving() as served:
        with Proxy(served.port) as proxy:
            async with AsyncClient(f"127.0.0.1:{proxy.port}") as client:
                served.service.hold["mail"] = asyncio.Event()
                joined = [asyncio.create_task(client.enqueue("mail", Job(b"1"))) for _ in range(5)]
                await served.service.held.wait()
                behind = [asyncio.create_task(client.enqueue("mail", Job(b"2"))) for _ in range(5)]
                await asyncio.sleep(0)
                proxy.drop_connections()
                answers = await asyncio.gather(*joined, return_exceptions=True)
                assert [type(answer) for answer in answers] == [errors.OutcomeUnknown] * 5
                served.service.hold["mail"].set()
                assert len(await asyncio.gather(*behind)) == 5
                assert _sizes(served) == [5, 5]


@pytest.mark.parametrize("size", [1, 300])
async def test_a_body_of_any_size_that_the_frame_can_hold_travels(size: int) -> None:
    async with serving(EchoService()) as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        await asyncio.gather(*(client.enqueue("mail", Job(bytes(size * 20_000))) for _ in range(3)))
        assert sum(_sizes(served)) == 3


async def test_a_call_over_the_bound_of_a_frame_is_refused_before_it_is_sent() -> None:
    async with serving() as served, AsyncClient(f"127.0.0.1:{served.port}") as client:
        with pytest.raises(errors.RequestInvalid, match="size of the call"):
            await client.enqueue("mail", [Job(bytes(9_000_000)), Job(bytes(9_000_000))])
        assert _sizes(served) == []
