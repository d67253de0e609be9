"""Callers in Node, Go, Java and C++, each through Apache's library for it, over TLS and with certificates."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, Tls
from pinlater.errors import Forbidden
from tests.languages.conftest import generate, serving
from tests.server.certificates import Authority

SOURCE = Path(__file__).parent / "callers"
HOST = "localhost"
WITHIN_S = 60
MADE_WITHIN_S = 500.0
"""What a compiler and a download take on a busy machine."""

Caller = Callable[[int, str, "Tls", str], "subprocess.CompletedProcess[str]"]
"""Calls a port of a host over TLS, and enqueues a job in a queue."""

pytestmark = pytest.mark.slow


def needs(*programs: str) -> None:
    missing = [each for each in programs if shutil.which(each) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def make(command: Sequence[str], folder: Path, **variables: str) -> None:
    """Skips where packages cannot be had; a program that does not compile is a failure."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | variables, timeout=MADE_WITHIN_S
    )
    told = done.stdout + done.stderr
    if done.returncode != 0 and any(word in told for word in ("dial tcp", "no such host", "Could not transfer", "503")):
        pytest.skip(f"{command[0]} cannot download: {told[-500:]}")
    assert done.returncode == 0, told


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S)


def shown(tls: Tls) -> list[str]:
    """The files of authority, certificate and key; - for none."""
    return [str(tls.ca), tls.cert or "-", tls.key or "-"]


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Caller:
    needs("node", "npm", "thrift")
    folder: Path = request.getfixturevalue("node_worker")
    shutil.copy(SOURCE / "caller.js", folder)
    return lambda port, host, tls, queue: run(["node", "caller.js", ".", host, str(port), *shown(tls), queue], folder)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    needs("go", "thrift")
    folder = generate("go", tmp_path_factory.mktemp("go"))
    shutil.rmtree(folder / "pinlater" / "pin_later-remote")
    for name in ("caller.go", "go.mod", "go.sum"):
        shutil.copy(SOURCE / name, folder)
    make(["go", "build", "-o", "caller", "."], folder, GOFLAGS="-mod=mod")
    return lambda port, host, tls, queue: run([str(folder / "caller"), f"{host}:{port}", *shown(tls), queue], folder)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    needs("javac", "mvn", "keytool", "openssl", "thrift")
    folder = generate("java:generated_annotations=suppress", tmp_path_factory.mktemp("java"))
    for name in ("Caller.java", "pom.xml"):
        shutil.copy(SOURCE / name, folder)
    make(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], folder)
    sources = [str(path) for path in folder.rglob("*.java")]
    make(["javac", "-nowarn", "-cp", "libs/*", "-d", "classes", *sources], folder)

    def call(port: int, host: str, tls: Tls, queue: str) -> subprocess.CompletedProcess[str]:
        trusted, own = folder / "ca.p12", "-"
        trusted.unlink(missing_ok=True)
        kept = ["-storetype", "PKCS12", "-keystore", str(trusted), "-storepass", "changeit"]
        make(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(tls.ca), *kept], folder)
        if tls.cert:
            own = "own.p12"
            files = ["-in", tls.cert, "-inkey", str(tls.key), "-out", own]
            make(["openssl", "pkcs12", "-export", "-passout", "pass:changeit", *files], folder)
        return run(["java", "-cp", "classes:libs/*", "Caller", host, str(port), str(trusted), own, queue], folder)

    return call


@pytest.fixture(scope="module")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    needs("g++", "thrift")
    headers = {"libthrift-dev": "thrift/transport/TSSLSocket.h", "libboost-dev": "boost/numeric/conversion/cast.hpp"}
    missing = [package for package, header in headers.items() if not Path("/usr/include", header).exists()]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = generate("cpp:no_skeleton", tmp_path_factory.mktemp("cpp"))
    shutil.copy(SOURCE / "caller.cpp", folder)
    sources = [path.name for path in folder.glob("*.cpp")]
    make(["g++", "-O0", "-o", "caller", *sources, "-lthrift", "-lssl", "-lcrypto"], folder)
    return lambda port, host, tls, queue: run([str(folder / "caller"), host, str(port), *shown(tls), queue], folder)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server that takes callers with a certificate alone."""
    cert, key = authority.issue("server", HOST)
    with serving(
        tmp_path_factory.mktemp("server"),
        *("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.ca, "--api", "none", "--http", "none"),
    ) as port:
        yield port


@pytest.mark.parametrize("language", ["node", "go", "java", "cpp"])
def test_a_caller_in_another_language_shows_a_certificate_and_looks_at_that_of_the_server(
    request: pytest.FixtureRequest, language: str, authority: Authority, port: int, tmp_path: Path
) -> None:
    call: Caller = request.getfixturevalue(language)
    with_certificate = authority.caller("caller", "web.example")
    done = call(port, HOST, with_certificate, language)
    assert done.returncode == 0, done.stderr
    with Client(f"{HOST}:{port}", tls=with_certificate) as client:
        (job,) = client.dequeue(DequeueRequest(language, 1))
    assert done.stdout.split() == [job.descriptor]
    without = call(port, HOST, Tls(authority.ca), language)
    assert without.stdout.split() == ["REFUSED", Forbidden.reason], without.stderr
    for why, ca, host in (
        ("an authority that the caller does not trust", Authority(tmp_path, "other").ca, HOST),
        ("a name that is not in the certificate", authority.ca, "127.0.0.1"),
    ):
        trusting = Tls(ca, with_certificate.cert, with_certificate.key)
        assert call(port, host, trusting, language).returncode == 1, why
