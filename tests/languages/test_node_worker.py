"""A worker in JavaScript makes every call, through Apache's `thrift` package for Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.languages.conftest import INTERFACE, PASSWORD, generate

SOURCE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node_worker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the worker, the generated classes, and the packages that package-lock.json names."""
    for program, package in (("node", "nodejs"), ("npm", "npm")):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed: apt-get install {package}", pytrace=False)
    folder = generate("js:node,es6", tmp_path_factory.mktemp("node"))
    for name in ("worker.js", "package.json", "package-lock.json"):
        shutil.copy(SOURCE / name, folder)
    command = ["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("framing", ["framed", "buffered"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_a_node_worker_makes_every_call(
    sqlite_server: int, queue: str, node_worker: Path, framing: str, protocol: str
) -> None:
    command = ["node", "worker.js", ".", str(sqlite_server), framing, protocol, queue, PASSWORD]
    done = subprocess.run(command, cwd=node_worker, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    methods = re.findall(r"^  [\w<>, ]+ (\w+)\(1: RequestContext", INTERFACE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(methods) == 13
    assert done.stdout.split() == sorted(methods)
