"""The programs of docs/workers-outbox.md do what the page says, as they stand there but for addresses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from tests.packaging.conftest import ROOT
from tests.server.running import running
from tests.stores.process import StoreServer
from tests.workers.command import PROGRAM, WITHIN_S, working

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.py)\n")
PAGE = (ROOT / "docs" / "workers-outbox.md").read_text(encoding="utf-8")

SETTINGS = """
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}}
INSTALLED_APPS = ["shop"]
SECRET_KEY = "for tests"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
MODELS = """
from django.db import models


class Order(models.Model):
    item = models.CharField(max_length=100)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        address = f"127.0.0.1:{found.port}"
        with Client(address) as client:
            client.create_queue("mail")
        yield address


@pytest.fixture
def shop(server: str, tmp_path: Path) -> Path:
    """A folder with every program of the page."""
    programs = {match[1]: block for block in BLOCK.findall(PAGE) if (match := FILE.match(block))}
    assert {"jobs.py", "orders_sqlite3.py", "shop/views.py"} <= programs.keys()
    for name, program in programs.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(program.replace("127.0.0.1:9010", server), encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    environment |= {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=WITHIN_S * 3
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def relayed(folder: Path, database: str) -> None:
    """One job reaches a worker of the app by a relay."""
    said = run(folder, PROGRAM, "outbox", "--once", "--app", "jobs:app", "--database", database)
    assert said == "1 jobs handed over\n"
    with working(folder, "--app", "jobs:app") as worker:
        worker.wait_for("receipt for order 1")


def test_with_sqlite3(shop: Path) -> None:
    run(shop, sys.executable, "-W", "error", "orders_sqlite3.py")
    relayed(shop, "sqlite:///shop.db")


@pytest.mark.parametrize("program", ["orders_sqlalchemy.py", "orders_psycopg.py"])
def test_with_postgresql(program: str, shop: Path, postgres_server: StoreServer) -> None:
    postgres_server.empty(14)
    url = postgres_server.url(14)
    address = url.partition("://")[2]
    code = (shop / program).read_text(encoding="utf-8")
    assert "postgres@127.0.0.1/shop" in code
    (shop / program).write_text(code.replace("postgres@127.0.0.1/shop", address), encoding="utf-8")
    run(shop, sys.executable, "-W", "error", program)
    relayed(shop, url)


def test_with_django(shop: Path) -> None:
    for name in ("shop/__init__.py", "shop/migrations/__init__.py"):
        (shop / name).write_text("", encoding="utf-8")
    (shop / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (shop / "shop" / "models.py").write_text(MODELS, encoding="utf-8")
    migration = shop / "shop" / "migrations" / "0002_outbox.py"
    kept = migration.read_text(encoding="utf-8")
    migration.unlink()
    run(shop, sys.executable, "-m", "django", "makemigrations", "shop")
    migration.write_text(kept, encoding="utf-8")
    run(shop, sys.executable, "-m", "django", "migrate")
    driver = "import django; django.setup(); from shop.views import place_order; place_order('a book')"
    run(shop, sys.executable, "-c", driver)
    relayed(shop, "django:default")


def test_a_test_sees_the_jobs_of_an_outbox(shop: Path) -> None:
    run(shop, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")


def test_what_is_shown_of_the_language_is_python() -> None:
    for block in BLOCK.findall(PAGE):
        compile(block, "docs/workers-outbox.md", "exec")
