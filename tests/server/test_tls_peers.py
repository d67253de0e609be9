"""The ports between the servers of a cluster with TLS: whose calls they take, and what they do while a fleet moves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import AsyncClient, Job
from pinlater.client.client_tls import Tls
from pinlater.errors import Forbidden, OutcomeUnknown, PasswordInvalid
from pinlater.overflow import ownership
from pinlater.overflow.descriptors import overflow_of
from pinlater.server.tls import PeerTls, ServerTls, TlsFiles
from tests.server.certificates import Authority
from tests.server.running import RunningServer, running
from tests.stores.process import StoreServer

HOST = "127.0.0.1"
WITHIN_S = 60.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextlib.contextmanager
def member(
    folder: Path, store: StoreServer, authority: Authority, name: str, *more: str, processes: int = 1
) -> Iterator[RunningServer]:
    """A server whose certificate names its host, as those of all members do."""
    cert, key = authority.issue(name, f"{name}.example", HOST)
    (folder / name).mkdir()
    with running(
        folder,
        *("--store", f"1={store.url()}", "--data", str(folder / name), "--processes", str(processes)),
        *("--overflow", "64MiB", "--health-pause", "1s", "--call-timeout", "2s"),
        *(() if "plain" in more else ("--tls-cert", cert, "--tls-key", key, "--tls-ca", authority.ca, *more)),
    ) as server:
        yield server


def overflow_port(folder: Path, name: str) -> int:
    address = json.loads((folder / name / ownership.ADDRESS_FILE).read_text())["address"]
    return int(address.rpartition(":")[2])


async def create_queue(*clients: AsyncClient) -> None:
    """Until all know of it, and of the overflow shards of both servers."""
    await clients[0].create_queue("mail")
    async with asyncio.timeout(WITHIN_S):
        for client in clients:
            while "mail" not in [queue.name for queue in await client.get_queues()] or not await knows_both(client):
                await asyncio.sleep(0.05)


async def knows_both(client: AsyncClient) -> bool:
    status = await client.cluster_status()
    return len({server.server for server in status.servers if server.overflow_jobs is not None}) == 2


async def keep_one(client: AsyncClient) -> str:
    """A job that lies in an overflow shard, as the only store has just gone."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            with contextlib.suppress(OutcomeUnknown):
                (descriptor,) = await client.enqueue("mail", [Job(b"kept")])
                if overflow_of(descriptor):
                    return descriptor


@pytest.mark.slow
@pytest.mark.parametrize("has_client_ca", [False, True])
async def test_servers_reach_the_overflow_shards_of_others_by_their_certificates_and_strangers_do_not(
    tmp_path: Path, authority: Authority, durable_redis_server: StoreServer, has_client_ca: bool
) -> None:
    more = ("--tls-client-ca", authority.ca) if has_client_ca else ()
    with (
        member(tmp_path, durable_redis_server, authority, "a", *more, processes=2) as first,
        member(tmp_path, durable_redis_server, authority, "b", *more) as second,
    ):
        caller = authority.caller()
        async with contextlib.AsyncExitStack() as stack:
            addresses = [f"{HOST}:{server.port}" for server in (first, first, first, first, second)]
            *at_first, at_second = [
                await stack.enter_async_context(AsyncClient(address, tls=caller)) for address in addresses
            ]
            await create_queue(*at_first, at_second)
            durable_redis_server.terminate()
            kept = [await keep_one(client) for client in at_first]  # of two processes one owns the shard
            assert list(await at_second.lookup(kept)) == kept
        port = overflow_port(tmp_path, "a")
        for stranger in (caller, Tls(authority.ca), False):
            async with AsyncClient(f"{HOST}:{port}", tls=stranger, timeout=5.0) as client:
                with pytest.raises(PasswordInvalid, match=r"servers of its cluster only|TLS only") as error:
                    await client.lookup(kept)
                assert error.value.reason == Forbidden.reason
        of_the_cluster = Tls(authority.ca, *authority.issue("c", HOST))
        async with AsyncClient(f"{HOST}:{port}", tls=of_the_cluster) as client:
            if not has_client_ca:
                assert list(await client.lookup(kept)) == kept
            else:  # then servers have a secret too
                with pytest.raises(Forbidden, match="other servers of its cluster only"):
                    await client.lookup(kept)
        durable_redis_server.start()


@pytest.mark.slow
@pytest.mark.parametrize("moved", ["a", "b"])
async def test_while_a_fleet_moves_over_those_with_and_those_without_tls_reach_each_other(
    tmp_path: Path, authority: Authority, durable_redis_server: StoreServer, moved: str
) -> None:
    more = {name: ("--tls", "optional") if name == moved else ("plain",) for name in ("a", "b")}
    with (
        member(tmp_path, durable_redis_server, authority, "a", *more["a"]) as first,
        member(tmp_path, durable_redis_server, authority, "b", *more["b"]) as second,
    ):
        async with (
            AsyncClient(f"{HOST}:{first.port}", tls=False) as at_first,
            AsyncClient(f"{HOST}:{second.port}", tls=False) as at_second,
        ):
            await create_queue(at_first, at_second)
            durable_redis_server.terminate()
            kept = await keep_one(at_first)
            assert list(await at_second.lookup([kept])) == [kept]
        durable_redis_server.start()


async def test_a_port_between_servers_takes_names_of_its_own_certificate_and_patterns(authority: Authority) -> None:
    cert, key = authority.issue("server", "Queue.example", "*.pool.example", HOST)
    peers = PeerTls(TlsFiles(cert, key, authority.ca), ["queue-*.example"], takes_plain=False)
    assert peers.own_names == ("queue.example", "*.pool.example", HOST)
    for names, is_taken in (
        (("QUEUE.example",), True),
        (("web.example", HOST), True),
        (("queue-2.example",), True),
        (("a.pool.example",), False),  # a name with a star is no pattern
        (("web.example",), False),
        ((), False),
    ):
        assert peers.accepts(names) is is_taken, names
    authority.issue("server", "new.example")
    for _ in range(2):  # a change is taken when the file has come to rest
        await peers.look()
    assert peers.own_names == ("new.example",)
    assert not peers.accepts([HOST])


def test_an_expired_certificate_shares_no_name(authority: Authority) -> None:
    cert, key = authority.issue("server", HOST, is_expired=True)
    assert PeerTls(TlsFiles(cert, key, authority.ca), [], takes_plain=False).own_names == ()


@pytest.mark.parametrize(("is_expired", "days"), [(False, 1), (True, -1)])
def test_when_a_certificate_ends_is_known_and_when_it_has(tmp_path: Path, is_expired: bool, days: int) -> None:
    cert, key = Authority(tmp_path).issue("server", "queue.example", is_expired=is_expired)
    tls = ServerTls(TlsFiles(cert, key), takes_plain=False)
    assert tls.ends_ms is not None
    assert abs(tls.ends_ms / 1000 - time.time() - days * 86_400) < 300
