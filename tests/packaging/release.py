"""A release on its way, and what its steps share: commands, empty environments, a server to try things with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.stores.process import until_it_listens

ROOT = Path(__file__).parents[2]
OURS = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_REQUIRE_VIRTUALENV"}
"""Variables that would bring something of this machine into the environments that are tried."""


class ReleaseRefused(Exception):
    """A release that cannot be made from this state of the project; the text says why."""


def version_of_project() -> str:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["metadata"]["version"]


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """What the command printed; ends the release where it fails."""
    words = list(map(str, command))
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(words, cwd=cwd, env=environment | variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseRefused(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


@dataclass(frozen=True)
class Release:
    """One release on its way: its sources, and the folder that its files come into."""

    version: str
    source: Path
    dist: Path
    work: Path
    epoch_s: int

    @property
    def wheel(self) -> Path:
        return self.dist / f"pinlater-{self.version}-py3-none-any.whl"

    @property
    def wheels(self) -> Path:
        return self.dist / "wheels"

    def python(self, *arguments: str | Path) -> str:
        return run(sys.executable, *arguments, cwd=self.work, SOURCE_DATE_EPOCH=str(self.epoch_s))

    def pip(self, *arguments: str | Path) -> str:
        return self.python("-m", "pip", "--disable-pip-version-check", *arguments)

    def environment(self, name: str, requirement: str) -> Path:
        """The Python of an empty environment with what is asked for, from the folder of wheels alone."""
        folder = self.work / name
        self.python("-m", "venv", "--without-pip", folder)
        python = folder / "bin" / "python"
        self.pip("--python", python, "install", "--quiet", "--no-index", "--find-links", self.wheels, requirement)
        return python


@dataclass(frozen=True)
class Addresses:
    """Of a server: HOST:PORT of Thrift, the URL of its HTTP interface ("" where it has none)."""

    thrift: str
    http: str


@contextmanager
def served(program: Path, data: Path, *, with_http: bool = False) -> Iterator[Addresses]:
    """`pinlater serve`, once it listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        port, http_port = taken.getsockname()[1], other.getsockname()[1]
    http = f"127.0.0.1:{http_port}" if with_http else "none"
    options = ["--port", str(port), "--data", str(data), "--http", "none", "--api", http]
    with open(f"{data}.log", "w") as log:
        server = subprocess.Popen([program, "serve", *options], stderr=log, stdin=subprocess.DEVNULL)
    try:
        for each in (port, *([http_port] if with_http else [])):
            until_it_listens(each, server)
        yield Addresses(f"127.0.0.1:{port}", f"http://{http}" if with_http else "")
    finally:
        server.terminate()
        server.wait(30)
