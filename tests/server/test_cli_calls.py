"""`--job NAME --args JSON` of `job enqueue` and `schedule set`: bodies that workers of the framework read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, DequeueRequest
from pinlater_workers.envelope import Envelope, read_envelope
from tests.server.commands import Shell
from tests.server.running import running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a server."""
    folder = tmp_path_factory.mktemp("served")
    with running(folder) as server:
        (folder / "address").write_text(f"127.0.0.1:{server.port}")
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")
        yield folder


@pytest.fixture
def address(served: Path) -> str:
    return (served / "address").read_text()


@pytest.fixture
def shell(served: Path, address: str) -> Shell:
    return Shell(served, address)


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ((), {}),
        (("--args", '["ada", 3]'), {"args": ["ada", 3]}),
        (("--args", '{"to": "ada", "copies": [1.5, null]}'), {"kwargs": {"to": "ada", "copies": [1.5, None]}}),
    ],
)
def test_a_job_is_enqueued_as_a_call(
    shell: Shell, address: str, arguments: tuple[str, ...], called: dict[str, Any]
) -> None:
    descriptor = shell("job", "enqueue", "mail", "--job", "shop.send", *arguments).out.strip()
    assert "type           shop.send" in shell("job", "get", descriptor).out.splitlines()
    with Client(address) as client:
        (job,) = client.dequeue(DequeueRequest("mail", 1))
    assert (job.descriptor, read_envelope(job.body)) == (descriptor, Envelope("shop.send", **called))


def test_a_schedule_enqueues_a_call(shell: Shell, address: str) -> None:
    line = ("schedule", "set", "weekly", "--queue", "mail", "--every", "1h", "--job", "report", "--args", '["all"]')
    assert "give one of --body, --file and --job" in shell(*line, "--body", "x", code=2).err
    shell(*line)
    descriptor = shell("schedule", "run", "weekly").out.strip()
    with Client(address) as client:
        (job,) = client.dequeue(DequeueRequest("mail", 1))
    assert (job.descriptor, read_envelope(job.body)) == (descriptor, Envelope("report", ["all"]))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("--args", "[]"), "--args are those of a --job"),
        (("--job", "send", "body"), "--job makes the body"),
        (("--job", "send", "--args", "{"), "it is no JSON"),
        (("--job", "send", "--args", "7"), "it is no list and no object"),
        (("--job", "a/b"), "'a/b' is no type of job"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(shell: Shell, line: tuple[str, ...], why: str) -> None:
    assert why in " ".join(shell("job", "enqueue", "mail", *line, code=2).err.split())
