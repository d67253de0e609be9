"""Whatever token is shown, and however wrongly: it is told to nobody, by no way out."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from pinlater import Client, DequeueRequest, Job, PinLaterError
from pinlater.data_folder.password import hash_password
from tests.server.planted import Marks, Search, family
from tests.server.running import BY_EXEC, PROGRAM, RunningServer, running

RULES = """
[[rules]]
who = ["anonymous"]
may = ["read"]
"""
COMMANDS = (
    ("access", "show"),
    ("token", "list", "-o", "json"),
    ("audit", "-o", "jsonl"),
    ("cluster", "status", "-o", "json"),
    ("worker", "list", "-o", "jsonl"),
    ("top", "--once"),
    ("queue", "create", "mail"),
    ("job", "enqueue", "mail", "x"),
    ("job", "scan", "mail", "--state", "pending"),
    ("token", "revoke", "nobody"),
)


def token(marks: Marks, what: str) -> str:
    """As one is made, with a mark in it."""
    return f"plt_{marks.new(what)}".ljust(47, "x")


def secret_file(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def ask(search: Search, port: int, shown: str, most: int = 100) -> None:
    """Calls with a token, of which some are refused. Who shows a wrong one waits for most answers: few are asked."""
    calls: list[Any] = [
        lambda client: client.create_queue("mail"),
        lambda client: client.enqueue("mail", [Job(b"x")]),
        lambda client: client.enqueue("unknown", [Job(b"x")]),
        lambda client: client.dequeue(DequeueRequest("mail", 1)),
        lambda client: client.get_access(),
        lambda client: client.get_tokens(),
        lambda client: client.audit(),
        lambda client: client.delete_queue("mail", shown),
    ]
    with Client(f"127.0.0.1:{port}", token=shown, timeout=10.0) as client:
        search.text("repr of a client", client, vars(client))
        for number, call in enumerate(calls[:most]):
            try:
                search.text(f"answer {number}", call(client))
            except PinLaterError as error:
                search.error(f"error {number}", error)


def ask_over_http(search: Search, address: str, shown: str, most: int = 100) -> None:
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        ways = ({"Authorization": f"Bearer {shown}"}, {"Authorization": f"Basic {shown}"}, {"X-Token": shown})
        for headers in ways[:most]:
            for verb, path in (("GET", "/v1/queues"), ("GET", "/v1/tokens"), ("GET", "/none"), ("PUT", "/v1/queues/a"))[
                :most
            ]:
                answer = client.request(verb, path, headers=headers)
                search.text(f"{verb} {path}", answer.content, answer.headers)
        for form in ({"token": shown}, {"token": f"{shown}!"})[:most]:
            answer = client.post("/login", data=form)
            search.text("POST /login", answer.content, {**answer.headers, "set-cookie": ""})


def run_commands(search: Search, server: RunningServer, folder: Path, shown: str) -> None:
    file = secret_file(folder / "token", shown)
    for ways in ({"PINLATER_TOKEN": shown}, {"PINLATER_TOKEN_FILE": str(file)}):
        variables = {"PINLATER_SERVER": f"127.0.0.1:{server.port}", **ways}
        for command in COMMANDS:
            search.command(*command, "--timeout", "10s", folder=folder, variables=variables)
    file.unlink()


def run_worker(search: Search, server: RunningServer, folder: Path, shown: str) -> None:
    """One that is refused ends by itself; its processes are looked at while it tries."""
    (folder / "jobs.py").write_text(
        f"from pinlater_workers import App\napp = App(servers=['127.0.0.1:{server.port}'])\n"
        "@app.job(queue='mail', pool='process')\ndef send() -> None: ...\n"
    )
    file = secret_file(folder / "worker-token", shown)
    worker = subprocess.Popen(
        [str(Path(PROGRAM).with_name("pinlater-worker")), "--app", "jobs:app", "--token-file", str(file)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")},
    )
    try:
        told, _ = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait()
    search.text("worker", told)
    assert worker.returncode == 1, told
    file.unlink()


@pytest.mark.slow
def test_tokens_right_and_wrong_are_told_to_nobody(tmp_path: Path) -> None:
    marks = Marks()
    password = marks.new("the admin password")
    search = Search(marks)
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    arguments = ("--rules", str(rules), "--api", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "debug")
    with running(tmp_path, *arguments, before=BY_EXEC, PINLATER_ADMIN_PASSWORD_HASH=hash_password(password)) as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        right = token(marks, "a right token")
        with Client(f"127.0.0.1:{server.port}", token="") as client:
            hashed = hashlib.sha256(right.encode()).hexdigest()
            client.update_token("right", hashed, ["admin"], password)
            search.literal = {hashed: "the hash of a token"}
            search.text("tokens", client.get_access())
        run_worker(search, server, tmp_path, token(marks, "the wrong token of a worker"))
        for shown, most in ((right, 100), (token(marks, "a wrong token"), 1)):
            ask(search, server.port, shown, most)
            ask_over_http(search, address, shown, most)
        run_commands(search, server, tmp_path, right)
        search.processes(family(server.process.pid))
        for pid in family(server.process.pid):
            search.text("/proc/PID/environ", Path(f"/proc/{pid}/environ").read_bytes())
        status = str(server.wait_for("http_ready")["address"]).rstrip("/")
        for path in ("/", "/metrics", "/readyz"):
            search.text(path, httpx.get(status + path, trust_env=False).content)
        server.stop()
        search.text("log", *server.events)
    search.literal = {}  # the store keeps hashes, and nothing else
    search.files(tmp_path)
    assert search.leaks() == []
    assert {"log", "/metrics", "worker", "pinlater access show", "GET /v1/tokens"} <= search.looked_at.keys()


@pytest.mark.parametrize("mode", [0o644, 0o606])
def test_a_file_with_a_token_that_others_may_read_is_refused_and_not_quoted(tmp_path: Path, mode: int) -> None:
    marks = Marks()
    search = Search(marks)
    file = secret_file(tmp_path / "open.token", token(marks, "a token in an open file"))
    clusters = secret_file(tmp_path / "clusters.toml", "")
    clusters.write_text(f'[clusters.mail]\nservers = ["127.0.0.1:1"]\ntoken = "{token(marks, "in clusters.toml")}"\n')
    for path in (file, clusters):
        path.chmod(mode)
    ended = [
        search.command("queue", "list", "--token-file", str(file), folder=tmp_path),
        search.command(
            "queue", "list", "--cluster", "mail", folder=tmp_path, variables={"PINLATER_CLUSTERS": str(clusters)}
        ),
    ]
    for each in ended:
        assert each.returncode == 2, each
        assert "chmod" in each.stderr, each
    assert search.leaks() == []
