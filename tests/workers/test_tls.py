"""A worker of processes over TLS, at a server that takes callers with a certificate alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinlater import Client, Job, JobState
from tests.server.certificates import Authority
from tests.server.running import running
from tests.workers.command import WITHIN_S, working

HOST = "127.0.0.1"
CODE = """
import time
from pinlater_workers import App

app = App()

@app.job(queue="mail")
def first() -> None:
    time.sleep(4)  # longer than the lease: without heartbeats the claim were lost
    second.enqueue()

@app.job(queue="mail")
def second() -> None:
    print("second", flush=True)
"""
FILE = """
servers = ["{address}"]
app = "mailing:app"
import_paths = ["."]
tls = {{ ca = "{ca}" }}

[worker]
pool = "process"
concurrency = 2
lease = "3s"
"""


@pytest.mark.slow
def test_a_worker_its_processes_and_its_heartbeats_show_a_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server", HOST)
    caller = authority.caller()
    served = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.ca)
    with running(tmp_path, *served) as server:
        address = f"{HOST}:{server.port}"
        (tmp_path / "mailing.py").write_text(CODE)
        paths = {"ca": Path(authority.ca).name, "cert": Path(str(caller.cert)).name, "key": Path(str(caller.key)).name}
        (tmp_path / "worker.toml").write_text(FILE.format(address=address, ca=paths["ca"]))
        shown = ("--client-cert", paths["cert"], "--client-key", paths["key"])
        with working(tmp_path, "--config", "worker.toml", *shown) as worker, Client(address, tls=caller) as client:
            worker.ready()
            client.create_queue("mail")
            body = f"PINLATER/1 application/json\n{json.dumps({'job': 'first', 'args': []})}"
            descriptor = client.enqueue("mail", Job(body.encode()))
            worker.wait_for("second")
            client.wait(descriptor, timeout=WITHIN_S)
            assert client.lookup([descriptor])[descriptor].state is JobState.SUCCEEDED
        assert worker.lines.count("second") == 1
