"""A real server on each store, the other languages' generated classes, and clients of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.forked_programs import Program
from tests.stores.process import dies_with_us

ROOT = Path(__file__).parents[2]
NODE_SOURCE = Path(__file__).parent / "node"
INTERFACE = ROOT / "thrift" / "pinlater.thrift"
PASSWORD = "open sesame"
PINLATER = str(Path(sys.executable).parent / "pinlater")
STOPS_WITHIN_S = 100.0
_queues = count()

STORES = [
    "sqlite",
    pytest.param("redis", marks=pytest.mark.store("redis")),
    pytest.param("mysql", marks=pytest.mark.store("mysql")),
]


@contextlib.contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[int]:
    """`pinlater serve` in a folder of its own; its port. It must end by itself when told to, with exit code 0."""
    log = directory / "server.log"
    command = [*dies_with_us(), PINLATER, "serve", "--port", "0", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    with (
        log.open("wb") as output,
        Program(
            command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output
        ) as process,
    ):
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address, log.read_text(errors="replace")
        try:
            yield int(address.rpartition(":")[2])
        finally:
            process.terminate()
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode == 0, log.read_text(errors="replace")


@pytest.fixture(scope="session")
def password_hash() -> str:
    command = [PINLATER, "admin", "hash-password"]
    return subprocess.run(command, input=PASSWORD, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session", params=STORES)
def server(
    request: pytest.FixtureRequest, password_hash: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of a server on one store."""
    url = request.getfixturevalue(f"{request.param}_places").fresh()
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, "--store", url, "--admin-password-hash", password_hash) as port:
        yield port


@pytest.fixture(scope="session")
def sqlite_server(password_hash: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server on the embedded store."""
    with serving(tmp_path_factory.mktemp("server"), "--admin-password-hash", password_hash) as port:
        yield port


@pytest.fixture
def queue() -> str:
    return f"languages_{next(_queues)}"


def generate(language: str, out: Path, interface: Path = INTERFACE) -> Path:
    """Classes for the interface file, made by Apache's compiler."""
    compiler = shutil.which("thrift")
    if compiler is None:
        pytest.fail("thrift is not installed: apt-get install thrift-compiler", pytrace=False)
    subprocess.run([compiler, "--gen", language, "-out", str(out), str(interface)], check=True, capture_output=True)
    return out


def install_node(folder: Path) -> None:
    """The generated classes for Node, and the packages that package-lock.json names."""
    for program, package in (("node", "nodejs"), ("npm", "npm")):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed: apt-get install {package}", pytrace=False)
    generate("js:node,es6", folder)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE_SOURCE / name, folder)
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def node_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the worker and what it needs."""
    folder = tmp_path_factory.mktemp("node")
    install_node(folder)
    shutil.copy(NODE_SOURCE / "worker.js", folder)
    return folder
