"""What a shell is offered: by the real shell, and by the command that each of its scripts asks."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.model import WorkerJob, WorkerReport
from pinlater.model.flow_words import NewFlow, Stage
from tests.server.commands import Shell
from tests.server.running import PROGRAM, running
from tests.speed import slower
from tests.stores.process import free_port


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("served")
    with running(folder) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            for name in ("mq10", "mq2", "mail"):
                client.create_queue(name)
            password = (folder / "pinlater-data" / "admin-password").read_text().strip()
            client.create_flow(
                NewFlow("payroll", [Stage("calculate", "", "mail"), Stage("pay", "", "mq2", "calculate")])
            )
            worker = WorkerReport("w1", "shop", 1, queues={"mail": 1}, running=[WorkerJob("mail:s1:p1:1", "send")])
            client.checkpoint("mail", [], worker=replace(worker, job_types=["render", "resize"]))
            client.update_token("web-1", "0" * 64, ["viewer"], password)
        yield address


@pytest.fixture
def shell(address: str, tmp_path: Path) -> Shell:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "clusters.toml").write_text(f'[clusters]\nproduction = ["{address}"]\nspare = ["x:1"]\n')
    return Shell(tmp_path, address)


def offered(shell: Shell, line: str, **variables: str | None) -> list[str]:
    """The words that may stand in place of the last one."""
    words = line.split(" ")
    variables |= {"_PINLATER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return [each.partition(",")[2] for each in shell(**variables).out.splitlines() if each]


STATES = [
    "scheduled",
    "ready",
    "waiting",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "replayed",
    "pending",
    "in_progress",
]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pinlater que", ["queue"]),
        ("pinlater queue dr", ["drain"]),
        ("pinlater queue stats ", ["mail", "mq2", "mq10"]),
        ("pinlater queue stats mail mq", ["mq2", "mq10"]),
        ("pinlater job scan m", ["mail", "mq2", "mq10"]),
        (
            "pinlater job scan mail --state ",
            STATES,
        ),
        ("pinlater job scan mail --state f", ["failed"]),
        ("pinlater job cancel --queue ma", ["mail"]),
        ("pinlater queue replay mail --state ", ["pending", "failed"]),
        ("pinlater queue set mail max_p", ["max_pending="]),
        ("pinlater queue unset --defaults max_p", ["max_pending"]),
        ("pinlater queue set-rate m", ["mail", "mq2", "mq10"]),
        ("pinlater queue set-rate mail ", []),
        ("pinlater shard drain ", ["1"]),
        ("pinlater worker list --queue mai", ["mail"]),
        ("pinlater check --queue mai", ["mail"]),
        ("pinlater queue list --cluster ", ["production", "spare"]),
        ("pinlater queue stats --cluster production mq1", ["mq10"]),
        ("pinlater completion ", ["bash", "zsh", "fish"]),
        ("pinlater token revoke ", ["web-1"]),
        ("pinlater token create x --role v", ["viewer"]),
        ("pinlater access test anonymous re", ["read"]),
        ("pinlater job enqueue mail --job ", ["render", "resize", "send"]),
        ("pinlater schedule set daily --job re", ["render", "resize"]),
        ("pinlater job enqueue mail --output ", ["table", "json", "jsonl"]),
    ],
)
def test_words_are_offered(shell: Shell, line: str, words: list[str]) -> None:
    assert offered(shell, line) == words


def test_flows_and_their_stages_are_offered(shell: Shell) -> None:
    (flow,) = offered(shell, "pinlater flow status ")
    assert offered(shell, f"pinlater flow add {flow} ") == ["calculate", "pay"]
    assert offered(shell, f"pinlater flow items {flow} --stage p") == ["pay"]
    assert offered(shell, "pinlater flow list --state c") == ["complete", "cancelled"]


def test_without_a_server_nothing_is_offered_soon_and_nothing_said(shell: Shell) -> None:
    begun_s = time.monotonic()
    assert offered(shell, "pinlater queue stats ", PINLATER_SERVER=f"127.0.0.1:{free_port()}") == []
    assert offered(shell, "pinlater queue list --cluster ", PINLATER_CLUSTERS="nowhere.toml") == []
    assert time.monotonic() - begun_s < slower(time.monotonic) * 15


def test_bash_completes_what_the_script_says(shell: Shell) -> None:
    script = shell("completion", "bash").out
    asked = 'COMP_WORDS=(pinlater queue stats mq) COMP_CWORD=3; _pinlater_completion pinlater; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        [shutil.which("bash") or "bash", "--norc", "-c", f"{script}\n{asked}"],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": f"{Path(PROGRAM).parent}:/usr/bin:/bin", "PINLATER_SERVER": shell.server},
    )
    assert done.stdout.split() == ["mq2", "mq10"], done


@pytest.mark.parametrize(
    ("name", "line"), [("zsh", "#compdef pinlater"), ("fish", "complete --no-files --command pinlater")]
)
def test_other_shells_have_their_scripts(shell: Shell, name: str, line: str) -> None:
    assert line in shell("completion", name).out
    assert "_PINLATER_WORKER_COMPLETE" in shell("completion", name, "--program", "pinlater-worker").out
