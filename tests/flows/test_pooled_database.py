"""The database of flows behind a pooler that gives each transaction another session: it needs none of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.flows.stand import ROOT, feed, flow_of, opened, work
from tests.stores.pgbouncer import PgBouncer
from tests.stores.places import Places

THREADS, FLOWS = 4, 24


def test_flows_go_through_a_pooler_of_transactions(postgres_places: Places) -> None:
    pooler = PgBouncer(postgres_places.fresh(), "transaction")
    try:
        pooler.start()
        with opened(pooler.url()) as database, ThreadPoolExecutor(THREADS) as pool:
            ids = list(pool.map(lambda _: flow_of(database, ROOT, items=2, sealed=["calculate"]), range(FLOWS)))
            assert len(set(ids)) == FLOWS
            work(database, "calculate")
            assert feed(database) == []
            assert {database.status(flow_id).stages[0].pending for flow_id in ids} == {0}
    finally:
        pooler.stop()
