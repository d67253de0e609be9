"""What is in the built packages, and that it can be imported where nothing else is installed."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path

import pytest

from pinlater.errors import install_command
from tests.packaging.conftest import ROOT, Environment
from tests.server.running import running

pytestmark = [pytest.mark.slow]

SHIPPED = {".py", ".typed", ".lua", ".sql", ".html", ".js", ".css", ".svg", ".txt"}
DRIVERS = ["redis", "sqlalchemy", "pymysql", "MySQLdb", "psycopg", "botocore", "sqlite3"]
DRIVERS += ["apscheduler", "structlog", "re2", "uvloop"]

IMPORT_ALL = """
import importlib, pkgutil, sys
def below(name):
    module = importlib.import_module(name)
    yield name
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), name + "."):
        if not found.name.endswith(".__main__"):
            yield from below(found.name)
"""


FOLDERS = {"pinlater": ROOT, "pinlater_workers": ROOT / "workers"}
NOT_IN_ALL = {
    "mysqldb",
    "demo",
    "docs",
    "manual",
    "mcp",
    "release",
    "test",
    "testing",
    "reload",
    "opentelemetry",
    "sentry",
    "django",
    "outbox",
    "all",
}
EXTRAS_OF_WORKERS = {"aiohttp", "prometheus_client", "statsd", "uvloop"}
BASE_OF_WORKERS = ["app", "cli", "execution", "heartbeat", "jobs", "middleware", "pools", "worker"]


def source_files() -> set[str]:
    """Every file of the packages in the checkout, by its path in the wheel."""
    return {str(path.relative_to(root)) for root, path in sources()}


def sources() -> Iterator[tuple[Path, Path]]:
    for package, root in FOLDERS.items():
        for path in (root / package).rglob("*"):
            if path.suffix in SHIPPED:
                yield root, path


def test_the_wheel_holds_the_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    carried = {name for name in names if ".dist-info/" not in name}
    assert carried == source_files() | {"pinlater/idl/pinlater.thrift"}
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_sdist_holds_what_the_wheel_is_built_from(packages: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {str(path.relative_to(ROOT)) for _, path in sources()}
    assert names >= files | {
        "thrift/pinlater.thrift",
        "LICENSE",
        "README.md",
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
    }
    assert names >= {"CHANGELOG.md", "conf/redis.conf", "docs/stores.md", "scripts/test", "tests/release.py"}
    assert [name for name in names if name.endswith(".pyc")] == []


def test_an_index_would_show_what_the_wheel_says_of_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        told = BytesParser().parsebytes(archive.read(name))
    assert (told["Name"], told["Author"], told["License"]) == (
        "pinlater",
        "The PinLater authors",
        "Apache-2.0",
    )
    assert {"job queue", "workers"} <= set(re.split(r", ?", told["Keywords"]))
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert told.get_all("Project-URL") is None, (
        "docs/releasing.md says that there are none until somebody fills them in"
    )
    base = {re.match(r"[\w-]+", each)[0] for each in told.get_all("Requires-Dist", []) if "extra ==" not in each}  # type: ignore[index]
    assert base == {"click", "cronsim", "msgspec", "thrift", "tzdata"}


def test_the_base_install_imports_the_client_and_no_driver(base_install: Environment) -> None:
    loaded = base_install.python(
        "import sys; from pinlater import AsyncClient, Client, Job; "
        f"print(sorted(set({DRIVERS!r}) & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    assert loaded.strip() == "[]"


@pytest.mark.parametrize("part", ["client", "wire", "api", "model", "errors", "clock"])
def test_the_base_install_imports_the_whole(base_install: Environment, part: str) -> None:
    base_install.python(f"{IMPORT_ALL}\nassert list(below('pinlater.{part}'))")


@pytest.mark.parametrize("command", ["queue", "job", "admin"])
def test_the_base_install_has_the_command(base_install: Environment, command: str) -> None:
    assert "Usage:" in base_install.run(base_install.program("pinlater"), command, "--help")


def test_the_base_install_says_what_a_server_needs(base_install: Environment) -> None:
    with pytest.raises(AssertionError, match=re.escape(install_command("server", "/"))):
        base_install.run(base_install.program("pinlater"), "serve")


def test_the_full_install_imports_every_module(full_install: Environment) -> None:
    expected = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in source_files()
        if name.endswith(".py") and not name.endswith("__main__.py")
    }
    everything = f"{IMPORT_ALL}\nprint(*below('pinlater'), *below('pinlater_workers'))"
    assert set(full_install.python(everything).split()) == expected


def test_all_is_every_extra_that_a_server_or_a_worker_takes_by_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (.+)$", metadata, re.MULTILINE))
    (all_of,) = re.findall(r"^Requires-Dist: pinlater\[(.+)\]; extra == .all.$", metadata, re.MULTILINE)
    assert set(all_of.split(",")) == extras - NOT_IN_ALL


ENQUEUE = """
import sys
from pinlater_workers import App
app = App(servers=["127.0.0.1:PORT"])
app.client.create_queue("thumbnails")

