"""Python's own switches: no assertion and no docstring does any work, no warning comes, and children get the same."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import hash_password
from pinlater.model import Job
from tests.server.running import PROGRAM, running
from tests.workers.command import working

APP = """
import sys
from pinlater_workers import App
app = App()

@app.job(queue="switched", pool="process")
def switches() -> None:
    print("switches:", sys.flags.optimize, sys.flags.isolated, sys.warnoptions, flush=True)
"""
BODY = b'PINLATER/1 application/json\n{"job": "switches", "args": []}'


def test_no_assertion_does_work() -> None:
    """Under -O it would not be done."""
    root = Path(__file__).parents[2]
    sources = [*(root / "pinlater").rglob("*.py"), *(root / "workers" / "pinlater_workers").rglob("*.py")]
    assert sources
    found = [
        f"{source}:{each.lineno}"
        for source in sources
        for each in ast.walk(ast.parse(source.read_text()))
        if isinstance(each, ast.Assert)
        if any(isinstance(part, ast.Await | ast.NamedExpr | ast.Yield) for part in ast.walk(each.test))
    ]
    assert found == []


IMPORTS = """
import importlib, pkgutil
for root in ("pinlater", "pinlater_workers"):
    package = importlib.import_module(root)
    for name in package.__all__:
        getattr(package, name)
    for each in pkgutil.walk_packages(package.__path__, f"{root}."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)
"""


def test_no_module_warns_when_it_is_imported(tmp_path: Path) -> None:
    """Nor when it is compiled anew, and its packages' modules with it."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTS],
        env={**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("switches", "seen"),
    [
        (["-O"], "1 0 []"),
        (["-OO", "-W", "error"], "2 0 ['error']"),
        (["-I", "-W", "error"], "0 1 ['error']"),
    ],
    ids=lambda each: "".join(each).replace(" ", ""),
)
def test_servers_commands_and_workers_under(switches: list[str], seen: str, tmp_path: Path) -> None:
    (tmp_path / "switched_app.py").write_text(APP)
    before = [sys.executable, *switches]
    password = hash_password("secret")
    variables = {"PINLATER_API": "127.0.0.1:0", "PINLATER_HTTP": "127.0.0.1:0"}
    with running(tmp_path, "--admin-password-hash", password, before=before, **variables) as server:
        server.wait_for("api_ready")
        address = f"127.0.0.1:{server.port}"

        def command(*arguments: str) -> str:
            done = subprocess.run(
                [*before, PROGRAM, *arguments],
                env={"PINLATER_SERVER": address, "PINLATER_ADMIN_PASSWORD": "secret\n", "PATH": "/usr/bin"},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
            assert "Warning" not in done.stderr
            return done.stdout

        command("queue", "create", "switched")
        command("schedule", "set", "often", "--queue", "switched", "--cron", "* * * * *")
        command("flow", "list")
        assert "Usage" in command("job", "enqueue", "--help")
        app = ("--app", "switched_app:app", "--server", address)
        with working(tmp_path, *app, before=before) as worker:
            worker.ready()
            with Client(address) as client:
                client.enqueue("switched", [Job(BODY)])
            worker.wait_for(f"switches: {seen}")
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
            assert not [line for line in worker.lines if "Warning" in line or "Traceback" in line]
    told = [event for event in server.events if "Warning" in str(event) or "Traceback" in str(event)]
    assert not told
