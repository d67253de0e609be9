"""What one owner of flows may have, on every database: counted in the transactions, never beyond the bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from pinlater.access.rules import BUILT_IN_ROLES
from pinlater.errors import LimitReached
from pinlater.flows.database import FlowDatabase
from pinlater.flows.tables import FLOW_KEYS, FLOWS, ITEMS, OWNED_FLOWS, OWNERS, STAGES
from pinlater.model import Caller, RequestContext
from pinlater.model.flow_words import Applet, AppletKind, NewFlow, NewItem, Stage
from pinlater.model.owner_bounds import OwnedKind, OwnerBounds
from pinlater.service import stored_usage
from tests.flows.flow_stand import flow_stand
from tests.flows.stand import ROOT, START_MS, check_counters, opened, some_items, work

HERS, HIS = "token:hers", "cert:his.example"
BOUNDS = OwnerBounds(flows=3, flow_items=10)
MANY = Stage("many", "many", "payroll", "calculate", Applet(AppletKind.LIST))


@pytest.fixture
def bounded(url: str) -> Iterator[FlowDatabase]:
    with opened(url, lambda owner: BOUNDS) as made:
        yield made
    check_counters(url)


def make(database: FlowDatabase, owner: str, items: int = 0, *stages: Stage, key: str = "") -> str:
    new = NewFlow("payroll", stages or (ROOT,), key, items={"calculate": some_items(items)} if items else {})
    return database.create(new, START_MS, owner).id


def counts(database: FlowDatabase, owner: str = HERS) -> tuple[int, int]:
    found = database.counts_of(owner)
    return found.flows, found.items


def test_an_owner_has_no_more_flows_than_its_bound_and_others_are_not_held_up(bounded: FlowDatabase) -> None:
    first = make(bounded, HERS, key="once")
    for _ in range(2):
        make(bounded, HERS)
    with pytest.raises(LimitReached, match=r"token:hers has 3 flows, and may have 3: delete flows") as error:
        make(bounded, HERS)
    assert error.value.limit == "identity_flows"
    assert make(bounded, HERS, key="once") == first, "one that is there is no other one"
    make(bounded, HIS)
    for _ in range(5):
        make(bounded, "", 5)
    assert counts(bounded) == (3, 0)
    assert bounded.delete(first, 100)
    make(bounded, HERS)
    assert counts(bounded) == (3, 0)


def test_items_count_over_all_flows_of_an_owner_whoever_adds_them(bounded: FlowDatabase) -> None:
    first, second = make(bounded, HERS, 4), make(bounded, HERS)
    keyed = [NewItem(b"1", f"key-{number}") for number in range(4)]
    bounded.add(second, "calculate", keyed, START_MS)
    with pytest.raises(LimitReached, match="the owner of this flow may have no more items of flows: delete"):
        bounded.add(first, "calculate", some_items(3), START_MS)
    with pytest.raises(LimitReached):
        make(bounded, HERS, 3)
    bounded.add(second, "calculate", keyed, START_MS)  # once more is nothing
    bounded.add(second, "calculate", [*keyed, NewItem(b"1", "key-5"), NewItem(b"2")], START_MS)
    with pytest.raises(LimitReached):
        bounded.add(second, "calculate", [*keyed, NewItem(b"1", "key-6")], START_MS)
    assert counts(bounded) == (2, 10)
    assert not bounded.delete(second, 3), "it is removed in slices"
    assert counts(bounded) == (2, 10)
    assert bounded.delete(second, 100)
    assert counts(bounded) == (1, 4)
    bounded.cancel(first, START_MS)
    while not bounded.stop(first, START_MS, 100)[1]:
        pass
    while bounded.reap(START_MS + 10**12, 100):
        pass
    assert counts(bounded) == (0, 0)


def test_what_results_would_make_beyond_the_bound_waits_for_room_and_fails_no_ack(bounded: FlowDatabase) -> None:
    other = make(bounded, HERS, 5)
    flow_id = make(bounded, HERS, 2, ROOT, MANY)
    fair = make(bounded, HIS, 1, ROOT, MANY)
    recorded = work(bounded, "calculate", lambda item: b"[1, 2]")
    assert len(recorded.ends) == 8
    assert counts(bounded) == (2, 9), "the children of one of both had room"
    assert counts(bounded, HIS) == (1, 3)
    assert bounded.status(fair).stages[1].items == 2
    status = bounded.status(flow_id)
    assert [(each.items, each.applet_errors) for each in status.stages] == [(2, 1), (2, 0)]
    (broken,) = [each for each in bounded.items(flow_id, "calculate", None, "", (), 0, 10)[0] if each.applet_error]
    assert broken.applet_error == (
        "many: the owner of this flow may have no more items of flows: delete flows, or give them a shorter time "
        "to live, or ask for a role with a higher max-flow-items (`pinlater access show` says what stands)"
    )
    bounded.resume(flow_id, "", "", START_MS)
    assert counts(bounded) == (2, 9), "there is no room yet"
    assert bounded.delete(other, 100)
    bounded.resume(flow_id, "", "", START_MS)
    assert counts(bounded) == (1, 6)
    assert [(each.items, each.applet_errors) for each in bounded.status(flow_id).stages] == [(2, 0), (4, 0)]


def test_callers_at_the_same_moment_exceed_a_bound_by_what_is_under_way_alone(bounded: FlowDatabase, url: str) -> None:
    flows = [make(bounded, HERS) for _ in range(3)]

    def add(number: int) -> int:
        try:
            bounded.add(flows[number % 3], "calculate", some_items(1), START_MS)
        except LimitReached:
            return 0
        return 1

    with ThreadPoolExecutor(4) as threads:
        added = sum(threads.map(add, range(60)))
    assert counts(bounded) == (3, added)
    assert BOUNDS.flow_items <= added <= BOUNDS.flow_items + (0 if url.startswith("sqlite") else 3)


def test_a_recount_makes_right_what_a_server_left_that_knows_no_owners(bounded: FlowDatabase, url: str) -> None:
    removed, changed, his = make(bounded, HERS, 3, key="k"), make(bounded, HERS, 2), make(bounded, HIS, 1)
    other = bounded.create(NewFlow("payroll", [ROOT], "k"), START_MS, HIS, lambda queues: False).id
    gone = (removed, his, other)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for flow_id in gone:
            flow = connection.execute(sa.select(FLOWS.c.number).where(FLOWS.c.id == flow_id)).scalar_one()
            connection.execute(sa.delete(ITEMS).where(ITEMS.c.flow == flow))
            connection.execute(sa.delete(STAGES).where(STAGES.c.flow == flow))
            connection.execute(sa.delete(FLOWS).where(FLOWS.c.number == flow))
    assert (counts(bounded), counts(bounded, HIS)) == ((2, 5), (2, 1))
    assert bounded.recount("", 1) == HIS, "few at a time, in order"
    assert (counts(bounded), counts(bounded, HIS)) == ((2, 5), (0, 0))
    assert bounded.recount(HIS, 100) == ""
    assert counts(bounded) == (1, 2)
    with engine.connect() as connection:
        for table in (OWNED_FLOWS, FLOW_KEYS):
            left = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar()
            assert left == (table is OWNED_FLOWS), table.name
    bounded.add(changed, "calculate", some_items(1), START_MS)
    assert [tuple(each) for each in bounded.counted_owners(10)] == [(HERS, 1, 3)]


def test_counts_that_are_missing_or_too_low_are_made_right_and_never_less_than_nothing(
    bounded: FlowDatabase, url: str
) -> None:
    flow_id = make(bounded, HERS, 3)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.execute(sa.delete(OWNERS))
    bounded.recount("", 100)
    assert counts(bounded) == (1, 3)
    other = make(bounded, HERS, 4)
    with engine.begin() as connection:
        connection.execute(sa.update(OWNERS).values({"items": 2}))
    assert bounded.delete(other, 100)
    assert counts(bounded) == (1, 0), "nobody has less than nothing"
    with engine.begin() as connection:
        connection.execute(sa.delete(OWNERS))
    assert bounded.delete(flow_id, 100)
    assert counts(bounded) == (0, 0)


async def test_what_an_identity_beyond_those_with_the_most_items_has_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_usage, "MAX_SHOWN", 2)
    async with flow_stand(tmp_path) as at:
        service = at.at.service
        for owner, items in (("token:a", 3), ("token:b", 2), ("token:c", 1)):
            first = {"calculate": some_items(items)}
            caller = RequestContext("me", caller=Caller(owner, grants=BUILT_IN_ROLES["admin"]))
            await service.create_flow(NewFlow("payroll", [ROOT], items=first), context=caller)
        for number in range(9):
            await service.queues.create(f"c{number}", "me", "token:c")
        usage = {each.identity: {count.kind: count.used for count in each.stored} for each in await service.get_usage()}
    assert usage["token:a"][OwnedKind.FLOW_ITEMS] == 3
    assert (usage["token:c"][OwnedKind.QUEUES], usage["token:c"][OwnedKind.FLOW_ITEMS]) == (9, None)


async def test_who_asks_for_its_rights_waits_once_for_a_database_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = RequestContext("me", caller=Caller("token:a", grants=BUILT_IN_ROLES["admin"]))
    answers = threading.Event()
    async with flow_stand(tmp_path) as at:

        async def flows() -> int | None:
            stored = (await at.at.service.get_access(context=context)).stored
            return next(each.used for each in stored if each.kind is OwnedKind.FLOWS)

        await at.at.service.create_flow(NewFlow("payroll", [ROOT]), context=context)
        assert await flows() == 1
        with monkeypatch.context() as patch:
            patch.setattr(stored_usage, "FLOWS_WITHIN_S", 0.05)
            held = asyncio.ensure_future(at.flows.connection.call(lambda database: answers.wait(60.0)))
            await asyncio.sleep(0)
            assert await flows() is None
        answers.set()
        assert await held
        assert await flows() is None, "it is not asked again at once"
        async with asyncio.timeout(60):
            while await flows() is None:
                await asyncio.sleep(0.1)
