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
    assert " info    ready  " in ready
    assert "address=h:1" in ready
    assert "slow disk" in slow
    assert broken[-1] == "  ZeroDivisionError: division by zero", "no line of a traceback looks like one of the log"


SECRETS = """
import asyncio, logging, sys, threading
import structlog
from pinlater.config import StoreConfig, secrets_of, load
from pinlater.logs import configure
from pinlater.redaction import SECRETS
url, evil = "mysql+pymysql://u@h/db?password=geheim%2F123", chr(10) + "12:00:00 [info] forged" + chr(27) + chr(0x9b)
config = load({"store": [url]}, {}).config
SECRETS.keep(secrets_of(config))
configure("debug", sys.argv[1])
log = structlog.get_logger("pinlater.test")
def fails(dsn):
    try:
        raise ValueError(f"bad {dsn!r} geheim/123" + evil)
    except ValueError as error:
        raise RuntimeError(f"login geheim/123 at {dsn}") from error
try:
    fails(url)
except RuntimeError:
    log.exception("broken", stores=config.stores, config=config, **{"geheim/123" + evil: evil})
    logging.getLogger("driver").exception("also %s", url)
log.info("said" + evil, of={"geheim/123": [b"geheim/123", url]}, stack_info=True)
asyncio.run(asyncio.sleep(0))
loop = asyncio.new_event_loop()
loop.call_exception_handler({"message": "lost geheim/123", "exception": ValueError(url)})
loop.close()
class Ends:
    def __del__(self):
        raise ValueError(f"ignored geheim/123 {url}")
thread = threading.Thread(target=fails, args=(url,))
thread.start()
thread.join()
Ends()
raise RuntimeError(f"crashed with geheim/123 of {url}")
"""


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_no_log_tells_a_secret_or_is_forged(log_format: str) -> None:
    done = subprocess.run([sys.executable, "-c", SECRETS, log_format], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert all(word in done.stderr for word in ("crashed", "thread_crashed", "error_ignored"))
    assert "geheim" not in done.stderr + done.stdout
    assert done.stderr.count("***") >= 8
    lines = done.stderr.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("12:00:00") for line in lines)
    if log_format == "json":
        assert all(json.loads(line) for line in lines)
