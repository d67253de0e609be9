"""The counts of the HTTP process, at its own address and on the page of its server."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pinlater import Client
from pinlater.data_folder.password import hash_password
from tests.http.calls import PASSWORD
from tests.server.running import RunningServer, running

VIEWER, PRODUCER = f"plt_{'v' * 43}", f"plt_{'p' * 43}"
ENQUEUE = "POST /v1/queues/{queue}/jobs"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "rules.toml").write_text('[[rules]]\nwho = ["token:p"]\nmay = ["operate"]\nqueues = ["mail"]')
    options = ("--rules", "rules.toml", "--admin-password-hash", hash_password(PASSWORD), "--processes", "1")
    with running(tmp_path, "--api", "127.0.0.1:0", *options, PINLATER_HTTP="127.0.0.1:0") as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for token, role in ((VIEWER, "viewer"), (PRODUCER, "producer")):
                hashed = hashlib.sha256(token.encode()).hexdigest()
                client.update_token(role[0], hashed, [role], PASSWORD)
        yield server


def counts_in(response: httpx.Response) -> dict[tuple[str, ...], float]:
    assert response.status_code == 200, response.text
    families = text_string_to_metric_families(response.text)
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("pinlater_http_")]
    return {(each.name[14:], *each.labels.values()): each.value for each in samples}


def test_requests_are_counted_at_both_addresses_and_not_for_everybody(server: RunningServer) -> None:
    address, page = (str(server.wait_for(event)["address"]) for event in ("api_ready", "http_ready"))
    viewer, producer = ({"Authorization": f"Bearer {token}"} for token in (VIEWER, PRODUCER))
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        assert client.put("/v1/queues/mail", headers=producer).status_code == 204
        for _ in range(3):
            assert client.post("/v1/queues/mail/jobs", json={"body": "x"}, headers=producer).status_code == 201
        assert client.post("/v1/queues/mail/jobs", json={"body": "x"}, headers=viewer).status_code == 403
        assert client.get("/v1/nothing/MARKED").status_code == 404
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer plt_x"}).status_code == 403
        own = counts_in(client.get("/metrics", headers=viewer))
    assert own["requests_total", ENQUEUE, "201"] == own["request_seconds_count", ENQUEUE] - 1 == 3
    assert own["requests_refused_total", "FORBIDDEN"] == 3
    assert own["requests_total", "none", "404"] == 1
    assert own["requests_under_way",] == own["connections",] == 1
    assert "MARKED" not in str(own)
    assert counts_in(httpx.get(f"{page}metrics"))["requests_total", ENQUEUE, "201"] == 3
    os.kill(int(server.wait_for("api_ready")["api"]), signal.SIGTERM)
    server.wait_for("api_replaced")
    assert counts_in(httpx.get(f"{page}metrics"))["requests_total", ENQUEUE, "201"] == 3
