"""TLS on the port of `pinlater serve`: who gets in, who is refused and how, and new certificates under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import time
import urllib.request
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import pinlater
from pinlater import AsyncClient, Client, DequeueRequest, Job
from pinlater.client.client_tls import Tls
from pinlater.errors import Forbidden, OutcomeUnknown, PasswordInvalid, ServerUnreachable
from pinlater.model import Ack
from tests.server.certificates import Authority
from tests.server.commands import Shell
from tests.server.running import WITHIN_S, Plain, RunningServer, running
from tests.stores.process import StoreServer

pytestmark = pytest.mark.usefixtures("way")

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def arguments(authority: Authority, *more: str, identities: tuple[str, ...] = ("localhost", HOST)) -> list[str]:
    cert, key = authority.issue("server", *identities)
    return ["--tls-cert", cert, "--tls-key", key, *more]


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[RunningServer]:
    with running(tmp_path, *arguments(authority)) as started:
        yield started


@contextlib.asynccontextmanager
async def client_of(server: RunningServer, tls: Tls | bool, *, host: str = HOST) -> AsyncIterator[AsyncClient]:
    client = AsyncClient(f"{host}:{server.port}", tls=tls, timeout=5.0, retry_unavailable=False)
    async with client:
        yield client


async def do_one(client: AsyncClient, queue: str = "mail") -> None:
    await client.create_queue(queue)
    body = os.urandom(300_000)  # many records of TLS
    await client.enqueue(queue, Job(body))
    (job,) = await client.dequeue(DequeueRequest(queue, 1, wait_ms=2_000))
    assert job.body == body
    await client.ack(queue, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])


async def unreachable(server: RunningServer, tls: Tls | bool, *, host: str = HOST) -> str:
    """Why."""
    async with client_of(server, tls, host=host) as client:
        with pytest.raises(ServerUnreachable) as error:
            await client.enqueue("mail", Job(b""))
    return str(error.value)


# -- who gets in -------------------------------------------------------------------------------------------------------


async def test_every_call_goes_over_tls(server: RunningServer, authority: Authority) -> None:
    async with client_of(server, Tls(authority.ca), host="localhost") as client:
        await do_one(client)


def test_the_client_for_threads_speaks_it_too(server: RunningServer, authority: Authority) -> None:
    with Client(f"{HOST}:{server.port}", tls=Tls(authority.ca)) as client:
        client.create_queue("mail")
        assert client.queue_names() == {"mail"}


async def test_a_caller_in_plain_is_refused_and_told_why(server: RunningServer) -> None:
    async with client_of(server, False) as client:
        with pytest.raises(PasswordInvalid, match="TLS only: connect with TLS") as error:
            await client.enqueue("mail", Job(b""))
    assert (error.value.reason, error.value.retryable) == (Forbidden.reason, False)


async def test_a_port_without_tls_is_told_from_one_with_it(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path) as plain:
        assert "not speak TLS" in await unreachable(plain, Tls(authority.ca))


async def test_both_are_served_on_one_port_while_a_fleet_moves_over(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, *arguments(authority, "--tls", "optional")) as server:
        for tls in (Tls(authority.ca), False):
            async with client_of(server, tls) as client:
                await do_one(client)


async def test_a_certificate_of_somebody_else_is_not_trusted(server: RunningServer, tmp_path: Path) -> None:
    why = await unreachable(server, Tls(Authority(tmp_path, "other").ca))
    assert "its certificate is not trusted" in why


@pytest.mark.parametrize("is_expired", [True, False])
async def test_a_certificate_that_is_over_or_has_another_name_is_not_trusted(
    tmp_path: Path, authority: Authority, is_expired: bool
) -> None:
    cert, key = authority.issue("server", HOST if is_expired else "elsewhere.example", is_expired=is_expired)
    with running(tmp_path, "--tls-cert", cert, "--tls-key", key) as server:
        why = await unreachable(server, Tls(authority.ca))
        assert ("expired" if is_expired else "not valid for '127.0.0.1'") in why
        if not is_expired:
            async with client_of(server, Tls(authority.ca, server_name="elsewhere.example")) as client:
                await do_one(client)


def test_old_versions_of_tls_are_refused(server: RunningServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that it is old is the point
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection((HOST, server.port), WITHIN_S) as connection,
        pytest.raises(ssl.SSLError, match=r"ALERT|PROTOCOL|EOF"),
    ):
        context.wrap_socket(connection)


# -- certificates of callers -------------------------------------------------------------------------------------------


async def test_with_an_authority_for_callers_each_needs_a_certificate(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, *arguments(authority, "--tls-client-ca", authority.ca)) as server:
        async with client_of(server, authority.caller()) as client:
            await do_one(client)
        other = Authority(tmp_path, "other").caller("other")
        why = await unreachable(server, Tls(authority.ca, other.cert, other.key))
        assert "perhaps it does not accept the certificate" in why
        for without in (Tls(authority.ca), False):
            async with client_of(server, without) as client:
                with pytest.raises(PasswordInvalid, match=r"with a certificate only|TLS only") as error:
                    await client.enqueue("mail", Job(b""))
                assert error.value.reason == Forbidden.reason


async def test_while_a_fleet_moves_over_only_callers_that_speak_tls_need_a_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    given = arguments(authority, "--tls-client-ca", authority.ca, "--tls", "optional")
    with running(tmp_path, *given) as server:
        for tls in (authority.caller(), False):
            async with client_of(server, tls) as client:
                await do_one(client)
        async with client_of(server, Tls(authority.ca)) as client:
            with pytest.raises(PasswordInvalid, match="with a certificate only"):
                await client.enqueue("mail", Job(b""))


# -- what operators give -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mistake", ["readable", "other key", "no file", "no certificates"])
def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path, authority: Authority, mistake: str) -> None:
    given = arguments(authority)
    key = Path(given[3])
    match mistake:
        case "readable":
            key.chmod(0o644)
        case "other key":
            given[3] = authority.issue("other", "other.example")[1]
        case "no file":
            key.unlink()
        case "no certificates":
            given += ["--tls-client-ca", str(key)]
    with running(tmp_path, *given) as server:
        assert server.ended() == 1
        told = " ".join(str(event) for event in server.events)
    expected = {
        "readable": f"chmod 600 {key}",
        "other key": "no certificate with its key",
        "no file": f"{key}: No such file",
        "no certificates": f"{key} holds no certificates",
    }
    assert expected[mistake] in told


def test_a_key_without_a_certificate_is_a_mistake(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, "--tls-key", authority.issue("server", HOST)[1]) as server:
        assert server.ended() == 2
        assert "tls-cert" in str(server.events)


# -- commands and workers ----------------------------------------------------------------------------------------------


def test_commands_take_it_from_the_environment_or_from_the_cluster(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    shell = Shell(tmp_path, f"{HOST}:{server.port}")
    shell("queue", "create", "mail", PINLATER_TLS_CA=authority.ca)
    told = f'[clusters.shop]\nservers = ["{HOST}:{server.port}"]\ntls = {{ ca = "ca.pem" }}\n'
    (tmp_path / "clusters.toml").write_text(told)
    clusters = {"PINLATER_CLUSTERS": "clusters.toml", "PINLATER_CLUSTER": "shop", "PINLATER_SERVER": ""}
    assert "mail" in shell("queue", "list", **clusters).out
    assert "TLS only" in shell("queue", "list", code=1).err


def test_flags_of_a_command_count_before_the_cluster_and_the_environment(tmp_path: Path, authority: Authority) -> None:
    who = authority.caller()
    assert who.cert is not None
    assert who.key is not None
    other = Authority(tmp_path, "other")
    with running(tmp_path, *arguments(authority, "--tls-client-ca", authority.ca)) as server:
        shell = Shell(tmp_path, f"{HOST}:{server.port}")
        mine = ("--client-cert", who.cert, "--client-key", who.key)
        shell("queue", "create", "mail", "--ca", authority.ca, *mine)
        assert "mail" in shell("queue", "list", *mine, PINLATER_TLS_CA=authority.ca).out
        told = f'[clusters.shop]\nservers = ["{HOST}:{server.port}"]\ntls = {{ ca = "other.pem" }}\n'
        (tmp_path / "clusters.toml").write_text(told)
        clusters = {"PINLATER_CLUSTERS": "clusters.toml", "PINLATER_CLUSTER": "shop", "PINLATER_SERVER": ""}
        assert "mail" in shell("queue", "list", "--ca", authority.ca, *mine, **clusters).out
        assert "certificate" in shell("queue", "list", *mine, code=3, PINLATER_TLS_CA=other.ca).err
        missing = shell("queue", "list", "--ca", "none.pem", code=3).err
        assert "none.pem" in missing, missing
        assert "give that too: cert, --client-cert" in shell("queue", "list", "--client-key", who.key, code=2).err
        misfit = shell("queue", "list", "--ca", authority.ca, "--client-cert", who.cert, code=3).err
        assert f"{who.cert} does not hold a certificate and its key" in misfit, misfit
        assert "--client-key" in misfit, misfit
        stranger = ("--client-cert", who.cert, "--client-key", other.caller("stranger").key or "")
        misfit = shell("queue", "list", "--ca", authority.ca, *stranger, code=3).err
        assert "are no certificate with its key" in misfit, misfit
        assert "holds no certificates" in shell("queue", "list", "--ca", who.key, code=3).err
        Path(who.key).chmod(0o644)
        assert "chmod 600" in shell("queue", "list", "--ca", authority.ca, *mine, code=3).err


# -- new certificates, and ends ----------------------------------------------------------------------------------------


async def test_new_certificates_are_used_without_a_restart(server: RunningServer, authority: Authority) -> None:
    async with client_of(server, Tls(authority.ca)) as old:
        await old.create_queue("mail")
        seen = len(server.events)
        authority.issue("server", HOST, "new.example")
        await asyncio.to_thread(server.wait_for, "tls_reloaded", after=seen)
        async with client_of(server, Tls(authority.ca, server_name="new.example")) as client:
            assert await client.queue_names() == {"mail"}
        assert await old.queue_names() == {"mail"}


async def test_no_call_of_our_clients_fails_while_processes_are_replaced(
    tmp_path: Path, authority: Authority, durable_redis_server: StoreServer
) -> None:
    store = ("--store", f"1={durable_redis_server.url()}", "--processes", "2")
    with running(tmp_path, *arguments(authority, *store, "--drain-linger", "200ms")) as server:
        async with contextlib.AsyncExitStack() as stack:
            address = f"{HOST}:{server.port}"
            clients = [await stack.enter_async_context(AsyncClient(address, tls=Tls(authority.ca))) for _ in range(4)]
            await clients[0].create_queue("mail")
            is_over = asyncio.Event()

            async def load(client: AsyncClient) -> int:
                done = 0
                while not is_over.is_set():
                    await client.enqueue("mail", Job(b"x"))
                    for job in await client.dequeue(DequeueRequest("mail", 1, wait_ms=100)):
                        await client.ack("mail", [Ack(job.descriptor, claim_descriptor=job.claim_descriptor)])
                    done += 1
                return done

            loads = [asyncio.create_task(load(client)) for client in clients]
            for _ in range(3):
                seen = len(server.events)
                server.send(signal.SIGHUP)
                await asyncio.to_thread(server.wait_for, "rolled", after=seen)
            is_over.set()
            assert min(await asyncio.gather(*loads)) > 0


async def test_one_that_says_nothing_is_no_obstacle_to_others_nor_to_an_end(
    server: RunningServer, authority: Authority
) -> None:
    silent = [await Plain.to(server.port) for _ in range(20)]
    async with client_of(server, Tls(authority.ca)) as client:
        await do_one(client)
    assert await asyncio.to_thread(server.stop) == 0
    for each in silent:
        await each.close()


async def test_long_polls_end_when_their_client_waits_no_more(server: RunningServer, authority: Authority) -> None:
    client = pinlater.AsyncClient(f"127.0.0.1:{server.port}", tls=Tls(authority.ca))
    async with client, client_of(server, Tls(authority.ca)) as other:
        await client.create_queue("mail")
        poll = asyncio.create_task(client.dequeue(DequeueRequest("mail", 1, wait_ms=60_000)))
        await asyncio.sleep(0.2)
        client.cancel_long_polls()
        with contextlib.suppress(OutcomeUnknown):
            assert await asyncio.wait_for(poll, WITHIN_S) == []
        await do_one(other)


# -- who a certificate says that a caller is --------------------------------------------------------------------------


RULES = """
[[rules]]
who = ["cert:*@example.org"]
roles = ["producer"]
queues = ["mail"]
may = ["operate"]
"""


async def test_rules_know_callers_by_the_names_in_their_certificates(tmp_path: Path, authority: Authority) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    more = ("--tls-client-ca", authority.ca, "--rules", str(rules))
    with running(tmp_path, *arguments(authority, *more)) as server:
        async with client_of(server, authority.caller("web", "web@example.org")) as client:
            assert (await client.get_access()).identity == "cert:web@example.org"
            await client.create_queue("mail")
            await client.enqueue("mail", Job(b""))
            with pytest.raises(Forbidden, match=r"cert:web@example\.org may not consume"):
                await client.dequeue(DequeueRequest("mail", 1))
        async with client_of(server, authority.caller("both", "first@elsewhere", "web@example.org")) as client:
            assert (await client.get_access()).identity == "cert:web@example.org"
            with pytest.raises(Forbidden, match=r"cert:web@example\.org may not consume"):
                await client.dequeue(DequeueRequest("mail", 1))
        for tls, who in (
            (authority.caller("other", "web@elsewhere"), "cert:web@elsewhere"),
            (Tls(authority.ca), "anon"),
        ):
            async with client_of(server, tls) as client:
                with pytest.raises(Forbidden, match=f"{who}.* may not enqueue"):
                    await client.enqueue("mail", Job(b""))


async def test_a_certificate_without_a_name_is_none(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, *arguments(authority, "--tls-client-ca", authority.ca)) as server:
        async with client_of(server, authority.nameless()) as client:
            with pytest.raises(Forbidden, match="subject alternative name"):
                await client.create_queue("mail")


# -- a server that all may use -----------------------------------------------------------------------------------------


def test_a_server_that_takes_plain_calls_beside_tls_is_open_too(tmp_path: Path, authority: Authority) -> None:
    with running(tmp_path, "--host", "0.0.0.0", *arguments(authority, "--tls", "optional")) as server:
        assert server.port
        assert [event["event"] for event in server.events].count("open_to_all") == 1


@pytest.mark.parametrize("has_rules", [False, True])
def test_a_server_that_is_open_to_other_machines_says_so(tmp_path: Path, has_rules: bool) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nwho = ["anonymous"]\nroles = ["admin"]\n')
    more = ("--rules", str(rules)) if has_rules else ()
    with running(tmp_path, "--host", "0.0.0.0", "--http", "127.0.0.1:0", *more) as server:
        shell = Shell(tmp_path, f"{HOST}:{server.port}")
        address = server.wait_for("http_ready")["address"]

        def page() -> str:
            with urllib.request.urlopen(address, timeout=WITHIN_S) as answer:
                return str(answer.read().decode())

        while "not judged yet" in page():
            time.sleep(0.2)
        told = [event for event in server.events if event["event"] == "open_to_all"]
        said = [shell("cluster", "status").out, page()]
    assert len(told) == (0 if has_rules else 1)
    assert all(("open to all: other machines reach the server" in text) is not has_rules for text in said)
