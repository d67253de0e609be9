"""A payroll survives kills of its workers, its servers and its stores: every check is sent, and recorded once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from pinlater.flows.tables import KEEPERS
from tests.faults.operated import Operated, store_steps
from tests.flows.payroll import Payroll
from tests.flows.payroll_worker import CLAIM_TIMEOUT_S
from tests.stores.places import Places, start_server
from tests.stores.process import StoreServer

USERS = int(os.environ.get("PINLATER_PAYROLL_USERS", "600"))
DATABASE_AWAY_S = 10.0 if USERS >= 10_000 else 3.0
SETTINGS = (
    *("--claim-timeout", f"{CLAIM_TIMEOUT_S:g}s", "--maintenance-interval", "500ms", "--lease", "2s"),
    *("--processes", "1", "--log-level", "warning"),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def told(payroll: Payroll, sent: int) -> None:
    print(f"{USERS} users in {payroll.seconds:.0f} s, {sent} checks sent, {payroll.killed['worker']} workers killed")


@pytest.mark.store("postgres")
async def test_a_payroll_survives_a_cluster_that_is_killed_piece_by_piece(tmp_path: Path, stack: ExitStack) -> None:
    stores: dict[str, StoreServer] = {}
    for name, durable in (("redis", True), ("lost redis", False), ("postgres", True)):
        stores[name] = start_server(name.rpartition(" ")[2], durable=durable)
        stack.callback(stores[name].stop)
    stores["postgres"].empty(0)
    database = stores["postgres"].url(0)
    shards = [f"1={stores['redis'].url()}", f"2={stores['lost redis'].url()}"]
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        where = ["--store", shards[0], "--store", shards[1], "--flows", database]
        servers.append(Operated(tmp_path / name, [*where, *SETTINGS]))
        stack.callback(servers[-1].stop)
    kill_redis, _ = store_steps(stores["redis"])

    async def kill_keeper() -> None:
        pid = keeper_of(database)
        await next((server for server in servers if pid in server.pids), servers[0]).kill_all()

    async def kill_other() -> None:
        pid = keeper_of(database)
        await next(server for server in servers if pid not in server.pids).kill_all()

    async def lose_redis() -> None:
        """It comes again without its data; an operator says that it is to be taken so."""
        await asyncio.to_thread(stores["lost redis"].kill)
        await asyncio.to_thread(stores["lost redis"].start)
        await asyncio.sleep(1)  # the servers go on with the other one
        for server in servers:
            await server.kill_all("--accept-new-store", "2")

    async def stop_database() -> None:
        await asyncio.to_thread(stores["postgres"].terminate)
        await asyncio.sleep(DATABASE_AWAY_S)
        await asyncio.to_thread(stores["postgres"].start)

    payroll = Payroll([f"127.0.0.1:{server.port}" for server in servers], tmp_path / "ledger", USERS)
    steps = [kill_keeper, kill_other, lose_redis, stop_database, kill_redis, kill_keeper]
    await payroll.run(steps if USERS < 10_000 else [*steps, kill_other, kill_keeper, *[kill_redis, kill_keeper] * 2])
    told(payroll, payroll.check(database))


def keeper_of(database: str) -> int:
    """The process that keeps the flows."""
    engine = sa.create_engine(database, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        holder: str = connection.execute(sa.select(KEEPERS.c.holder)).scalar_one()
    return int(holder.rpartition("/")[2])


async def test_a_payroll_survives_an_embedded_server_that_is_killed(
    tmp_path: Path, stack: ExitStack, sqlite_places: Places
) -> None:
    data = tmp_path / "data"
    server = Operated(tmp_path, ["--store", f"1={sqlite_places.fresh()}", "--data", str(data), *SETTINGS])
    stack.callback(server.stop)
    payroll = Payroll([f"127.0.0.1:{server.port}"], tmp_path / "ledger", USERS)
    await payroll.run([server.kill_all, server.roll, server.kill_a_worker, server.kill_all, server.restart])
    told(payroll, payroll.check(f"sqlite:///{data}/flows.db"))
