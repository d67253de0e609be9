"""The hand-written files of the Go kit: their format, and the version that its workers report."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("workers/go", "tests/kits/go")


@pytest.mark.store("languages")
def test_files_in_go_are_formatted() -> None:
    """The generated classes are left as their compiler writes them."""
    if shutil.which("gofmt") is None:
        pytest.fail("gofmt is not installed: apt-get install golang-go", pytrace=False)
    files = [str(path) for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.go"))]
    done = subprocess.run(["gofmt", "-l", *files], capture_output=True, text=True, check=True)
    assert done.stdout == "", "gofmt -w formats them"


def test_a_worker_in_go_reports_the_version_of_the_project() -> None:
    project = configparser.ConfigParser()
    project.read(ROOT / "setup.cfg")
    kit = (ROOT / "workers/go/heartbeat.go").read_text(encoding="utf-8")
    assert re.findall(r'^const kitVersion = "(.+)"$', kit, re.MULTILINE) == [project["metadata"]["version"]]