@app.job(queue="thumbnails")
def thumbnail(path: str, size: int) -> None: ...

descriptor = thumbnail.enqueue("a.jpg", size=200)
print(app.client.lookup([descriptor], include_body=True)[descriptor].body.decode())
app.close()
"""


def test_the_base_install_enqueues_jobs_for_workers(base_install: Environment, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        said = base_install.python(ENQUEUE.replace("PORT", str(server.port)))
    body = 'PINLATER/1 application/json\n{"job":"thumbnail","args":["a.jpg"],"kwargs":{"size":200}}'
    assert said.strip() == body


def test_the_base_install_imports_the_workers_without_their_extras(base_install: Environment) -> None:
    walk = f"for part in {BASE_OF_WORKERS!r}: list(below(f'pinlater_workers.{{part}}'))"
    code = f"{IMPORT_ALL}\nimport pinlater_workers.testing\n{walk}\n"
    assert base_install.python(f"{code}print(*({EXTRAS_OF_WORKERS!r} & set(sys.modules)))").strip() == ""


def test_the_base_install_says_what_tests_of_jobs_need(base_install: Environment) -> None:
    code = f"{ENQUEUE.partition('app.client')[0]}\n{ENQUEUE[ENQUEUE.index('@app.job') : ENQUEUE.index('descriptor')]}"
    with pytest.raises(AssertionError, match=re.escape(install_command("testing", "/"))):
        base_install.python(f"{code}\nfrom pinlater_workers import testing\ntesting.run(thumbnail, 'a.jpg', size=200)")


OUTBOX = """
import sqlite3, sys
from pinlater_workers import App
from pinlater_workers.outbox import Outbox
app = App(servers=["127.0.0.1:PORT"])
app.client.create_queue("mail")
outbox = Outbox(app)

@app.job(queue="mail")
def send(to: str) -> None: ...

def connect():
    return sqlite3.connect("app.db")

connection = connect()
outbox.create_table(connection)
outbox.enqueue(connection, send, "ada")
connection.commit()
print(outbox.relay(connect).run_once(), "sqlalchemy" in sys.modules)
app.close()
"""


def test_the_base_install_has_outboxes_and_relays_without_sqlalchemy(base_install: Environment, tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert base_install.python(OUTBOX.replace("PORT", str(server.port))).strip() == "1 False"


def test_the_base_install_has_the_command_of_the_workers(base_install: Environment) -> None:
    assert "Usage:" in base_install.run(base_install.program("pinlater-worker"), "--help")


def test_the_installed_package_finds_its_interface_file(base_install: Environment) -> None:
    found = base_install.python(
        "from importlib.resources import files; print(files('pinlater.idl') / 'pinlater.thrift')"
    )
    assert Path(found.strip()).read_bytes() == (ROOT / "thrift" / "pinlater.thrift").read_bytes()
