"""Modules that declare jobs, included by an app or a file: one by one, or all of a package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater_workers import App, ConfigurationError, load_app, load_file

MAIN = """
from pinlater_workers import App

app = App(servers=["127.0.0.1:1"], include=[{include}])
"""
JOBS = """
from {package}.main import app

@app.job(queue="q")
def {name}() -> None: ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with jobs in it and in a package within it, by a name of its own, and no `main` yet."""
    folder = tmp_path / f"shop_{abs(hash(tmp_path))}"
    (folder / "reports").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "reports" / "__init__.py").touch()
    (folder / "__main__.py").write_text("raise SystemExit('a program was run')")
    (folder / "mails.py").write_text(JOBS.format(package=folder.name, name="mail"))
    (folder / "reports" / "monthly.py").write_text(JOBS.format(package=folder.name, name="monthly"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield folder
    for name in [each for each in sys.modules if each.partition(".")[0] == folder.name]:
        del sys.modules[name]


def app_of(package: Path, *include: str) -> App:
    listed = ", ".join(repr(each.format(package=package.name)) for each in include)
    (package / "main.py").write_text(MAIN.format(include=listed))
    return load_app(f"{package.name}.main:app")


def test_modules_are_imported_by_their_names(package: Path) -> None:
    assert list(app_of(package, "{package}.mails").job_types) == ["mail"]


def test_all_of_a_package_but_its_programs(package: Path) -> None:
    assert sorted(app_of(package, "{package}.*").job_types) == ["mail", "monthly"]


def test_nothing_is_imported_before_a_type_is_looked_for(package: Path) -> None:
    app = App(servers=["127.0.0.1:1"], include=["no.such.module"])
    with pytest.raises(
        ConfigurationError, match=r"App\(include=\[...\]\) has 'no.such.module': importing no.such.module failed"
    ):
        app.find("mail")


def test_a_file_includes_too(package: Path, tmp_path: Path) -> None:
    app_of(package)
    file = tmp_path / "jobs.toml"
    file.write_text(f'app = "{package.name}.main:app"\ninclude = ["{package.name}.reports.*"]')
    app, _ = load_file(file)
    assert list(app.job_types) == ["monthly"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop:app", "allowed: a module, as in shop.jobs"),
        ("*", "allowed: a module"),
        ("{package}.mails.*", "is a module, no package; leave .* out"),
        ("{package}.nothing", "importing .*nothing failed: ModuleNotFoundError"),
        ("{package}.__main__", "SystemExit: a program was run"),
    ],
)
def test_mistakes_are_named(package: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        app_of(package, name)


def test_an_error_of_an_included_module_is_the_cause(package: Path) -> None:
    (package / "broken.py").write_text("1 / 0")
    with pytest.raises(ConfigurationError, match="ZeroDivisionError") as failed:
        app_of(package, "{package}.broken")
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_a_file_in_place_of_a_module_is_told_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match="write shop:app"):
        load_app("shop.py:app")
