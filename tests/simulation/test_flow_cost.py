"""The cost of a flow that is open, and of which nothing is to be done: calls of the database of flows."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from pinlater.flows.database import FlowDatabase
from pinlater.model import RequestContext
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from tests.simulation import virtual_time
from tests.simulation.cluster import Cluster

pytestmark = pytest.mark.usefixtures("quiet_servers")

ME = RequestContext("me")
STAGE = Stage("pages", "fetch", "pages")
QUIET_S = 60


async def open_flow(servers: int, calls: Counter[str]) -> float:
    """Counts what is asked while nothing happens; then how long an item takes into its queue that another server than
    the keeper is given, where there is one.
    """
    cluster = Cluster(1)
    await cluster.start_all(servers)
    first, last = cluster.servers[0], cluster.servers[-1]
    flow = await cluster.call(first, first.service.create_flow(NewFlow("site", [STAGE]), context=ME))
    await asyncio.sleep(10)
    calls.clear()
    await asyncio.sleep(QUIET_S)
    quiet = Counter(calls)
    began_s = asyncio.get_running_loop().time()
    await cluster.call(last, last.service.add_flow_items(flow.id, STAGE.name, [NewItem(b"{}")], context=ME))
    while not (await cluster.call(last, last.service.get_flow(flow.id, context=ME))).stages[0].queued:
        await asyncio.sleep(0.01)
    took_s = asyncio.get_running_loop().time() - began_s
    await cluster.close()
    calls.clear()
    calls.update(quiet)
    return took_s


@pytest.mark.parametrize(("servers", "looks_a_second", "within_s"), [(1, 1.0, 0.1), (3, 4.0, 0.4)])
def test_an_open_flow_costs_a_few_looks_a_second_and_its_items_come_at_once(
    monkeypatch: pytest.MonkeyPatch, servers: int, looks_a_second: float, within_s: float
) -> None:
    calls: Counter[str] = Counter()
    for name in ("waiting", "open_flows", "keep", "stopping", "take_callbacks"):
        made = getattr(FlowDatabase, name)

        def counted(self: FlowDatabase, *values: Any, name: str = name, made: Any = made) -> Any:
            calls[name] += 1
            return made(self, *values)

        monkeypatch.setattr(FlowDatabase, name, counted)
    assert virtual_time.run(open_flow(servers, calls), 1) <= within_s
    a_second = {name: times / QUIET_S for name, times in calls.items()}
    assert a_second["waiting"] <= looks_a_second * 1.1
    assert a_second["open_flows"] <= 0.5 * servers * 1.1
    assert a_second["keep"] <= 1.0 * servers * 1.1
    assert max(a_second["stopping"], a_second["take_callbacks"]) <= 1.1
