"""The applications of docs/workers-web.md, as they stand there, with a real server and a real worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import running
from tests.workers.command import working

PAGE = Path(__file__).parents[2] / "docs" / "workers-web.md"
BLOCK = re.compile(r"<!-- (\w+): (\S+) -->\n```python\n(.*?)```", re.DOTALL)
SIGN_UP_BY_FASTAPI = """
from fastapi.testclient import TestClient
from shop.web import web

with TestClient(web) as client:
    answer = client.post("/sign-ups/ada@example.org")
assert answer.status_code == 200, answer.text
print(answer.json()["job"])
"""
SETTINGS = """
SECRET_KEY = "for tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mails"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["testserver"]
"""
URLS = """
from django.urls import path
from mails.views import sign_up

urlpatterns = [path("sign-up/<name>", sign_up)]
"""
SIGN_UP_BY_DJANGO = """
import django
django.setup()
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)
answer = Client().post("/sign-up/ada")
assert answer.status_code == 201, answer.content
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found.port


def written(folder: Path, framework: str, **more: str) -> dict[str, str]:
    """The environment of a program in a folder with the page's files."""
    files = {name: text for kind, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if kind == framework}
    assert files
    for name, text in {**files, **more}.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        (file.parent / "__init__.py").touch()
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(folder: Path, script: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_fastapi(tmp_path: Path, server: int) -> None:
    environment = written(tmp_path, "fastapi") | {"PINLATER_SERVER": f"127.0.0.1:{server}"}
    arguments = ("--app", "shop.jobs:app", "--server", f"127.0.0.1:{server}", "--queues", "mails", "--create-queues")
    with working(tmp_path, *arguments) as worker:
        worker.wait_for("was not there: created")
        assert run(tmp_path, SIGN_UP_BY_FASTAPI, environment).startswith("mails")
        worker.wait_for("welcome, ada@example.org")


def test_django(tmp_path: Path, server: int) -> None:
    environment = written(tmp_path, "django", **{"shop/settings.py": SETTINGS, "shop/urls.py": URLS})
    environment |= {"PINLATER_SERVER": f"127.0.0.1:{server}", "DJANGO_SETTINGS_MODULE": "shop.settings"}
    arguments = ("--app", "shop.worker:app", "--server", f"127.0.0.1:{server}", "--create-queues")
    with working(tmp_path, *arguments) as worker:
        worker.ready()
        run(tmp_path, SIGN_UP_BY_DJANGO, environment)
        worker.wait_for("welcome, ada")
