"""Hostile and broken callers of a port with TLS: what each gets, and that others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pinlater import AsyncClient, Job, Tls
from pinlater.errors import ServerUnreachable
from tests.server.certificates import Authority
from tests.server.commands import Shell
from tests.server.running import WITHIN_S, RunningServer, running

HOST = "127.0.0.1"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    cert, key = authority.issue("server", HOST)
    more = ("--tls-client-ca", authority.ca, "--half-sent-timeout", "1s")
    with running(tmp_path_factory.mktemp("server"), "--tls-cert", cert, "--tls-key", key, *more) as started:
        yield started


@contextlib.asynccontextmanager
async def served_meanwhile(server: RunningServer, tls: Tls) -> AsyncIterator[None]:
    """Another caller makes calls before, and after, and all are answered."""
    async with AsyncClient(f"{HOST}:{server.port}", tls=tls, timeout=5.0) as client:
        await client.create_queue("mail")
        yield
        await client.enqueue("mail", Job(b"as ever"))
        assert await client.queue_names() == {"mail"}


def context_of(tls: Tls, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    context.maximum_version = newest
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def connected(server: RunningServer) -> socket.socket:
    return socket.create_connection((HOST, server.port), WITHIN_S)


def ends(connection: socket.socket) -> bool:
    """The server closes it, whatever it says before."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(4096):
            pass
    return True


async def test_a_caller_whose_certificate_has_expired_gets_no_connection(
    server: RunningServer, authority: Authority
) -> None:
    async with served_meanwhile(server, authority.caller()):
        expired = Tls(authority.ca, *authority.issue("expired", "web.example", is_expired=True))
        async with AsyncClient(f"{HOST}:{server.port}", tls=expired, timeout=3.0, retry_unavailable=False) as client:
            with pytest.raises(ServerUnreachable, match="not accept the certificate of this client"):
                await client.enqueue("mail", Job(b""))
        said = await asyncio.to_thread(server.wait_for, "adopt_failed")
        assert "certificate has expired" in said["reason"]


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16",
        b"\x16\x03\x01",
        b"\x16\x03\x01\x40\x00" + bytes(0x4000),
        b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
    ],
    ids=["a byte", "half a head", "zeroes", "too long", "half a hello"],
)
async def test_what_begins_as_tls_and_is_none_is_closed(
    server: RunningServer, authority: Authority, sent: bytes
) -> None:
    async with served_meanwhile(server, authority.caller()):
        with connected(server) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
            assert await asyncio.to_thread(ends, connection)


async def test_rubbish_after_the_hello_is_closed_and_told_in_no_answer(
    server: RunningServer, authority: Authority
) -> None:
    async with served_meanwhile(server, authority.caller()):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        caller = context_of(authority.caller()).wrap_bio(back, there, server_hostname=HOST)
        with pytest.raises(ssl.SSLWantReadError):
            caller.do_handshake()
        with connected(server) as connection:
            connection.sendall(there.read() + b"POST / HTTP/1.1\r\n\r\n" * 1_000)
            with contextlib.suppress(ConnectionError):
                connection.shutdown(socket.SHUT_WR)
            assert await asyncio.to_thread(ends, connection)


async def test_rubbish_within_tls_is_closed(server: RunningServer, authority: Authority) -> None:
    async with served_meanwhile(server, authority.caller()):
        with (
            connected(server) as plain,
            context_of(authority.caller()).wrap_socket(plain, server_hostname=HOST) as connection,
        ):
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert await asyncio.to_thread(ends, connection)


async def test_a_record_that_was_changed_on_the_way_ends_the_connection(
    server: RunningServer, authority: Authority
) -> None:
    async with served_meanwhile(server, authority.caller()):
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        caller = context_of(authority.caller()).wrap_bio(back, there, server_hostname=HOST)
        with connected(server) as connection:
            while True:
                try:
                    caller.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(there.read())
                    back.write(connection.recv(65_536))
            caller.write(b"\x00\x00\x00\x04rest")
            record = bytearray(there.read())
            record[-1] ^= 1
            connection.sendall(record)
            assert await asyncio.to_thread(ends, connection)


async def test_a_caller_that_asks_for_another_handshake_is_refused_it(
    server: RunningServer, authority: Authority
) -> None:
    """Renegotiation, of TLS 1.2: a caller could have a server work for it without end, or slip in what is not its."""
    if shutil.which("openssl") is None:
        pytest.skip("not installed: openssl")
    tls = authority.caller()
    files = ["-CAfile", str(tls.ca), "-cert", str(tls.cert), "-key", str(tls.key)]
    async with served_meanwhile(server, tls):
        done = await asyncio.to_thread(
            subprocess.run,
            ["openssl", "s_client", "-connect", f"{HOST}:{server.port}", "-tls1_2", *files],
            input="R\n",
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
    assert "Verify return code: 0 (ok)" in done.stdout
    assert re.search("RENEGOTIATING", done.stdout + done.stderr)
    assert "no renegotiation" in done.stderr.lower()


@pytest.mark.parametrize("ciphers", ["NULL", "aNULL", "RC4", "3DES", "EXPORT"])
def test_weak_ciphers_are_not_to_be_had(server: RunningServer, authority: Authority, ciphers: str) -> None:
    context = context_of(authority.caller(), newest=ssl.TLSVersion.TLSv1_2)
    try:
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    except ssl.SSLError:
        return  # nor does this machine's library have them
    with connected(server) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain, server_hostname=HOST)


async def test_many_who_stop_in_the_middle_of_a_handshake_keep_nobody_out(
    server: RunningServer, authority: Authority
) -> None:
    with contextlib.ExitStack() as stack:
        async with served_meanwhile(server, authority.caller()):
            for _ in range(100):
                stack.enter_context(connected(server)).sendall(b"\x16\x03\x01\x02\x00\x01")


# -- what the page for operators says ----------------------------------------------------------------------------------


def test_the_commands_of_the_page_make_certificates_that_serve(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("not installed: openssl")
    chapter = (DOCS / "access.md").read_text(encoding="utf-8").partition("\n## TLS\n")[2]
    making, using = re.findall(r"^```sh\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)[:2]
    subprocess.run(["sh", "-e", "-c", making], cwd=tmp_path, check=True, capture_output=True)
    serve, status = using.splitlines()
    with running(tmp_path, *serve.split()[2:]) as server:
        shell = Shell(tmp_path, f"{HOST}:{server.port}")
        shown = status.split()[1:]
        assert "SERVER" in shell(*shown).out
        assert "with a certificate only" in shell(*shown[:4], code=1).err
