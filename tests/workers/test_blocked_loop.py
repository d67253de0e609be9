"""A job that blocks the worker's event loop: it is named, and ends the worker where it goes on beyond its limit."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, Job, JobInfo, JobState
from tests.server.running import running
from tests.workers.command import until, working

APP = """
import asyncio, ctypes, time
from pathlib import Path
from pinlater_workers import App

app = App()

def block(path, how):
    while not Path(path).exists():
        ctypes.PyDLL(None).sleep(8) if how == "interpreter" else time.sleep(0.1)

@app.job(queue="QUEUE", attempts=3, time_limit="1s")
async def over(path: str, how: str) -> None:
    print("blocking", flush=True)
    block(path, how)

@app.job(queue="QUEUE", attempts=3, time_limit="10m")
async def within(path: str, how: str) -> None:
    print("blocking", flush=True)
    block(path, how)

@app.job(queue="QUEUE", attempts=3)
async def neighbour() -> None:
    print("neighbour", flush=True)
    await asyncio.sleep(0.01)
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as server:
        yield server.port


class Shop:
    """A folder with an app of its own queue."""

    def __init__(self, folder: Path, port: int, queue: str) -> None:
        self.queue = queue
        self.client = Client(f"127.0.0.1:{port}")
        self.client.create_queue(queue)
        self.arguments = ("--app", "shop:app", "--server", f"127.0.0.1:{port}")
        (folder / "shop.py").write_text(APP.replace("QUEUE", queue))

    def enqueue(self, name: str, *args: object) -> str:
        body = f"PINLATER/1 application/json\n{json.dumps({'job': name, 'args': args})}".encode()
        return self.client.enqueue(self.queue, Job(body, attempts_allowed=3))

    def info(self, descriptor: str) -> JobInfo:
        return self.client.lookup([descriptor])[descriptor]


@pytest.fixture
def shop(tmp_path: Path, port: int, request: pytest.FixtureRequest) -> Iterator[Shop]:
    shop = Shop(tmp_path, port, re.sub(r"\W", "_", request.node.name)[-40:])
    yield shop
    shop.client.close()


def test_job_that_blocks_within_its_limit_is_named_with_its_line_and_goes_on(shop: Shop, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with working(tmp_path, *shop.arguments) as worker:
        worker.ready()
        blocking = shop.enqueue("within", str(go), "sleep")
        worker.wait_for("blocking")
        said = worker.event("event loop has been blocked")
        assert f"by job within {blocking} at shop.py:" in said["message"]
        assert said["logger"] == "pinlater_workers.heartbeat"
        waiting = shop.enqueue("neighbour")
        go.touch()
        worker.wait_for("goes round again")
        until(lambda: shop.info(waiting).state is JobState.SUCCEEDED, "the neighbour's end")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
        assert len([line for line in worker.lines if "has been blocked" in line]) == 1


@pytest.mark.parametrize("how", ["sleep", "interpreter"])
def test_job_that_blocks_beyond_its_limit_ends_the_worker(shop: Shop, tmp_path: Path, how: str) -> None:
    go = tmp_path / "go"
    with working(tmp_path, *shop.arguments) as worker:
        worker.ready()
        blocking = shop.enqueue("over", str(go), how)
        worker.wait_for("blocking")
        if how == "sleep":
            assert f"by job over {blocking} at shop.py:" in worker.event("event loop has been blocked")["message"]
        said = worker.event("the worker is ended (SIGKILL)")
        assert f"over its time limit: over {blocking}" in said["message"]
        assert worker.ended() == -signal.SIGKILL
    until(lambda: shop.info(blocking).state is not JobState.IN_PROGRESS, "it is free again")
    assert shop.info(blocking).attempts_remaining == 2
