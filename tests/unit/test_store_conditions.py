"""What a store, or what stands before it, has to be for a shard: asked when it is opened, and said by its reason."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pymysql
import pytest
import redis
from sqlalchemy.engine import make_url

from pinlater.backends.base import ClaimRequest, Shard
from pinlater.backends.redis import RedisShard
from pinlater.backends.redis.address import parse_address
from pinlater.backends.redis.conditions import warn_of
from pinlater.backends.sql.postgres import PostgresShard
from pinlater.errors import NothingStored, StoreRefused, StoreReplaced
from pinlater.model import Job
from tests.queues import make_queue
from tests.stores.pgbouncer import PgBouncer
from tests.stores.places import Places
from tests.unit.test_sql_servers import KINDS, NOW_MS, QUICK, Kind, client

NO_BOUND = 2**30


async def works(shard: Shard) -> None:
    await make_queue(shard, "mail", NOW_MS)
    await asyncio.gather(*[shard.enqueue("mail", [Job(b"x")], NOW_MS) for _ in range(40)])
    (jobs,) = await shard.claim("mail", [ClaimRequest("a:b:c:d:e", 99, (1,), 60_000, NO_BOUND)], NOW_MS)
    assert len(jobs) == 40


# -- a pooler ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pooled(url: str, mode: str) -> Iterator[str]:
    pooler = PgBouncer(url, mode)
    try:
        pooler.start()
        yield pooler.url()
    finally:
        pooler.stop()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_gives_sessions_to_others_is_refused(postgres_places: Places, mode: str) -> None:
    with pooled(postgres_places.fresh(), mode) as url:
        shard = PostgresShard(url, "1", timeouts=QUICK)
        with pytest.raises(StoreRefused, match="pool_mode = session") as refused:
            await shard.open()
    assert not isinstance(refused.value, StoreReplaced)


async def test_a_pooler_that_gives_whole_sessions_serves(postgres_places: Places) -> None:
    with pooled(postgres_places.fresh(), "session") as url:
        shard = PostgresShard(url, "1")
        await shard.open()
        await works(shard)
        assert await shard.subscribe("mail", lambda event: None)
        await shard.close()


async def test_a_pooler_that_takes_no_options_is_named(postgres_places: Places) -> None:
    with (
        pooled(postgres_places.fresh(), "session") as url,
        pytest.raises(NothingStored, match="search_path for the user"),
    ):
        await PostgresShard(f"{url}?options=-csearch_path%3Dpublic", "1", timeouts=QUICK).open()


# -- few connections ---------------------------------------------------------------------------------------------------


GRANT = {
    "postgres": ("CREATE ROLE {user} LOGIN CONNECTION LIMIT 5", "GRANT ALL ON SCHEMA public TO {user}"),
    "mysql": ("CREATE USER {user} WITH MAX_USER_CONNECTIONS 5", "GRANT ALL ON *.* TO {user}"),
}
REVOKE = {"postgres": ("DROP OWNED BY {user} CASCADE", "DROP ROLE {user}"), "mysql": ("DROP USER {user}",)}


@pytest.fixture(params=[KINDS[0].param(), KINDS[2].param()])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def few(kind: Kind, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty place for a user with five connections, of a name of its own: what is said of a place is
    said once.
    """
    user = f"few_{secrets.token_hex(4)}"
    places: Places = request.getfixturevalue(f"{kind.store}_places")
    url = make_url(places.fresh())
    own = url.render_as_string(hide_password=False)
    with client(own) as other, other.cursor() as cursor:
        for statement in GRANT[kind.store]:
            cursor.execute(statement.format(user=user))
        yield url.set(username=user, password=None).render_as_string()
        for statement in REVOKE[kind.store]:
            cursor.execute(statement.format(user=user))


async def test_processes_go_on_with_the_few_connections_that_there_are(
    kind: Kind, few: str, caplog: pytest.LogCaptureFixture
) -> None:
    shards = [kind.make(few, "1") for _ in range(4)]
    await shards[0].open()
    await make_queue(shards[0], "mail", NOW_MS)
    await asyncio.gather(*[shard.open() for shard in shards[1:]])
    calls = [shard.enqueue("mail", [Job(b"x")], NOW_MS) for _ in range(20) for shard in shards]
    assert len({job for jobs in await asyncio.gather(*calls) for job in jobs}) == 80
    for shard in shards:
        await shard.close()
    assert "each goes on with those that it has" in caplog.text
    assert caplog.text.count("--processes") == 1


async def test_a_process_that_gets_no_connection_says_what_to_do(kind: Kind, few: str) -> None:
    holders: list[Any] = []
    try:
        with contextlib.suppress(psycopg.Error, pymysql.Error):  # what a test before left is being ended
            for _ in range(5):
                holders.append(kind.connect(few))
        with pytest.raises(NothingStored, match="raise"):
            await kind.make(few, "1", timeouts=QUICK).open()
    finally:
        for holder in holders:
            holder.close()


# -- what may only be read, or is not there ----------------------------------------------------------------------------


async def test_a_search_path_that_names_nothing_is_no_store_that_was_wiped(postgres_places: Places) -> None:
    url = f"{postgres_places.fresh()}?options=-csearch_path%3Dnothing"
    with pytest.raises(StoreRefused, match="CREATE SCHEMA") as refused:
        await PostgresShard(url, "1").open()
    assert not isinstance(refused.value, StoreReplaced)


async def test_a_database_of_another_encoding_is_refused(postgres_places: Places) -> None:
    url = make_url(postgres_places.fresh())
    with client(url.render_as_string()) as other:
        other.execute("DROP DATABASE IF EXISTS latin")
        other.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
        try:
            with pytest.raises(StoreRefused, match=r"LATIN1.*UTF8"):
                await PostgresShard(url.set(database="latin").render_as_string(), "1").open()
        finally:
            other.execute("DROP DATABASE latin WITH (FORCE)")


# -- Redis -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rights", "why"),
    [
        (["+@all", "~*", "resetchannels"], "may use no channels"),
        (["+@all", "-subscribe", "~*", "&*"], "may use no channels"),
        (["+@all", "~*", "&*"], ""),
    ],
)
async def test_a_user_of_redis_without_channels_is_told_of_once(
    redis_places: Places, caplog: pytest.LogCaptureFixture, rights: list[str], why: str
) -> None:
    url = make_url(redis_places.fresh())
    with redis.Redis.from_url(url.render_as_string()) as admin:
        admin.execute_command("ACL", "SETUSER", "quiet", "reset", "on", ">word", *rights)
        try:
            quiet = url.set(username="quiet", password="word", query={"prefix": secrets.token_hex(4)})
            shard = RedisShard(quiet.render_as_string(hide_password=False), "1")
            await shard.open()
            await works(shard)
            assert await shard.subscribe("mail", lambda event: None) is not bool(why)
            await shard.close()
        finally:
            admin.execute_command("ACL", "DELUSER", "quiet")
    assert caplog.text.count("may use no channels") == bool(why)


@pytest.mark.parametrize(("version", "warned"), [("5.0.14", 1), ("6.0.16", 1), ("6.2.0", 0), ("7.0.15", 0), ("", 0)])
def test_a_redis_that_is_too_old_is_told_of(caplog: pytest.LogCaptureFixture, version: str, warned: int) -> None:
    warn_of({"redis_version": version}, parse_address(f"redis://r{version}"))
    assert caplog.text.count("6.2 or newer") == warned
