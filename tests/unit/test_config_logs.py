"""What a log line looks like, for machines and for people."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOGGING = """
import logging, sys
import structlog
from pinlater.logs import configure
configure("info", sys.argv[1], worker=7)
log = structlog.get_logger("pinlater.test")
log.debug("hidden")
log.info("ready", address="h:1")
logging.getLogger("driver").warning("slow %s", "disk")
logging.getLogger("apscheduler.x").info("hidden")
try:
    secret = "geheim"
    1 / 0
except ZeroDivisionError:
    log.exception("broken")
"""


def lines(log_format: str) -> list[str]:
    command = [sys.executable, "-c", LOGGING, log_format]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "hidden" not in done.stderr
    assert "geheim" not in done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_machines_get_json(log_format: str) -> None:
    ready, slow, broken = (json.loads(line) for line in lines(log_format))
    assert ready.pop("time").endswith("Z")
    assert ready == {"event": "ready", "level": "info", "address": "h:1", "worker": 7}
    assert (slow["event"], slow["level"]) == ("slow disk", "warning")
    assert "ZeroDivisionError" in broken["exception"]


def test_people_get_lines() -> None:
    ready, slow, *broken = lines("human")
    assert "[info] ready" in ready
    assert "address=h:1" in ready
    assert "slow disk" in slow
    assert broken[-1] == "ZeroDivisionError: division by zero"
