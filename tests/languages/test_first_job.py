"""The examples of the page on a first job do what it says, as they stand there but for the port."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from pinlater import Client, JobFilter, JobState
from pinlater.model import parse_descriptor
from tests.languages.conftest import ROOT


def example(language: str, port: int) -> str:
    """The first block in this language."""
    text = (ROOT / "docs" / "first-job.md").read_text(encoding="utf-8")
    block = str(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0])
    assert "9010" in block
    return block.replace("9010", str(port))


def test_the_first_job_in_python(sqlite_server: int, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", example("python", sqlite_server)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.stderr) == ("sending to: ada@example.org\n", "")
    with Client(f"127.0.0.1:{sqlite_server}") as client:
        (page,) = client.scan_pages(JobFilter("mail", JobState.SUCCEEDED))
    assert [job.attempts_allowed for job in page.jobs] == [2], "acknowledged, with all a job has by default"


def test_the_first_job_in_javascript(sqlite_server: int, node_worker: Path) -> None:
    script = node_worker / "readme.js"
    script.write_text(example("javascript", sqlite_server), encoding="utf-8")
    done = subprocess.run(
        ["node", "readme.js"], cwd=node_worker, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    job = parse_descriptor(done.stdout.strip())
    assert job is not None
    assert job.queue == "mail"
