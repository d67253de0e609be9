"""`pinlater mcp`: a client of the protocol that starts it, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from pinlater import Ack, Client, DequeueRequest, Job
from tests.server.running import PROGRAM, running
from tests.stores.process import free_port

LOOKS = {"alarms", "queues", "cluster", "find_jobs", "job", "errors", "workers", "schedules", "flows"}
CHANGES = {"enqueue", "retry_jobs", "cancel_jobs", "replay_letters", "pause_queue", "resume_queue"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with running(folder) as server:
        yield f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as made:
        yield made


class Agent:
    """A session of a client of the protocol."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def tools(self) -> Mapping[str, Any]:
        return {each.name: each for each in (await self._session.list_tools()).tools}

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        answer = await self._session.call_tool(tool, arguments)
        assert not answer.is_error, answer
        return json.loads(answer.content[0].text)  # type: ignore[union-attr]

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self._session.call_tool(tool, arguments)
        assert answer.is_error, answer
        return answer.content[0].text  # type: ignore[union-attr]


@asynccontextmanager
async def agent(folder: Path, address: str, *more: str) -> AsyncIterator[Agent]:
    arguments = ["mcp", "--server", address, *more]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    started = StdioServerParameters(command=str(PROGRAM), args=arguments, env=variables, cwd=folder)
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        assert (await session.initialize()).server_info.name == "pinlater"
        yield Agent(session)


def with_failures(client: Client, queue: str) -> list[str]:
    """Two jobs that failed in two ways, and one that is ready; their descriptors."""
    client.create_queue(queue)
    client.enqueue(queue, [Job(b"secret of the body")] * 2)
    failed = [job.descriptor for job in client.dequeue(DequeueRequest(queue, 2))]
    lines = "attempt 1 of 2: ReadTimeout: no answer\n", "attempt 1 of 2: ValueError: no\n"
    client.ack(queue, failed=[Ack(each, line, permanent=True) for each, line in zip(failed, lines, strict=True)])
    return [*failed, *client.enqueue(queue, [Job(b"ready")])]


def test_an_agent_looks_at_a_cluster_and_changes_nothing(client: Client, folder: Path, address: str) -> None:
    timed_out, wrong, ready = with_failures(client, "looked_at")

    async def look() -> None:
        async with agent(folder, address) as ask:
            tools = await ask.tools()
            assert tools.keys() == LOOKS
            assert all(each.annotations.read_only_hint and len(each.description) > 60 for each in tools.values())
            assert tools["find_jobs"].input_schema["required"] == ["filter"]

            assert {"alarms", "note"} <= (await ask("alarms")).keys()
            (queue,) = (await ask("queues", names=["looked_at"], settings=True))["queues"]
            assert (queue["name"], queue["settings"]["paused"]["value"]) == ("looked_at", "false")
            assert [each["state"] for each in (await ask("cluster"))["shards"]] == ["in"]

            found = await ask("find_jobs", filter="queue:looked_at error:*Timeout*")
            assert ([job["descriptor"] for job in found["jobs"]], found["is_all"]) == ([timed_out], True)
            assert "body" not in found["jobs"][0]
            assert not (await ask("find_jobs", filter="queue:looked_at", limit=2))["is_all"]

            kinds = await ask("errors", filter="queue:looked_at")
            assert {each["error"]: each["jobs"] for each in kinds["errors"]} == {"ReadTimeout": 1, "ValueError": 1}
            of_one = next(each["filter"] for each in kinds["errors"] if each["error"] == "ValueError")
            assert [job["descriptor"] for job in (await ask("find_jobs", filter=of_one))["jobs"]] == [wrong]

            hold = (await ask("job", descriptor=ready))["hold"]["text"]
            assert "next in line" in hold or hold == "No worker polls its queue."  # once the poll above is forgotten
            assert (await ask("job", descriptor=wrong, body=True))["body"] == "secret of the body"
            assert await ask("workers") == {"workers": [], "is_all": True}
            assert await ask("schedules") == {"schedules": []}

            assert "there is no tool retry_jobs" in await ask.refused("retry_jobs", filter="queue:looked_at")
            assert "queue:" in await ask.refused("find_jobs", filter="")
            assert "is no descriptor" in await ask.refused("job", descriptor="looked_at")
            assert "limit" in await ask.refused("alarms", limit=0)

    asyncio.run(look())


def test_an_agent_that_may_change_says_first_what_it_would(client: Client, folder: Path, address: str) -> None:
    timed_out, wrong, _ = with_failures(client, "changed")

    async def change() -> None:
        async with agent(folder, address, "--allow-changes") as ask:
            tools = await ask.tools()
            assert tools.keys() == LOOKS | CHANGES
            assert all(tools[name].description.startswith("Changes") for name in CHANGES)

            meant = await ask("retry_jobs", filter="queue:changed error:*Timeout*")
            assert (meant["meant"], meant["changed"]) == (1, 0)
            assert [job["descriptor"] for job in meant["samples"]] == [timed_out]
            assert client.lookup([timed_out])[timed_out].state.name == "FAILED"
            done = await ask("retry_jobs", filter="queue:changed error:*Timeout*", dry_run=False)
            assert done["changed"] == 1
            assert (await ask("retry_jobs", descriptors=[wrong], dry_run=False))["changed"] == 1
            assert {job.state.name for job in client.lookup([timed_out, wrong]).values()} == {"PENDING"}

            made = await ask("enqueue", queue="changed", job="shop.send", args={"to": "ada"}, dedupe_key="welcome")
            assert (await ask("job", descriptor=made["descriptor"], body=True))["kwargs"] == {"to": "ada"}
            cancelled = await ask("cancel_jobs", filter="queue:changed state:ready", limit=2, dry_run=False)
            assert (cancelled["changed"], cancelled["is_all"]) == (2, False)

            paused = await ask("pause_queue", queue="changed", why="looking", **{"for": "2h"})
            assert paused["settings"]["paused"]["value"] == "true"
            assert client.get_queues(["changed"])[0].settings["paused_why"].value == "looking"
            assert (await ask("resume_queue", queue="changed"))["settings"]["paused"]["value"] == "false"

            assert "give a filter or descriptors" in await ask.refused("retry_jobs")
            assert "does not exist" in await ask.refused("enqueue", queue="chnged", body="x")

    asyncio.run(change())
    assert [each.action for each in client.audit(limit=1)] == ["update_queue"]


def test_an_agent_hears_that_no_server_answers(folder: Path) -> None:
    """The session stays: servers may come."""
    nobody = f"127.0.0.1:{free_port()}"

    async def ask_in_vain() -> None:
        async with agent(folder, nobody, "--timeout", "1s") as ask:
            assert nobody in await ask.refused("alarms")
            assert nobody in await ask.refused("queues")

    asyncio.run(ask_in_vain())


def test_without_the_package_the_command_says_what_to_install(folder: Path, address: str) -> None:
    code = "import sys; sys.modules['mcp'] = None; from pinlater.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "mcp", "--server", address],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "pinlater: mcp needs the Python package mcp: pip install" in ended.stderr
    assert "[mcp]" in ended.stderr
