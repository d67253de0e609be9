"""The Go kit's own tests, by its own tools, against this checkout's server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KIT = ROOT / "workers" / "go"
PROGRAM = Path(__file__).parent / "go"
WITHIN_S = 500.0

pytestmark = [pytest.mark.slow, pytest.mark.store("languages")]


def go(folder: Path, *arguments: str) -> str:
    """What the command prints. Skips where modules cannot be had."""
    if shutil.which("go") is None:
        pytest.fail("go is not installed: apt-get install golang-go", pytrace=False)
    environment = os.environ | {
        "PINLATER_COMMAND": f"{sys.executable} -m pinlater",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        ["go", *arguments], cwd=folder, capture_output=True, text=True, env=environment, timeout=WITHIN_S, check=False
    )
    output = done.stdout + done.stderr
    if done.returncode != 0 and any(word in output for word in ("dial tcp", "no such host")):
        pytest.skip(f"go cannot download: {output[-500:]}")
    assert done.returncode == 0, output[-5000:]
    return output


@pytest.mark.parametrize("folder", [KIT, PROGRAM], ids=["kit", "program"])
def test_it_is_formatted_and_vetted(folder: Path) -> None:
    """The generated classes are left as their compiler writes them."""
    go(folder, "vet", "./...")
    files = sorted(str(path) for path in folder.glob("*.go"))
    done = subprocess.run(["gofmt", "-l", *files], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_its_own_tests_pass() -> None:
    go(KIT, "test", "-timeout", f"{WITHIN_S:.0f}s", "./...")
