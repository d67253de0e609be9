"""The process that the programs of tests are forked from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("pinlater"))
CODE = """
import sys, threading, time
from tests.forked_programs import run
line = [sys.argv[1], "--version"]
first = threading.Thread(target=run, args=[line], kwargs={"capture_output": True})
first.start()
first.join()
print(run(line, capture_output=True, text=True, check=True).stdout)
"""


def test_it_outlives_the_thread_that_started_the_first_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )
    assert "pinlater" in done.stdout, done.stderr
