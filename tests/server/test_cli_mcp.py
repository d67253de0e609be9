"""`pinlater mcp`: a client of the protocol that starts it, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from pinlater import Ack, Client, DequeueRequest, ExtendedJob, Job
from pinlater.cli.agent_answers import MAX_CHARS
from tests.server.commands import Shell
from tests.server.running import PROGRAM, running
from tests.server.test_faces_agree import until
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
            assert await ask("schedules") == {"schedules": [], "is_all": True}

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


TEAMS = """
[roles.mail-team]
may = ["read", "operate"]
queues = ["mail-*"]

[[rules]]
who = ["anonymous"]
may = ["enqueue", "consume", "read", "operate", "admin"]
"""


def test_an_agent_has_the_rights_of_its_token(tmp_path: Path) -> None:
    """A viewer gets no texts of jobs. A team that may read some queues gets what is about these; it is told which."""
    (tmp_path / "rules.toml").write_text(TEAMS)
    with running(tmp_path, "--rules", "rules.toml") as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            of_bank, *_ = with_failures(client, "bank")
            of_mail, *_ = with_failures(client, "mail-out")
            shell = Shell(tmp_path, address)
            for name, role in (("viewer", "viewer"), ("team", "mail-team")):
                shell("token", "create", name, "--role", role, "--output", f"{name}.token")
            asyncio.run(_look_as_viewer(tmp_path, address, of_bank))
            shown = shell("job", "get", of_bank, PINLATER_TOKEN_FILE="viewer.token")
            assert "ReadTimeout" in shown.out
            assert "secret of the body" not in shown.out
            assert (
                "bodies or results"
                in shell("job", "get", "--body", of_bank, code=1, PINLATER_TOKEN_FILE="viewer.token").err
            )
            asyncio.run(_look_as_team(tmp_path, address, of_bank, of_mail))
            assert client.lookup([of_mail])[of_mail].state.name == "PENDING"
            assert client.lookup([of_bank])[of_bank].state.name == "FAILED"


async def _look_as_viewer(folder: Path, address: str, job: str) -> None:
    async with agent(folder, address, "--token-file", "viewer.token", "--allow-changes") as ask:
        assert {each["latest"] for each in (await ask("errors", filter="queue:bank"))["errors"]} == {""}
        assert "body" not in await ask("job", descriptor=job)
        assert "bodies or results" in await ask.refused("job", descriptor=job, body=True)
        assert "bodies or results" in await ask.refused("find_jobs", filter="queue:bank body:secret")
        refusal = await ask.refused("retry_jobs", descriptors=[job], dry_run=False)
        assert "token:viewer may not operate" in refusal
        assert refusal.endswith("(the token came from viewer.token)")


async def _look_as_team(folder: Path, address: str, of_bank: str, of_mail: str) -> None:
    async with agent(folder, address, "--token-file", "team.token", "--allow-changes") as ask:
        assert [each["name"] for each in (await ask("queues"))["queues"]] == ["mail-out"]
        cluster = await ask("cluster")
        assert (len(cluster["shards"]), cluster["queues"]) == (1, [])
        assert [each["jobs"] for each in (await ask("errors"))["errors"]] == [1, 1]
        found = await ask("find_jobs", filter="state:failed error:*Timeout*")
        assert [each["descriptor"] for each in found["jobs"]] == [of_mail]
        assert (await ask("workers", queue="mail-out"))["workers"] == []
        for tool in ("workers", "schedules"):
            assert "but on mail-out: name one of them" in await ask.refused(tool)
        for tool, arguments in (
            ("job", {"descriptor": of_bank}),
            ("find_jobs", {"filter": "queue:bank"}),
            ("cancel_jobs", {"descriptors": [of_bank], "dry_run": False}),
        ):
            assert "on queue 'bank'" in await ask.refused(tool, **arguments)
        assert (await ask("retry_jobs", filter="state:failed", dry_run=False))["changed"] == 2


def test_a_team_reads_its_queues_by_commands_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(TEAMS)
    with running(tmp_path, "--rules", "rules.toml") as server, Client(f"127.0.0.1:{server.port}") as client:
        with_failures(client, "bank")
        with_failures(client, "mail-out")
        shell = Shell(tmp_path, f"127.0.0.1:{server.port}")
        shell("token", "create", "team", "--role", "mail-team", "--output", "team.token")
        by_team: dict[str, str | None] = {"PINLATER_TOKEN_FILE": "team.token"}
        for line in ("queue stats", "queue stats mail-out", "cluster status", "top --once", "check"):
            told = shell(*line.split(), **by_team)
            assert "bank" not in told.out, told.out
            assert ("mail-out" in told.out) == (line != "check"), told.out
        retry = ("job", "retry", "--filter", "state:failed", "--dry-run")  # it goes by counts, which are seconds old
        until(lambda: shell(*retry, **by_team).out.startswith("2"))
        assert "1" in shell("shard", "list", **by_team).out
        told = shell("worker", "list", code=1, **by_team)
        assert "but on mail-out: name one of them" in told.err
        client.enqueue("mail-out", [ExtendedJob(b"", group="acme")] * 2)
        client.update_group("mail-out", "acme", "", set={"paused": "true"})
        client.dequeue(DequeueRequest("mail-out", 99))
        until(lambda: "LIMITED" in shell("queue", "stats", **by_team).out)
        assert "acme" in shell("group", "list", "mail-out", **by_team).out


def test_an_agent_sends_letters_back_to_their_queues(client: Client, folder: Path, address: str) -> None:
    client.create_queue("letters")
    client.create_queue("sender")
    Shell(folder, address)("queue", "set", "sender", "dead_letter_queue=letters")
    failed = with_failures(client, "sender")[:2]

    async def replay() -> None:
        async with agent(folder, address, "--allow-changes") as ask:
            while (meant := await ask("replay_letters", filter="queue:letters"))["meant"] < 2:
                assert meant["changed"] == 0  # a letter is written after the answer to the ack
            assert {each["origin"] for each in meant["samples"]} == set(failed)
            one = await ask("replay_letters", filter="queue:letters", dry_run=False, limit=1, attempts=3)
            assert (one["changed"], one["is_all"]) == (1, False)
            assert (await ask("replay_letters", filter="queue:letters", dry_run=False))["changed"] == 1
            assert (await ask("find_jobs", filter="queue:letters"))["jobs"] == []
            ready = await ask("find_jobs", filter="queue:sender state:ready")
            assert sorted(each["attempts_allowed"] for each in ready["jobs"])[-1] == 3
            assert len((await ask("find_jobs", filter="queue:sender state:replayed"))["jobs"]) == 2

    asyncio.run(replay())


def test_answers_to_an_agent_are_bounded_and_any_bytes_are_shown(client: Client, folder: Path, address: str) -> None:
    client.create_queue("large")
    (text,) = client.enqueue("large", [Job(b'"\n' * 200_000)])
    client.create_queue("odd")
    (odd,) = client.enqueue("odd", [Job(bytes(range(256)))])
    client.enqueue("large", [Job(b"x", priority=3)] * 1_000)
    claimed = client.dequeue(DequeueRequest("odd", 1))
    client.ack("odd", succeeded=[Ack(job.descriptor, result=b"\xff\x00") for job in claimed])

    async def look() -> None:
        async with agent(folder, address) as ask:
            job = await ask("job", descriptor=text, body=True)
            assert "pinlater job get --body" in job["shortened"]
            assert job["body"].endswith("… (400,000 characters in all)")
            jobs = await ask("find_jobs", filter="queue:large", limit=1_000)
            assert jobs["jobs"][-1] == "… (1,000 in all)"
            for each in (job, jobs):
                assert 5_000 < len(json.dumps(each, ensure_ascii=False)) <= MAX_CHARS
            of_bytes = await ask("job", descriptor=odd, body=True)
            assert (b64decode(of_bytes["body"]), of_bytes["body_encoding"]) == (bytes(range(256)), "base64")
            assert b64decode(of_bytes["result"]) == b"\xff\x00"

    asyncio.run(look())


def test_an_agent_is_told_what_is_wrong_with_its_call(folder: Path, address: str, client: Client) -> None:
    client.create_queue("well_known")

    async def ask_wrongly() -> None:
        async with agent(folder, address, "--allow-changes") as ask:
            assert (await ask.refused("find_jobs")).endswith("required field `filter`; find_jobs takes filter, limit")
            assert "`extra`; cluster takes nothing" in await ask.refused("cluster", extra=1)
            assert len(await ask.refused("find_jobs", filter="x" * 100_000)) < 3_000
            assert "did you mean well_known?" in await ask.refused("queues", names=["wel_known"])
            assert "'bogus' is no descriptor" in await ask.refused("cancel_jobs", descriptors=["bogus"])
            assert "there is no flow '1'" in await ask.refused("flows", id="1")
            assert "length" in await ask.refused("pause_queue", queue="well_known", why="")

    asyncio.run(ask_wrongly())


def test_an_agent_finds_the_password_that_the_command_was_given(folder: Path, address: str, client: Client) -> None:
    client.create_queue("guarded")
    pause = {"queue": "guarded", "why": "looking"}

    async def change(*more: str) -> str:
        async with agent(Path("/"), address, "--allow-changes", *more) as ask:
            return await ask.refused("pause_queue", **pause)

    async def succeed() -> None:
        async with agent(Path("/"), address, "--allow-changes", "--data", str(folder / "pinlater-data")) as ask:
            await ask("pause_queue", **pause)

    assert "PINLATER_DATA" in asyncio.run(change())
    assert "nowhere" in asyncio.run(change("--data", "nowhere"))
    asyncio.run(succeed())


def test_a_session_outlives_cancelled_calls_and_servers(tmp_path: Path) -> None:
    port = free_port()

    async def ask_on() -> None:
        async with agent(tmp_path, f"127.0.0.1:{port}", "--timeout", "20s") as ask:
            with running(tmp_path, "--processes", "1", port=port) as server:
                await asyncio.to_thread(server.wait_for, "ready")
                assert (await ask("queues"))["queues"] == []
            call = asyncio.create_task(ask("queues"))
            await asyncio.sleep(0)  # it is sent
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert "is it running? `pinlater serve` runs one" in await ask.refused("cluster")
            with running(tmp_path, "--processes", "1", port=port) as server:
                await asyncio.to_thread(server.wait_for, "ready")
                answers = await asyncio.gather(*(ask("queues") for _ in range(8)))
                assert all(each["queues"] == [] for each in answers)

    asyncio.run(ask_on())


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
