"""What is in the built packages, and that it can be imported where nothing else is installed."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHIPPED = {".py", ".lua", ".sql", ".typed"}
DRIVERS = ["redis", "sqlalchemy", "pymysql", "MySQLdb", "sqlite3", "apscheduler", "structlog", "re2", "uvloop"]

IMPORT_ALL = """
import importlib, pkgutil, sys
def below(name):
    module = importlib.import_module(name)
    yield name
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), name + "."):
        if not found.name.endswith(".__main__"):
            yield from below(found.name)
"""


def source_files() -> set[str]:
    """Every file of the package in the checkout, by its path in the wheel."""
    files = (path for path in (ROOT / "pinlater").rglob("*") if path.suffix in SHIPPED)
    return {str(path.relative_to(ROOT)) for path in files}


def test_the_wheel_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    carried = {name for name in names if ".dist-info/" not in name}
    assert carried == source_files() | {"pinlater/idl/pinlater.thrift"}
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_sdist_holds_what_the_wheel_is_built_from(packages: Path) -> None:
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= source_files() | {"thrift/pinlater.thrift", "LICENSE", "README.md", "setup.cfg", "pyproject.toml"}


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
    with pytest.raises(AssertionError, match=r"pip install 'pinlater\[server\]'"):
        base_install.run(base_install.program("pinlater"), "serve")


def test_the_full_install_imports_every_module(full_install: Environment) -> None:
    expected = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in source_files()
        if name.endswith(".py") and not name.endswith("__main__.py")
    }
    imported = set(full_install.python(f"{IMPORT_ALL}\nprint(*below('pinlater'))").split())
    assert imported == expected


def test_the_installed_package_finds_its_interface_file(base_install: Environment) -> None:
    found = base_install.python(
        "from importlib.resources import files; print(files('pinlater.idl') / 'pinlater.thrift')"
    )
    assert Path(found.strip()).read_bytes() == (ROOT / "thrift" / "pinlater.thrift").read_bytes()
