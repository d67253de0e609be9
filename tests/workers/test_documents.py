"""The examples of the documents do what they say, as they stand there but for the port."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from tests.packaging.conftest import ROOT
from tests.server.running import running
from tests.workers.command import WITHIN_S, working

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as found:
        with Client(f"127.0.0.1:{found.port}") as client:
            client.create_queue("thumbnails")
        yield found.port


def whole_program(document: str) -> str:
    """The one block that is a program with a job."""
    blocks = BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    (program,) = [block for block in blocks if "@app.job" in block and "__main__" in block]
    return str(program)


@pytest.mark.parametrize(("document", "module"), [("README.md", "jobs"), ("docs/workers.md", "shop")])
def test_the_first_example_enqueues_a_job_that_a_worker_runs(
    document: str, module: str, server: int, tmp_path: Path
) -> None:
    code = whole_program(document)
    assert "127.0.0.1:9010" in code
    (tmp_path / f"{module}.py").write_text(code.replace("9010", str(server)), encoding="utf-8")
    command = [sys.executable, "-W", "error", f"{module}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WITHIN_S)
    assert (done.returncode, done.stderr) == (0, "")
    with working(tmp_path, "--app", f"{module}:app") as worker:
        worker.wait_for("making a.jpg 200 pixels wide")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.parametrize("document", ["docs/workers.md", "docs/from-celery-and-rq.md"])
def test_what_is_shown_of_the_language_is_python(document: str) -> None:
    blocks = BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        compile(block, document, "exec")
