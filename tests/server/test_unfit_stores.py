"""What `pinlater serve` says of stores that it can reach and not use: why, what to do, and nothing that misleads."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.server.running import running
from tests.server.test_serve import command, last_line
from tests.stores.pgbouncer import PgBouncer
from tests.stores.places import Places
from tests.stores.process import StoreServer, free_port

READ_ONLY = "?options=-cdefault_transaction_read_only%3Don"


def refusal(folder: Path, *stores: str) -> str:
    options = [word for store in stores for word in ("--store", store)]
    done = command(folder, "serve", "--port", "0", *options)
    assert done.returncode == 1
    line = last_line(done)
    assert "try again" not in line
    assert "accept-new-store" not in line
    return line


@pytest.mark.parametrize("shard_id", ["", "1="])
@pytest.mark.parametrize(
    ("options", "why"),
    [(READ_ONLY, "it is read-only"), ("?options=-csearch_path%3Dnothing", "CREATE SCHEMA")],
)
def test_a_postgres_that_takes_no_tables(
    tmp_path: Path, postgres_places: Places, shard_id: str, options: str, why: str
) -> None:
    assert why in refusal(tmp_path, f"{shard_id}{postgres_places.fresh()}{options}")


def test_a_postgres_behind_a_pooler_of_transactions(tmp_path: Path, postgres_places: Places) -> None:
    pooler = PgBouncer(postgres_places.fresh(), "transaction")
    try:
        pooler.start()
        assert "set pool_mode = session" in refusal(tmp_path, pooler.url())
    finally:
        pooler.stop()


def test_a_redis_that_is_a_replica(tmp_path: Path, durable_redis_server: StoreServer) -> None:
    url = durable_redis_server.url()
    with redis.Redis.from_url(url) as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    assert "READONLY" in refusal(tmp_path, url)


def test_a_store_that_became_read_only_is_out_and_the_log_says_why(tmp_path: Path, postgres_places: Places) -> None:
    """A failover may be under way: it comes back by itself."""
    url = postgres_places.fresh()
    with running(tmp_path, "--store", url, "--processes", "1") as server:
        assert server.port
    with running(tmp_path, "--store", url + READ_ONLY, "--processes", "1") as server:
        assert server.port
        assert "read-only" in server.wait_for("shard_out")["error"]
