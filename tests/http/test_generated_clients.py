"""Clients that public generators make of the OpenAPI document, in two languages: they enqueue a job, and work on it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pinlater.http.openapi import openapi_json

pytestmark = [pytest.mark.slow]
TYPESCRIPT = Path(__file__).parent / "typescript"
PYTHON = """
import json, sys
from client import Client
from client.api.jobs import enqueue, get_job
from client.api.work import ack, dequeue, heartbeat
from client.models import (
    AcksForm, DequeueForm, Encoding, HeartbeatForm, HeartbeatsForm, JobForm, SuccessForm,
)

address, queue = sys.argv[1:]
with Client(base_url=address) as client:
    form = JobForm(body={"to": "ada"}, body_encoding=Encoding.JSON)
    stored = enqueue.sync(queue, client=client, body=form, idempotency_key="python")
    wanted = DequeueForm(wait_ms=5000, encoding=Encoding.JSON)
    (job,) = dequeue.sync(queue, client=client, body=wanted).jobs
    assert job.descriptor == stored.descriptor
    claim = dict(descriptor=job.descriptor, claim_descriptor=job.claim_descriptor)
    beats = heartbeat.sync(queue, client=client, body=HeartbeatsForm(heartbeats=[HeartbeatForm(**claim)]))
    done = SuccessForm(**claim, result={"greeted": job.body["to"]}, result_encoding=Encoding.JSON)
    acked = ack.sync(queue, client=client, body=AcksForm(succeeded=[done]))
    ended = get_job.sync(job.descriptor, client=client, include_result=True, encoding=Encoding.JSON)
    missing = enqueue.sync("nowhere", client=client, body=JobForm(body="x"))
    print(json.dumps([beats.answers[0].outcome, acked.outcomes, ended.state, ended.result, missing.reason]))
"""


def run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def worked(printed: str) -> None:
    assert json.loads(printed) == ["ok", ["succeeded"], "succeeded", {"greeted": "ada"}, "QUEUE_NOT_FOUND"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the document."""
    (tmp_path / "openapi.json").write_bytes(openapi_json())
    return tmp_path


def test_a_client_in_python(folder: Path, api_address: str, queue: str) -> None:
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json"]
    (folder / "generator.yaml").write_text("post_hooks: []\n")
    run([*generator, "--output-path", "client", "--meta", "none", "--config", "generator.yaml"], folder)
    (folder / "worker.py").write_text(PYTHON)
    worked(run([sys.executable, "worker.py", api_address, queue], folder))


@pytest.fixture
def typescript_client(folder: Path) -> Path:
    """A folder with a worker on the generated client, as JavaScript."""
    for program, package in (("node", "nodejs"), ("npm", "npm")):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed: apt-get install {package}", pytrace=False)
    for file in TYPESCRIPT.iterdir():
        shutil.copy(file, folder)
    run(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    run(["npx", "openapi-ts", "-i", "openapi.json", "-o", "client", "-c", "@hey-api/client-fetch"], folder)
    target = ["--target", "es2022", "--module", "commonjs", "--lib", "es2022,dom,dom.iterable"]
    run(["npx", "tsc", "--strict", "--skipLibCheck", *target, "worker.ts"], folder)
    return folder


def test_a_client_in_typescript(typescript_client: Path, api_address: str, queue: str) -> None:
    worked(run(["node", "worker.js", api_address, queue], typescript_client))
