"""Where another Python is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.pythons import ON_OTHERS, ROOT, VERSIONS, installed, python_of, version_of

OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_one_that_is_named_is_found_by_its_version(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    assert version_of(str(broken)) is None
    assert python_of(OURS, [str(broken), str(tmp_path / "none"), sys.executable]) == sys.executable
    assert python_of("2.0", [sys.executable]) is None


@pytest.mark.parametrize(
    ("variable", "older", "newer"),
    [
        ("PYENV_ROOT", "versions/3.13.9", "versions/3.13.10"),
        ("UV_PYTHON_INSTALL_DIR", "cpython-3.13.9-linux-x86_64-gnu", "cpython-3.13.10-linux-x86_64-gnu"),
        ("XDG_DATA_HOME", "uv/python/cpython-3.13.9-linux-x86_64-gnu", "uv/python/cpython-3.13.10-linux-x86_64-gnu"),
        ("XDG_CACHE_HOME", "pinlater/engines/Python-3.13.9", "pinlater/engines/Python-3.13.10"),
    ],
)
def test_the_newest_is_found_where_pyenv_uv_and_this_project_keep_them(
    variable: str, older: str, newer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    if variable == "XDG_DATA_HOME":
        monkeypatch.delenv("UV_PYTHON_INSTALL_DIR")
    for folder in (older, newer, newer.replace("3.13", "3.1")):
        program = tmp_path / variable / folder / "bin" / "python3.13"
        program.parent.mkdir(parents=True)
        program.touch()
    found = list(installed("3.13"))
    assert [path.relative_to(tmp_path / variable) for path in found] == [
        Path(folder, "bin", "python3.13") for folder in (newer, older)
    ]


def test_ci_runs_tests_that_there_are_on_versions_that_are_supported() -> None:
    assert set(ON_OTHERS) < set(VERSIONS)
    paths = {word for runs in ON_OTHERS.values() for run in runs for word in run if word.startswith("tests/")}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
