"""The documentation site under /docs/: from a package where it is installed, else a word about how to have it."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from hashlib import sha256

import httpx
import pytest

from tests.http.calls import Caller
from tests.server.running import running

SCRIPT = "document.title = 'read'"
HASH = f"sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}"


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> httpx.Client:
    """Of a server that has the package, and takes calls of callers with a certificate or a token alone."""
    folder = tmp_path_factory.mktemp("manual")
    package = folder / "packages" / "pinlater_docs"
    (package / "site" / "queues").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inline.json").write_text(json.dumps({"script": [HASH], "style": []}))
    (package / "site" / "index.html").write_text(f"<script>{SCRIPT}</script>" + "The first page. " * 200)
    (package / "site" / "404.html").write_text('No such page. <a href="/queues/"> <script>go("/")</script>')
    (package / "site" / "queues" / "index.html").write_text("Queues.")
    (package / "site" / "queues.md").write_text("# Queues\n")
    (package / "outside.txt").write_text("not a page")
    path = os.pathsep.join([str(folder / "packages"), os.environ.get("PYTHONPATH", "")])
    with running(folder, "--api", "127.0.0.1:0", "--api-prefix", "/jobs", PYTHONPATH=path) as server:
        address = str(server.wait_for("api_ready")["address"]).rstrip("/")
        with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
            yield client


def test_pages_are_shown(manual: httpx.Client) -> None:
    page = manual.get("/docs/")
    assert "The first page." in page.text
    assert page.headers["Content-Encoding"] in ("gzip", "deflate")
    assert f"script-src 'self' '{HASH}';" in page.headers["Content-Security-Policy"]
    assert manual.get("/docs/queues/").text == "Queues."
    assert manual.get("/docs/queues.md").headers["Content-Type"] == "text/markdown; charset=utf-8"


def test_a_page_that_is_known_is_not_sent_again_and_keeps_its_rules(manual: httpx.Client) -> None:
    first = manual.get("/docs/")
    again = manual.get("/docs/", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Content-Security-Policy"] == first.headers["Content-Security-Policy"]


def test_addresses_without_their_slash_lead_on(manual: httpx.Client) -> None:
    assert manual.get("/docs").headers["Location"] == "/jobs/docs/"
    assert manual.get("/docs/queues").headers["Location"] == "/jobs/docs/queues/"


@pytest.mark.parametrize(
    ("path", "up"), [("/docs/no", "./"), ("/docs/queues/no", "../"), ("/docs/a/b/", "../../"), ("/docs/a%2fb", "./")]
)
def test_the_page_for_what_is_not_there_finds_its_files_wherever_it_is_shown(
    manual: httpx.Client, path: str, up: str
) -> None:
    answer = manual.get(path)
    assert f'href="{up}queues/"' in answer.text
    script = f'go("{up}")'
    assert script in answer.text
    mark = b64encode(sha256(script.encode()).digest()).decode()
    assert f"'sha256-{mark}'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path", ["/docs/nothing", "/docs/..%2foutside.txt", "/docs/%2e%2e/outside.txt", "/docs/%00", f"/docs/{'x' * 300}"]
)
def test_nothing_but_pages_is_sent(manual: httpx.Client, path: str) -> None:
    answer = manual.get(path)
    assert answer.status_code == 404
    assert "not a page" not in answer.text


def test_the_page_to_try_the_calls_is_beside_it(manual: httpx.Client) -> None:
    assert "Made of" in manual.get("/docs/api").text


def test_without_the_package_it_says_how_to_have_it(caller: Caller) -> None:
    assert caller.client.get("/docs").headers["Location"] == "/docs/api"
    answer = caller.client.get("/docs/queues/")
    assert answer.status_code == 404
    assert "scripts/docs --install" in answer.json()["detail"]
