"""The HTTP process of a real server: started, replaced, rolled and ended beside the server processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from pinlater import Client, Job
from pinlater.config import load, to_plain
from pinlater.data_folder.password import hash_password
from pinlater.plan import make_plan
from tests.server.running import BY_EXEC, PROGRAM, RunningServer, lives, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running(tmp_path, "--api", "127.0.0.1:0") as started:
        yield started


def port_of(server: RunningServer, *, after: int = 0) -> int:
    return int(server.wait_for("api_ready", after=after)["address"].rstrip("/").rpartition(":")[2])


def ask(port: int, method: str = "GET", path: str = "/session", body: bytes | None = None, **headers: str) -> Any:
    """The status and the body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"Connection": "close", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_is_replaced_when_it_is_killed_and_its_callers_and_jobs_notice_nothing(server: RunningServer) -> None:
    port = port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        for _ in range(2):
            begun = len(server.events)
            pid = next(
                each["api"] for each in reversed(server.events) if each["event"] in ("api_ready", "api_replaced")
            )
            os.kill(pid, signal.SIGKILL)
            client.enqueue("mail", Job(b"x"))
            assert ask(port)[0] == 200  # its connection waited
            died = server.wait_for("api_died", after=begun)
            assert died["how"] == "killed by SIGKILL"
            server.wait_for("api_replaced", after=begun)
    assert not any(event["event"] == "worker_died" for event in server.events)


def test_calls_go_on_while_a_server_process_is_replaced(server: RunningServer) -> None:
    port = port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
    (worker,) = server.wait_for("ready")["workers"]
    os.kill(worker, signal.SIGKILL)
    status, body = ask(port, path="/v1/events?queue=nothing")
    assert (status, b"QUEUE_NOT_FOUND" in body) == (404, True)
    server.wait_for("worker_replaced")


def test_a_roll_loses_no_request(server: RunningServer) -> None:
    port = port_of(server)
    begun = len(server.events)
    server.send(signal.SIGHUP)
    while not any(event["event"] == "api_ready" for event in server.events[begun:]):
        assert ask(port)[0] == 200
    assert port_of(server, after=begun) == port
    assert ask(port)[0] == 200


def test_a_worker_that_leaves_while_it_waits_takes_no_job_with_it(server: RunningServer) -> None:
    port = port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
        wait = json.dumps({"limit": 1, "wait_ms": 30_000}).encode()
        waiting = HTTPConnection("127.0.0.1", port, timeout=60)
        waiting.request("POST", "/v1/queues/mail/dequeue", wait, {"Content-Type": "application/json"})
        time.sleep(0.2)
        waiting.close()
        for _ in range(3):  # each has its turns behind the end of that connection, there and at the server process
            assert ask(port, path="/v1/queues/mail")[0] == 200
        client.enqueue("mail", Job(b"x"))
        status, body = ask(port, "POST", "/v1/queues/mail/dequeue", wait, **{"Content-Type": "application/json"})
        assert (status, [job["body"] for job in json.loads(body)["jobs"]]) == (200, ["x"])


def test_who_guesses_the_admin_password_over_http_shuts_out_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", "--admin-password-hash", hash_password("right")) as server:
        port = port_of(server)

        def delete(password: str, by_way_of: str) -> tuple[int, str]:
            connection = HTTPConnection("127.0.0.1", port, timeout=60, source_address=(by_way_of, 0))
            connection.request("DELETE", "/v1/queues/mail", headers={"X-Admin-Password": password})
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, json.loads(body)["reason"] if body else ""

        found = [delete(f"wrong {number}", "127.0.0.2") for number in range(5)]
        assert found == [(403, "PASSWORD_INVALID")] * 5
        assert delete("right", "127.0.0.1")[0] < 300
        assert server.wait_for("password_wrong")["address"] == "127.0.0.2"


def test_a_stop_ends_streams_and_the_process(server: RunningServer) -> None:
    port = port_of(server)
    with Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("mail")
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v1/events?queue=mail")
    stream = connection.getresponse()
    assert b"retry" in stream.readline()
    pid = server.wait_for("api_ready")["api"]
    server.send(signal.SIGTERM)
    stream.read()
    connection.close()
    assert server.ended() == 0
    assert not lives(pid)
    assert not any(event.get("level") in ("error", "warning") for event in server.events)


def test_an_address_that_is_taken_is_said_once_and_had_when_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with running(tmp_path, "--api", address) as server:
            said = server.wait_for("api_not_served")
            assert (said["address"], said["hint"]) == (address, "it is tried again; or choose another --api")
            with Client(f"127.0.0.1:{server.port}") as client:
                client.create_queue("mail")
            taken.close()
            server.wait_for("api_ready")
            assert sum(event["event"] == "api_not_served" for event in server.events) == 1


def test_its_token_is_in_no_list_of_processes_and_in_no_log(tmp_path: Path) -> None:
    with running(tmp_path, "--api", "127.0.0.1:0", before=BY_EXEC) as server:
        pids = [server.wait_for("api_ready")["api"], server.process.pid, *server.wait_for("ready")["workers"]]
        for pid in pids:
            for name in ("cmdline", "environ"):
                assert b"plt_" not in Path(f"/proc/{pid}/{name}").read_bytes()
        assert server.stop() == 0
        assert "plt_" not in str(server.events)


@pytest.mark.parametrize(
    ("flags", "address"),
    [
        ({}, "127.0.0.1:9012"),
        ({"host": "localhost"}, "127.0.0.1:9012"),
        ({"host": "0.0.0.0"}, "none"),
        ({"api": "none"}, "none"),
        ({"host": "0.0.0.0", "api": "0.0.0.0:80"}, "0.0.0.0:80"),
    ],
)
async def test_by_itself_it_serves_only_beside_a_server_for_this_machine(
    flags: dict[str, str], address: str, tmp_path: Path
) -> None:
    config = load({"data": str(tmp_path / "data"), **flags}, {}).config
    plan = await make_plan(config, ())
    assert plan.payload["config"]["api"] == address
    assert to_plain(config)["api"] == flags.get("api", "auto")


def test_one_for_a_cluster_runs_alone(server: RunningServer, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    command = [PROGRAM, "api", "--server", f"127.0.0.1:{server.port}", "--listen", "127.0.0.1:0"]
    log = tmp_path / "api.log"
    with log.open("w") as file:
        process = subprocess.Popen([*command, "--log-format", "json"], stderr=file, env=environment, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        while '"api_ready"' not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        port = int(log.read_text().partition("http://127.0.0.1:")[2].partition("/")[0])
        status, body = ask(port, path="/v1/events?queue=nothing")
        assert (status, b"QUEUE_NOT_FOUND" in body) == (404, True)
    finally:
        process.terminate()
        assert process.wait(20) == 0
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--server", "127.0.0.1:1"], 1, "cannot start: no server says"),
        (["--server", "x:y"], 2, "x:y"),
        (["--max-connections", "0"], 2, "max-connections"),
        (["--listen", "nowhere"], 2, "HOST:PORT"),
        (["--server", "127.0.0.1:1", "--tls-cert", "/nothing"], 1, "cannot start"),
    ],
)
def test_what_it_cannot_start_with_is_said_in_one_line(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [PROGRAM, "api", "--listen", "127.0.0.1:0", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_its_document_is_printed() -> None:
    done = subprocess.run([PROGRAM, "api", "openapi"], capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(done.stdout)["openapi"].startswith("3.1")
