"""The examples of the documents do what they say, as they stand there but for the port."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, JobFilter, JobState
from pinlater_workers import Fail, JobHandle, Snooze
from tests.packaging.conftest import ROOT
from tests.server.running import running
from tests.workers.command import WITHIN_S, working
from tests.workers.site import Site, until

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


def recipe(site: Site, split: Callable[[int], None], merge: Callable[[], None]) -> JobHandle[Any]:
    """The code of the page on chords, with parts and an end of this test's; the handle of what collects them."""
    blocks = BLOCK.findall((ROOT / "docs/from-celery-and-rq.md").read_text(encoding="utf-8"))
    (code,) = [block for block in blocks if "def collect" in block]
    assert "after=10" in code
    names: dict[str, Any] = {
        "app": site.app,
        "split": site.app.job(queue=site.queue, name="split")(split),
        "merge": merge,
        "chunks": [1, 2, 3],
        "JobState": JobState,
        "Snooze": Snooze,
        "Fail": Fail,
    }
    exec(compile(code.replace("after=10", "after=0.05"), "chords", "exec"), names)
    done = names["done"]
    assert isinstance(done, JobHandle)
    return done


@contextlib.asynccontextmanager
async def collecting(port: int) -> AsyncIterator[Site]:
    async with Site(port) as site:
        await site.client.create_queue("reports")
        yield site


async def put_off(site: Site, done: str) -> None:
    async def snoozed() -> bool:
        info = await site.info(done)
        return info.state is JobState.PENDING and info.run_after_ms > info.created_at_ms

    await until(snoozed)


async def test_what_collects_parts_waits_for_all_of_them(server: int) -> None:
    go, made = threading.Event(), []
    async with collecting(server) as site:

        def split(chunk: int) -> None:
            assert go.wait(60)
            made.append(chunk)

        done = await asyncio.to_thread(recipe, site, split, lambda: made.append(sum(made)))
        async with site.working(queues={site.queue: 1, "reports": 1}):
            await put_off(site, done)
            assert made == []
            go.set()
            assert (await site.ended(done)).state is JobState.SUCCEEDED
    assert (sorted(made[:3]), made[3:]) == ([1, 2, 3], [6])


async def test_a_part_that_failed_ends_what_collects_them(server: int) -> None:
    async with collecting(server) as site:

        def split(chunk: int) -> None:
            if chunk == 2:
                raise Fail("no such chunk")

        done = await asyncio.to_thread(recipe, site, split, lambda: pytest.fail("it is not whole"))
        async with site.working(queues={site.queue: 1, "reports": 1}):
            info = await site.ended(done)
    assert info.state is JobState.FAILED
    assert "1 parts failed or are gone" in info.custom_status


async def test_parts_that_are_gone_are_not_done(server: int) -> None:
    async with collecting(server) as site:
        done = await asyncio.to_thread(recipe, site, lambda chunk: None, lambda: pytest.fail("it is not whole"))
        async with site.working(queues={"reports": 1}):
            await put_off(site, done)
            parts = (await site.client.scan(JobFilter(site.queue, JobState.PENDING))).jobs
            await site.client.cancel(site.queue, [each.descriptor for each in parts])
            info = await site.ended(done)
    assert info.state is JobState.FAILED
    assert "3 parts failed or are gone" in info.custom_status
