"""Processes of the pool that cannot start, and that outlive nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater_workers.app.settings import WorkerSettings
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.outcome import SUCCEEDED
from pinlater_workers.pools.messages import StartApp, written
from pinlater_workers.pools.process_pool import ProcessPool
from tests.workers.apps.pool_flawed import FLAW, QUEUE, app
from tests.workers.pool_driver import WITHIN_S, PoolDriver, is_gone

SPEC = "tests.workers.apps.pool_flawed:app"
SETTINGS = WorkerSettings(queues={QUEUE: 1}, concurrency=1)


@pytest.fixture
def flaw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The app cannot be imported while this is there."""
    monkeypatch.setenv(FLAW, str(tmp_path / "flaw"))
    return tmp_path / "flaw"


def made(spec: str = SPEC) -> PoolDriver:
    return PoolDriver(app, lambda *told: ProcessPool(spec, SETTINGS, *told))


def test_app_that_cannot_be_imported_is_said_when_the_pool_opens(flaw: Path) -> None:
    flaw.touch()
    driver = made()
    try:
        with pytest.raises(ConfigurationError, match="Flawed: there is a flaw") as raised:
            driver.open()
    finally:
        driver.close()
    assert "pool_flawed.py" in str(raised.value)
    assert "in check" in str(raised.value)


def test_app_that_is_not_there_is_said_when_the_pool_opens() -> None:
    driver = made("tests.workers.apps.pool_flawed:application")
    try:
        with pytest.raises(ConfigurationError, match="has no application"):
            driver.open()
    finally:
        driver.close()


def test_first_process_is_started_again_where_somebody_else_killed_it() -> None:
    """As the kernel does when memory is short for a moment."""
    driver = made()

    async def open_and_kill() -> None:
        before = children()
        opening = asyncio.create_task(driver.pool.open())
        await asyncio.sleep(0)
        (first,) = children() - before
        os.kill(first, signal.SIGKILL)
        await opening

    try:
        driver.run(open_and_kill())
        assert driver.result(app.job_types["own_id"]) == SUCCEEDED
    finally:
        driver.close()


def children() -> set[int]:
    """Of this process."""
    return {int(each) for each in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def test_processes_are_replaced_once_the_app_can_be_imported_again(
    flaw: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = flaw.with_name("flaw-seen")
    driver = made().open()
    try:
        flaw.touch()
        assert driver.result(app.job_types["exits"]).error == "ProcessDied"
        waiting = driver.submit(app.job_types["own_id"])
        driver.until(lambda: seen.exists() and seen.stat().st_size >= 2)
        flaw.unlink()
        assert driver.outcome(waiting) == SUCCEEDED
    finally:
        driver.close()
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(said) == 1
    assert "there is a flaw" in said[0].getMessage()


def test_first_job_starts_the_processes_of_a_pool_that_was_not_opened() -> None:
    driver = made()
    try:
        assert driver.result(app.job_types["own_id"]) == SUCCEEDED
    finally:
        driver.close()


def test_process_ends_with_its_worker_however_busy_it_is() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.pool_endless", "process"], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    try:
        process = int(worker.stdout.readline())
        assert not is_gone(process)
    finally:
        worker.kill()
        worker.wait(WITHIN_S)
        worker.stdout.close()
    driver = made()
    try:
        driver.until(lambda: is_gone(process))
    finally:
        driver.close()


def test_process_whose_worker_has_gone_ends_without_a_word() -> None:
    """The kernel closes a worker's connections before it ends the processes that the worker started."""
    (jobs, theirs), (control, their_control) = socket.socketpair(), socket.socketpair()
    descriptors = [theirs.fileno(), their_control.fileno()]
    with jobs, theirs, control, their_control:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pinlater_workers.pools.child", *map(str, descriptors), str(os.getpid())],
            pass_fds=descriptors,
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        jobs.sendall(written(StartApp(SPEC, sys.path)))
        jobs.close()
        assert (process.communicate(timeout=WITHIN_S)[1], process.returncode) == ("", 1)


def test_worker_ends_at_once_though_a_thread_still_runs_its_job() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.workers.pool_endless", "thread"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\n", "")
