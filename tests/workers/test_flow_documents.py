"""What the pages show of flows: the first program at a real server, the other code in memory, as it stands there."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from pinlater import Client
from pinlater_workers import App, Flow, FlowEnd, FlowRun, testing
from tests.packaging.conftest import ROOT
from tests.server.running import running
from tests.workers.command import WITHIN_S, working

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[str]:
    return BLOCK.findall((ROOT / "docs" / document).read_text(encoding="utf-8"))


def test_the_first_flow_runs_as_a_program_beside_a_worker(tmp_path: Path) -> None:
    program = blocks("workers-flows.md")[0]
    assert "127.0.0.1:9010" in program
    with running(tmp_path) as server:
        address = f"127.0.0.1:{server.port}"
        with Client(address) as client:
            for queue in ("payroll", "checks"):
                client.create_queue(queue)
        (tmp_path / "payroll.py").write_text(program.replace("127.0.0.1:9010", address), encoding="utf-8")
        with working(tmp_path, "--app", "payroll:app") as worker:
            command = [sys.executable, "-W", "error", "payroll.py"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S)
            assert (done.returncode, done.stderr) == (0, "")
            assert sorted(done.stdout.splitlines()) == [
                "1 check for 1: 6375.00",
                "2 check for 2: 3400.00",
                "3 check for 3: 5100.00",
            ]
            worker.wait_for("payroll is over: COMPLETE")


def test_the_page_on_flows_is_true_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = blocks("workers-flows.md")
    module = ModuleType("payroll")
    monkeypatch.setitem(sys.modules, "payroll", module)
    names = vars(module)
    exec(compile(first, "first program", "exec"), names)
    for block in rest:
        with testing.in_memory(names["app"]) as jobs:
            exec(compile(block, "flows", "exec"), names)
            if "add_up" in block:
                jobs.run_all()
            if "pages = " in block:
                run = names["pages"].start([{"url": "a"}], seal=True)
                assert [item.result for item in run.results()] == [5]
                lines = [item.payload["line"] for item in run.results(names["stored"])]
                assert lines == ["a", "b", "c"]
            if "pay_all" in block:
                paid = asyncio.run(names["pay_all"]())
                assert paid == ["check for 1: 425.00", "check for 2: 850.00"]
    names["test_a_payroll"]()
    assert names["totals"] == [300]
    assert [text.partition(" of ")[0] for text in names["booked"]] == ["entry 0", "entry 1"]


def test_the_page_for_users_of_celery_and_rq_is_true_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    app = App(servers=["127.0.0.1:1"])
    names: dict[str, Any] = {"app": app, "Flow": Flow, "FlowEnd": FlowEnd, "FlowRun": FlowRun}
    page = (ROOT / "docs" / "from-celery-and-rq.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^## Chains.*?(?=^## )", page, re.MULTILINE | re.DOTALL)
    with testing.in_memory(app) as jobs:
        for block in BLOCK.findall(found):
            exec(compile(block, "celery", "exec"), names)
        jobs.run_all()
    assert names["announced"].result == "15000 pixels"
    assert names["shrunk"] == [100, 400]
    assert capsys.readouterr().out == "500\n"
    assert [run.job for run in jobs.runs].count("fetch") == 2


def test_a_server_in_memory_writes_no_log_where_a_program_prints_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with capture_logs():
        pass  # structlog counts as configured from then on
    app = App(servers=["127.0.0.1:1"])

    @app.job(queue="pictures")
    def say(text: str) -> None:
        structlog.get_logger("shop").info(text)

    with testing.in_memory(app) as jobs:
        say.enqueue("said by a job")
        jobs.run_all()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "said by a job" in lines[0]
