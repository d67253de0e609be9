"""Public tools hold the OpenAPI document to its standard, and a server to the document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from pinlater.data_folder.password import hash_password
from pinlater.http.openapi import openapi_json
from tests.http.calls import PASSWORD
from tests.server.running import running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
RUNS = {
    "all calls": ["--phases", "fuzzing", "-n", "3", "--exclude-operation-id", "change_shard"],
    "all values": ["--phases", "coverage", "--include-operation-id", "enqueue", "--include-operation-id", "scan_jobs"],
}
"""A few requests of every call but the one that puts the only shard out of use; and all kinds of a few calls."""


def test_the_document_is_of_openapi_3_1() -> None:
    document = json.loads(openapi_json())
    assert document["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(document).validate()


@pytest.fixture(scope="module")
def document_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server of its own: the tool deletes queues, and changes what it finds."""
    arguments = ["--api", "127.0.0.1:0", "--max-wait", "20ms", "--admin-password-hash", hash_password(PASSWORD)]
    with running(tmp_path_factory.mktemp("conformance"), *arguments) as server:
        yield f"{server.wait_for('api_ready')['address']}v1/openapi.json"


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_a_server_does_what_the_document_says(document_address: str, tmp_path: Path, run: str) -> None:
    """Schemathesis makes requests that are right, and requests that are wrong in one place."""
    program = str(Path(sys.executable).parent / "schemathesis")
    tool = [program, "run", document_address, *RUNS[run], "-c", ",".join(CHECKS)]
    limits = ["-H", f"X-Admin-Password: {PASSWORD}", "--generation-deterministic"]
    quiet = ["--no-shrink", "--no-color", "--suppress-health-check", "all", "--warnings", "off"]
    done = subprocess.run(
        [*tool, *limits, *quiet], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
