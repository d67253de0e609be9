"""A server whose clock goes wrong while it runs: it says so, is not ready, and leaves the maintenance to the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.proof_stand import PROCESSES, Stand, status_when, until
from tests.cluster.proof_stores import SHARDS, FourStores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SHIFT = "PROOF_CLOCK_SHIFT"
HOUR_NS = 3_600 * 10**9
PRELOADED = f'''
"""Loaded by Python before anything else: the clock is as far ahead as a file says, whenever it is looked at."""
import os, time
_right = time.time_ns
def _shifted():
    try:
        with open(os.environ["{SHIFT}"]) as file:
            return _right() + int(file.read())
    except (OSError, ValueError):
        return _right()
if "{SHIFT}" in os.environ:
    time.time_ns = _shifted
'''


@pytest.fixture(scope="module")
def shift(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clock") / "ahead_ns"


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, four_stores: FourStores, shift: Path) -> Iterator[Stand]:
    """The clock of the second server goes by the file."""
    (shift.parent / "sitecustomize.py").write_text(PRELOADED)
    with pytest.MonkeyPatch.context() as patch, Stand(tmp_path_factory.mktemp("cluster"), four_stores) as running:
        patch.setenv("PYTHONPATH", str(shift.parent))
        patch.setenv(SHIFT, str(shift))
        running.servers[1].start_again()
        yield running


async def answers(stand: Stand, server: int, status: int, word: str) -> bool:
    found, text = await asyncio.to_thread(stand.servers[server].get, "/readyz")
    return found == status and word in text


async def test_a_server_with_a_wrong_clock_is_not_ready_and_maintains_nothing_until_it_is_right(
    stand: Stand, shift: Path
) -> None:
    wrong = stand.servers[1]
    async with stand.clients() as clients:
        for server in (0, 1):
            await until(partial(answers, stand, server, 200, "true"))
        shift.write_text(str(HOUR_NS))
        await until(partial(answers, stand, 1, 503, "behind this server's"))
        assert (await asyncio.to_thread(stand.servers[0].get, "/readyz"))[0] == 200
        _, text = await asyncio.to_thread(wrong.get, "/readyz")
        assert all("more than 1000 ms" in reason for reason in json.loads(text)["reasons"])
        pids = {str(pid) for pid in wrong.processes()}
        status = await status_when(
            clients[0],
            lambda status: (
                not any(each.maintains or each.is_ready for each in status.servers if each.process in pids)
                and {shard for each in status.servers for shard in each.maintains} == set(SHARDS)
            ),
        )
        assert len(status.servers) == PROCESSES
        assert all("behind this server's" in each.trouble for each in status.servers if each.process in pids)

        shift.write_text("0")
        await until(partial(answers, stand, 1, 200, "true"))
        await status_when(clients[0], lambda status: all(each.is_ready for each in status.servers))
