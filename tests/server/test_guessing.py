"""Somebody guesses the admin password of a real server, from one address; the operator calls from another one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.access.guesses import FREE_TRIES
from pinlater.data_folder.password import hash_password
from pinlater.errors import Overloaded, PasswordInvalid, PinLaterError
from pinlater.wire.faults import error_from_exception
from pinlater.wire.operator_methods import UPDATE_QUEUE
from tests.server.commands import Shell
from tests.server.running import Plain, RunningServer, running

PASSWORD = "correct horse"
GUESSERS = 20
FLOOD_S = 3.0
WITHIN_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--admin-password-hash", hash_password(PASSWORD)) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")
        yield server


async def pause(connection: Plain, password: str) -> PinLaterError | None:
    """The error of the answer."""
    request = UPDATE_QUEUE.request("mail", password, {"paused": "true"}, (), False)
    await connection.send("updateQueue", request=request)
    exception = (await connection.answer()).exception
    return exception and error_from_exception(exception)


@contextlib.asynccontextmanager
async def flood(port: int, answers: Counter[type]) -> AsyncIterator[None]:
    """Wrong passwords from 127.0.0.2, as many as are answered, one after the other on each of its connections."""

    async def guess(number: int) -> None:
        connection = await Plain.to(port, "127.0.0.2")
        try:
            while True:
                error = await pause(connection, f"guess {number}")
                answers[type(error)] += 1
        finally:
            await connection.close()

    guesses = [asyncio.create_task(guess(number)) for number in range(GUESSERS)]
    try:
        yield
    finally:
        for task in guesses:
            task.cancel()
        for ended in await asyncio.gather(*guesses, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError), ended


async def test_a_flood_of_guesses_is_slowed_down_and_keeps_nobody_else_out(
    server: RunningServer, tmp_path: Path
) -> None:
    answers: Counter[type] = Counter()
    operator, caller = await Plain.to(server.port, "127.0.0.3"), await Plain.to(server.port, "127.0.0.1")
    slowest_s = 0.0
    async with flood(server.port, answers):
        ends_s = time.monotonic() + FLOOD_S
        while time.monotonic() < ends_s or answers[PasswordInvalid] < FREE_TRIES:
            async with asyncio.timeout(WITHIN_S):
                assert await pause(operator, PASSWORD) is None
                began_s = time.monotonic()
                await caller.enqueue("mail", b"x")
                slowest_s = max(slowest_s, time.monotonic() - began_s)
            await asyncio.sleep(0.05)
    took_s = time.monotonic() - ends_s + FLOOD_S
    assert answers[PasswordInvalid] <= FREE_TRIES + 1 + math.log2(took_s + 1)  # after one second, two more, four more
    assert answers[Overloaded] > answers[PasswordInvalid]
    assert slowest_s < WITHIN_S

    refused = await Plain.to(server.port, "127.0.0.2")
    error = await pause(refused, PASSWORD)
    assert isinstance(error, Overloaded)
    assert error.retryable
    assert error.retry_after_ms is not None
    assert 0 < error.retry_after_ms <= 30_000
    for connection in (operator, caller, refused):
        await connection.close()

    server.wait_for("password_wrong", address="127.0.0.2", wrong=1)
    assert len([event for event in server.events if event["event"] == "password_wrong"]) == 1
    entry = Shell(tmp_path, f"127.0.0.1:{server.port}")("audit", "--limit", "1000", "-o", "jsonl").out
    assert '"who": "127.0.0.2", "action": "wrong_password"' in entry


async def test_the_command_line_waits_for_the_end_of_a_pause(server: RunningServer, tmp_path: Path) -> None:
    shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
    for _ in range(FREE_TRIES):
        wrong = await asyncio.to_thread(shell, "queue", "pause", "mail", stdin="wrong\n", code=1)
        assert wrong.err == "pinlater: the admin password is wrong (it came from standard input)\n"
    await asyncio.to_thread(shell, "queue", "pause", "mail", PINLATER_ADMIN_PASSWORD=PASSWORD)
