"""A worker in JavaScript makes every call, through Apache's `thrift` package for Node."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.languages.conftest import INTERFACE, PASSWORD


@pytest.mark.parametrize("framing", ["framed", "buffered"])
@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_a_node_worker_makes_every_call(
    sqlite_server: int, queue: str, node_worker: Path, framing: str, protocol: str
) -> None:
    command = ["node", "worker.js", ".", str(sqlite_server), framing, protocol, queue, PASSWORD]
    done = subprocess.run(command, cwd=node_worker, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    methods = re.findall(r"^  [\w<>, ]+ (\w+)\(1: RequestContext", INTERFACE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(methods) == 54
    assert done.stdout.split() == sorted(methods)
