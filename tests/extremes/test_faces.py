"""Whatever a server takes, every face of it can show: no row breaks the list that it stands in."""

from __future__ import annotations

import json
import re
from contextlib import closing
from html import unescape

import httpx
import pytest
from click.testing import CliRunner

from pinlater.cli import main
from pinlater.http.routes import ROUTES
from pinlater.model import DequeueRequest, JobFilter, JobState
from tests.dashboard.visitor import Visitor, text_of
from tests.extremes.calls import reports_of_workers
from tests.extremes.faces import (
    COMMANDS,
    QUESTIONS,
    asked_by_http,
    commands_of,
    shown_by_commands,
    shown_by_dashboard,
    shown_by_http,
)
from tests.extremes.sending import STAYS, WITHIN_S, Line, Sent
from tests.http.calls import PASSWORD

SAYS_ITS_JUDGEMENT = "check"
"""A command whose exit code is that."""

MAY_BE_LACKING = ("/body", "/result", "/payload")
"""What not every job or item has."""


@pytest.fixture
def sent_with_workers(sent: Sent) -> Sent:
    """With workers that said who they are just now."""
    with closing(Line(sent.server.port)) as line:
        for call in reports_of_workers():
            sent.send(line, call)
    return sent


def test_every_command_has_its_row() -> None:
    assert set(COMMANDS) == {words for words, _ in commands_of(main)}


def test_every_question_over_http_has_its_row() -> None:
    assert set(QUESTIONS) == {each.path for each in ROUTES if each.verb != "GET" and not each.method.changes}


def test_thrift_shows_them(sent: Sent) -> None:
    found = sent.client.lookup(sent.descriptors, include_result=True)
    assert set(found) == set(sent.descriptors)
    scanned = set()
    for state in JobState:
        for future in (False, True):
            jobs = JobFilter(STAYS, state, future=future)
            scanned |= {each.descriptor for each in sent.client.scan(jobs, limit=1_000).jobs}
    assert scanned >= set(sent.descriptors)


def test_http_shows_them(sent_with_workers: Sent) -> None:
    sent = sent_with_workers
    broken = []
    with httpx.Client(base_url=_address(sent), timeout=WITHIN_S, trust_env=False) as client:
        for path in shown_by_http(sent):
            response = client.get(path)
            if response.status_code != 200:
                broken.append(f"{path}: {response.status_code} {response.text[:300]}")
        for path, form in asked_by_http(sent):
            response = client.post(path, content=form, headers={"Content-Type": "application/json"})
            if response.status_code != 200:
                broken.append(f"{path}: {response.status_code} {response.text[:300]}")
    assert not broken, "\n".join(broken[:20])


def test_the_dashboard_shows_them(sent_with_workers: Sent) -> None:
    sent = sent_with_workers
    visitor = Visitor(_address(sent))
    broken = []
    with closing(visitor.client):
        visitor.open(password=PASSWORD)
        for path in shown_by_dashboard(sent):
            response = visitor.client.get(path)
            if response.status_code != 200 and not (response.status_code == 404 and path.endswith(MAY_BE_LACKING)):
                broken.append(f"{path}: {response.status_code} {text_of(response.text)[:300]}")
        assert not broken, "\n".join(broken[:20])
        assert _listed(visitor) >= set(sent.descriptors)


def _listed(visitor: Visitor) -> set[str]:
    """The jobs of all pages of the list."""
    found: set[str] = set()
    path: str | None = f"/dashboard/jobs?filter=queue:{STAYS}"
    while path is not None:
        text = visitor.get(path).text
        found |= {unescape(each).replace("%3A", ":") for each in re.findall(r'href="/dashboard/jobs/([^"?/]+)"', text)}
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = unescape(following[1]) if following else None
    return found


def test_the_command_line_shows_them(sent_with_workers: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sent_with_workers
    monkeypatch.setenv("PINLATER_SERVER", f"127.0.0.1:{sent.server.port}")
    broken = []
    for words in shown_by_commands(sent):
        result = CliRunner().invoke(main, list(words))
        judged = words[0] == SAYS_ITS_JUDGEMENT and isinstance(result.exception, SystemExit)
        if result.exception is not None and not judged:
            broken.append(f"{' '.join(words)}: {result.exception!r} {result.output[-300:]}")
        elif words[-1] == "json":
            json.loads(result.stdout)
        elif words[-1] == "jsonl":
            [json.loads(line) for line in result.stdout.splitlines()]
    assert not broken, "\n".join(broken[:20])


def test_the_status_page_and_the_metrics_show_them(sent_with_workers: Sent) -> None:
    sent = sent_with_workers
    where = str(sent.server.wait_for("http_ready")["address"]).rstrip("/")
    with httpx.Client(base_url=where, timeout=WITHIN_S, trust_env=False) as client:
        assert [client.get(path).status_code for path in ("/", "/metrics", "/livez", "/readyz")] == [200] * 4
    with httpx.Client(base_url=_address(sent), timeout=WITHIN_S, trust_env=False) as client:
        assert client.get("/metrics").status_code == 200


def test_workers_are_handed_them(sent: Sent) -> None:
    """Last, since then they are in progress."""
    with httpx.Client(base_url=_address(sent), timeout=WITHIN_S, trust_env=False) as client:
        response = client.post(f"/v1/queues/{STAYS}/dequeue", json={"limit": 10})
        assert response.status_code == 200, response.text
        handed_out = {each["descriptor"] for each in response.json()["jobs"]}
    while jobs := sent.client.dequeue(DequeueRequest(STAYS, 1_000)):
        handed_out |= {each.descriptor for each in jobs}
    assert handed_out & set(sent.descriptors)


def _address(sent: Sent) -> str:
    return str(sent.server.wait_for("api_ready")["address"]).rstrip("/")
